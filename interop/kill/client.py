"""Calls the official Python client in a loop until it is told to stop (SIGTERM), then prints what
became of the calls, as one line of JSON: {"CALL": {"OUTCOME": COUNT}}.

Usage: client.py URL [once]
With `once` it lists the tools when it begins, and not again.
"""

import asyncio
import json
import logging
import signal
import sys
import warnings
from collections import Counter, defaultdict

import anyio
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

warnings.simplefilter("ignore", MCPDeprecationWarning)
logging.disable(logging.CRITICAL)

CALL_SECONDS = 40


async def echo(session, number):
    result = await session.call_tool("echo", {"message": f"n{number}"})
    if result.content[0].text != f"Echo: n{number}":
        raise AssertionError(f"another's answer: {result}")


CALLS = {
    "ping": lambda session, _: session.send_ping(),
    "tools/list": lambda session, _: session.list_tools(),
    "echo": echo,
    "toggle": lambda session, _: session.call_tool("toggle-simulated-logging", {}),
}


class Loop:
    def __init__(self, url, calls):
        self.url = url
        self.calls = calls
        self.stopping = False
        self.number = 0
        self.outcomes = defaultdict(Counter)

    async def run(self):
        while not self.stopping:
            try:
                await self.session()
            except Exception as error:  # noqa: BLE001: whatever the SDK raises is counted
                self.outcomes["session"][f"{type(error).__name__}"] += 1
                await anyio.sleep(0.1)

    async def session(self):
        """Calls until the session fails with anything but an unknown outcome."""
        async with streamable_http_client(self.url) as streams:
            async with ClientSession(*streams) as session:
                with anyio.fail_after(CALL_SECONDS):
                    await session.initialize()
                    # A client that has seen the list knows what may be called twice, and so does
                    # the gateway.
                    await session.list_tools()
                if self.number == 0:
                    print("ready", flush=True)
                while not self.stopping:
                    self.number += 1
                    for name, call in self.calls.items():
                        if not await self.call(name, call, session):
                            return
                        await anyio.sleep(0.01)

    async def call(self, name, call, session):
        try:
            with anyio.fail_after(CALL_SECONDS):
                await call(session, self.number)
            outcome = "ok"
        except MCPError as error:
            unknown = error.code == -31001
            outcome = "-31001" if unknown else f"{error.code} {error.message}"[:120]
        except (TimeoutError, AssertionError) as error:
            outcome = f"{type(error).__name__} {error}"[:120]
        self.outcomes[name][outcome] += 1
        return outcome in ("ok", "-31001")


async def main(url, once=None):
    calls = {name: call for name, call in CALLS.items() if not once or name != "tools/list"}
    loop = Loop(url, calls)

    def stop():
        loop.stopping = True

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    await loop.run()
    print(json.dumps(loop.outcomes), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
