"""An MCP server (FastMCP, streamable HTTP) that writes down what it does, for the runs of `bowline connect`.

Tools: `echo`, which may run twice; `slow`, which may, too, and answers on a stream with progress; and `bump`,
which may not: it appends its key to the file TALLY. Once ready it prints one line: {"url": ...}.

Usage: server.py HOST PORT TALLY
"""

import asyncio
import json
import socket
import sys

from fastmcp import Context, FastMCP
from mcp.types import ToolAnnotations

SAFE = ToolAnnotations(read_only_hint=True)
UNSAFE = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False)


def tools(server, tally):
    @server.tool(annotations=SAFE)
    def echo(message: str) -> str:
        return message

    @server.tool(annotations=SAFE)
    async def slow(message: str, seconds: float, context: Context) -> str:
        for step in range(5):
            await context.report_progress(step, 5)
            await asyncio.sleep(seconds / 5)
        return message

    @server.tool(annotations=UNSAFE)
    def bump(key: str) -> str:
        # One write of a short line is never torn.
        tally.write(f"{key}\n")
        return key


async def run(host, port, path):
    listener = socket.create_server((host, int(port)))
    server = FastMCP("tally")
    with open(path, "a", buffering=1) as tally:
        tools(server, tally)
        print(json.dumps({"url": f"http://{host}:{listener.getsockname()[1]}/mcp"}), flush=True)
        await server.run_http_async(
            show_banner=False,
            path="/mcp",
            log_level="warning",
            sockets=[listener],
            # A server that is killed loses its sessions.
            stateless_http=False,
        )


if __name__ == "__main__":
    asyncio.run(run(*sys.argv[1:]))
