"""The official Python client on a union: lists the tools at once, whenever it is told that they changed, and at
SIGUSR1. Each list is a line of JSON: {"names": [NAME], "missing": {SERVER: [STATE, REASON]}, "seconds": FLOAT}.
Before each it calls `echo` of the servers that are killed meanwhile; what fails, or what a server asks, is a line that
begins with `wrong`. The first line is what the servers have that are named, each
alone: {"alone": {SERVER: [NAME]}}.

Usage: watch.py ORIGIN SERVER...
"""

import asyncio
import json
import logging
import signal
import sys
import time
import warnings
from contextlib import asynccontextmanager

import mcp_types as types
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)


KILLED = ("ev-http", "ev-stdio")


async def call(session, tool):
    try:
        told = await session.call_tool(tool, {"message": tool})
    except MCPError as error:
        print(f"wrong: {tool}: {error}", flush=True)
        return
    if told.content[0].text != f"Echo: {tool}":
        print(f"wrong: {tool}: {told}", flush=True)


async def listed(session):
    """All pages: the names, and what is said of servers that are missing."""
    cursor, names, missing = None, [], {}
    while True:
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        names += [tool.name for tool in page.tools]
        for server, said in ((page.meta or {}).get("bowline/servers") or {}).items():
            missing[server] = [said["state"], said.get("reason")]
        cursor = page.next_cursor
        if cursor is None:
            return names, missing


class Watch:
    def __init__(self):
        self._wanted = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, self._wanted.set)

    @asynccontextmanager
    async def session(self, url):
        async with streamable_http_client(url) as streams:
            options = {"elicitation_callback": self._asked, "message_handler": self._on_message}
            async with ClientSession(*streams, **options) as session:
                began = time.monotonic()
                await session.initialize()
                yield session, time.monotonic() - began

    async def _on_message(self, message):
        if isinstance(message, types.ToolListChangedNotification):
            self._wanted.set()

    async def _asked(self, _context, params):
        print(f"wrong: asked {params}", flush=True)
        return types.ElicitResult(action="decline")

    async def alone(self, origin, servers):
        names = {}
        for server in servers:
            async with self.session(f"{origin}/mcp/{server}") as (session, _):
                names[server], _ = await listed(session)
        print(json.dumps({"alone": names}), flush=True)

    async def run(self, url):
        async with self.session(url) as (session, seconds):
            print(f"opened in {seconds:.3f} s", flush=True)
            while True:
                self._wanted.clear()
                began = time.monotonic()
                names, missing = await listed(session)
                seconds = time.monotonic() - began
                for server in KILLED:
                    await call(session, f"{server}__echo")
                print(json.dumps({"names": names, "missing": missing, "seconds": seconds}), flush=True)
                await self._wanted.wait()


async def main(origin, *servers):
    watch = Watch()
    await watch.alone(origin, servers)
    await watch.run(f"{origin}/mcp")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
