"""A server of the Python SDK with 1,000 tools over pages. The tool `large` answers with 5 MiB.

Usage: many.py
"""

import mcp_types as types
import uvicorn
from mcp.server.lowlevel import Server

TOOLS = 1000
PAGE = 90
LARGE = 5 * 1024 * 1024


def definition(number):
    return {
        "name": "large" if number == 0 else f"tool-{number:03}",
        "title": f"The tool № {number}",
        "inputSchema": {"type": "object", "properties": {}, "x-order": ["b", "a"]},
        "annotations": {"readOnlyHint": True},
        "_meta": {"interop/number": number},
    }


async def list_tools(_context, params):
    start = int(params.cursor) if params and params.cursor else 0
    end = min(start + PAGE, TOOLS)
    result = {"tools": [definition(number) for number in range(start, end)]}
    if end < TOOLS:
        result["nextCursor"] = str(end)
    return result


async def call_tool(_context, params):
    text = "x" * LARGE if params.name == "large" else f"{params.name} ran"
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


if __name__ == "__main__":
    server = Server("many", on_list_tools=list_tools, on_call_tool=call_tool)
    uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=0)
