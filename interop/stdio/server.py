"""A server of the Python SDK over stdio, with the tools that the clients of `kill` call."""

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
    server.run("stdio")
