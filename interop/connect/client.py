"""Calls the official Python client over stdio in a loop until it is told to stop (SIGTERM), then prints what
became of the calls, as one line of JSON after a line for every round of calls: {"outcomes": {"CALL": {"OUTCOME": COUNT}}, "bumped": [KEY...]}.

The calls are those of server.py, or of server-everything, whichever is there.

Usage: client.py COMMAND ARGUMENT...
"""

import asyncio
import json
import logging
import os
import signal
import sys
import time
import warnings
from collections import Counter, defaultdict
from contextlib import AsyncExitStack

import anyio
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.shared.exceptions import MCPDeprecationWarning, MCPError

warnings.simplefilter("ignore", MCPDeprecationWarning)
logging.disable(logging.CRITICAL)

# Longer than anything here takes that comes back.
CALL_SECONDS = 150


async def echo(session, text):
    result = await session.call_tool("echo", {"message": text})
    if not result.content[0].text.endswith(text):
        raise AssertionError(f"another's answer: {result}")


async def slow(session, text):
    result = await session.call_tool("slow", {"message": text, "seconds": 0.5})
    if result.content[0].text != text:
        raise AssertionError(f"another's answer: {result}")


CALLS = {
    "ping": lambda session, _: session.send_ping(),
    "tools/list": lambda session, _: session.list_tools(),
    "echo": echo,
    "slow": slow,
    "bump": lambda session, text: session.call_tool("bump", {"key": text}),
    "toggle": lambda session, _: session.call_tool("toggle-simulated-logging", {}),
}


class Loop:
    def __init__(self):
        self.stopping = False
        self.outcomes = defaultdict(Counter)
        self.bumped = []
        self.longest = 0.0

    async def run(self, command):
        parameters = StdioServerParameters(command=command[0], args=command[1:], env=dict(os.environ))
        async with AsyncExitStack() as stack:
            streams = await stack.enter_async_context(stdio_client(parameters))
            session = await stack.enter_async_context(ClientSession(*streams))
            await session.initialize()
            tools = {tool.name for tool in (await session.list_tools()).tools}
            known = {"ping", "tools/list"} | tools | ({"toggle"} if "bump" not in tools else set())
            print("ready", flush=True)
            number = 0
            while not self.stopping:
                number += 1
                for name, call in CALLS.items():
                    if name in known:
                        await self.call(name, call, session, f"py-{os.getpid()}-{number}")
                print(f"round {number}", flush=True)
                await anyio.sleep(0.05)

    async def call(self, name, call, session, text):
        begun = time.monotonic()
        try:
            with anyio.fail_after(CALL_SECONDS):
                await call(session, text)
            outcome = "ok"
            if name == "bump":
                self.bumped.append(text)
        except MCPError as error:
            outcome = "-31001" if error.code == -31001 else f"{error.code} {error.message}"[:160]
        except (TimeoutError, AssertionError) as error:
            outcome = f"{type(error).__name__} {error}"[:160]
        self.longest = max(self.longest, time.monotonic() - begun)
        self.outcomes[name][outcome] += 1


async def main(command):
    loop = Loop()

    def stop():
        loop.stopping = True

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop)
    await loop.run(command)
    counted = {"outcomes": loop.outcomes, "bumped": loop.bumped, "longest": round(loop.longest, 1)}
    print(json.dumps(counted), flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
