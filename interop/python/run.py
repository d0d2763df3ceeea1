"""Runs the Python client's scenario on server-everything, direct and through the gateway.

Usage: run.py [--direct]     --direct: without the gateway
"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import client
import harness


def run():
    with harness.everything_server() as server:
        url = harness.url_of(server, "/mcp")
        print("direct", flush=True)
        # server-everything answers 400 where the specification wants 404.
        asyncio.run(client.scenario(url, gone=400))
        if "--direct" in sys.argv[1:]:
            return 0
        with harness.gateway("everything", url) as gateway:
            print("through the gateway", flush=True)
            asyncio.run(client.scenario(harness.url_of(gateway, "/mcp/everything")))
    return 0


if __name__ == "__main__":
    harness.main(run)
