"""A server of the Python SDK over stdio, with the tools that the clients of `kill` call.

Usage: server.py [streamable-http | sse PORT]
"""

import sys

from mcp.server import MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("python over stdio")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def echo(message: str) -> str:
    return f"Echo: {message}"


@server.tool(name="toggle-simulated-logging")
def toggle() -> str:
    return "toggled"


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["streamable-http"]:
            server.run("streamable-http", port=0)
        case ["sse", port]:
            server.run("sse", port=int(port))
        case _:
            server.run("stdio")
