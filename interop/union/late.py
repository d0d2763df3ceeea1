"""A server of fastmcp on a port that it is told.

Usage: late.py PORT
"""

import sys

from fastmcp import FastMCP

server = FastMCP("late")


@server.tool
def hello(name: str) -> str:
    return f"Hello {name}, better late than never"


@server.prompt
def greeting() -> str:
    return "Greet me late."


if __name__ == "__main__":
    server.run(transport="http", host="127.0.0.1", port=int(sys.argv[1]), show_banner=False)
