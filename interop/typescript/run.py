"""Runs the TypeScript client's scenario on server-everything, direct and through the gateway.

Usage: run.py [--direct]     --direct: without the gateway
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness

CLIENT = Path(__file__).resolve().parent / "client.mjs"
SCENARIO_SECONDS = 180


def scenario(url, gone):
    with harness.Process("client.mjs", [harness.NODE, CLIENT, url, gone]) as client:
        code = client.wait(SCENARIO_SECONDS)
    print("\n".join(client.lines), flush=True)
    if code != 0:
        raise harness.Failure(f"client.mjs: exit code {code}")


if __name__ == "__main__":
    harness.main(lambda: harness.client_run(scenario))
