"""The official clients that speak both eras and find out by themselves, through the gateway.

They probe with `server/discover`, are refused, and must go on with a session: calls work, and the
server gets one `initialize` from each.
"""

import asyncio
import sys
from pathlib import Path

import anyio
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness

CLIENT = Path(__file__).resolve().parent / "client.mjs"
SECONDS = 60


class Wire(httpx2.AsyncHTTPTransport):
    """An HTTP transport that keeps which methods went over it, and the statuses they got."""

    def __init__(self):
        super().__init__()
        self.posts = []

    async def handle_async_request(self, request):
        body = await request.aread()
        response = await super().handle_async_request(request)
        if request.method == "POST":
            self.posts.append((harness.json.loads(body).get("method"), response.status_code))
        return response


async def python_client(url):
    wire = Wire()
    async with httpx2.AsyncClient(transport=wire, timeout=SECONDS) as http:
        async with Client(streamable_http_client(url, http_client=http), mode="auto") as client:
            with anyio.fail_after(SECONDS):
                tools = await client.list_tools()
                names = {tool.name for tool in tools.tools}
                called = await client.call_tool("echo", {"message": "hello"})
    check("echo" in names, f"no tool `echo` in {names}")
    check("hello" in str(called.content), f"not an echo: {called}")
    check(wire.posts[0] == ("server/discover", 400), f"the probe: {wire.posts[0]}")
    opened = [post for post in wire.posts if post[0] == "initialize"]
    check(opened == [("initialize", 200)], f"opened by {opened}")


def typescript_client(url):
    with harness.Process("client.mjs", [harness.NODE, CLIENT, url]) as client:
        code = client.wait(SECONDS)
    if code != 0:
        raise harness.Failure(f"client.mjs: exit code {code}\n" + "\n".join(client.lines))


def check(holds, message):
    if not holds:
        raise harness.Failure(message)


def run():
    with harness.everything_server() as server:
        with harness.gateway("everything", harness.url_of(server, "/mcp")) as gateway:
            url = harness.url_of(gateway, "/mcp/everything")
            asyncio.run(python_client(url))
            print("  ok the Python client goes on with a session", flush=True)
            typescript_client(url)
            print("  ok the TypeScript client goes on with a session", flush=True)
    return 0


if __name__ == "__main__":
    harness.main(run)
