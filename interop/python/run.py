"""Runs the Python client's scenario on server-everything, direct and through the gateway.

Usage: run.py [--direct]     --direct: without the gateway
"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import client
import harness


def scenario(url, gone):
    asyncio.run(client.scenario(url, gone))


if __name__ == "__main__":
    harness.main(lambda: harness.client_run(scenario))
