"""Clients of HTTP+SSE through the gateway, none of them ours: the Python SDK, fastmcp, the TypeScript SDK, the
Inspector's command line and mcp-remote. The Inspector guesses the transport by the end of the path.

Usage: run.py
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import fastmcp
import harness
import mcp_types as types
from fastmcp.client.transports import SSETransport
from mcp import ClientSession
from mcp.client.sse import sse_client
from mcp.client.stdio import StdioServerParameters, stdio_client

warnings.simplefilter("ignore")

HERE = Path(__file__).resolve().parent
MODULES = harness.INTEROP / "node_modules"
INSPECTOR = harness.PACKAGES / "inspector-cli/build/cli.js"
REMOTE = MODULES / "mcp-remote/dist/proxy.js"
STEP_SECONDS = 30
ROOT = types.Root(uri="file:///interop/root", name="interop root")


def text_of(result):
    return "".join(part.text for part in result.content if part.type == "text")


def check(is_so, what):
    if not is_so:
        raise harness.Failure(what)


async def use(session):
    """What every client must be able to do."""
    names = {tool.name for tool in (await session.list_tools()).tools}
    check({"echo", "get-sum"} <= names, f"tools: {names}")
    texts = await asyncio.gather(*(session.call_tool("echo", {"message": f"grüße {n}"}) for n in range(10)))
    for number, told in enumerate(texts):
        check(f"grüße {number}" in text_of(told), text_of(told))


async def python(url):
    heard = []

    async def sampled(_context, _parameters):
        content = types.TextContent(type="text", text="sampled here")
        return types.CreateMessageResult(role="assistant", model="m", content=content)

    async def roots(_context):
        return types.ListRootsResult(roots=[ROOT])

    async def progressed(progress, _total, _message):
        heard.append(progress)

    async with sse_client(url) as (reading, writing):
        callbacks = {"sampling_callback": sampled, "list_roots_callback": roots}
        async with ClientSession(reading, writing, **callbacks) as session:
            opened = await session.initialize()
            check(opened.server_info.name, "no server")
            await use(session)
            asked = await session.call_tool("trigger-sampling-request", {"prompt": "x", "maxTokens": 10})
            check("sampled here" in text_of(asked), text_of(asked))
            listed = await session.call_tool("get-roots-list", {})
            check("interop root" in text_of(listed), text_of(listed))
            arguments = {"duration": 1, "steps": 3}
            await session.call_tool("trigger-long-running-operation", arguments, progress_callback=progressed)
            check(heard, "no progress")


async def through_fastmcp(url):
    async with fastmcp.Client(SSETransport(url)) as client:
        names = {tool.name for tool in await client.list_tools()}
        check("echo" in names, f"tools: {names}")
        told = await client.call_tool("echo", {"message": "ünï"})
        check("ünï" in text_of(told), text_of(told))


async def through_mcp_remote(url, transport):
    options = ["--allow-http", "--transport", transport]
    with tempfile.TemporaryDirectory() as directory, open(os.devnull, "w") as nowhere:
        command = StdioServerParameters(
            command=str(harness.NODE),
            args=[str(REMOTE), url, *options],
            env={**os.environ, "MCP_REMOTE_CONFIG_DIR": directory},
        )
        async with stdio_client(command, errlog=nowhere) as (reading, writing):
            async with ClientSession(reading, writing) as session:
                await session.initialize()
                await use(session)


def typescript(url):
    run([HERE / "client.mjs", url], "client.mjs")


def inspector(url):
    output = run([INSPECTOR, "--cli", url, "--method", "tools/list"], "the Inspector")
    names = {tool["name"] for tool in json.loads(output)["tools"]}
    check("echo" in names, f"tools: {names}")
    call = ["--method", "tools/call", "--tool-name", "echo", "--tool-arg", "message=hello"]
    check("hello" in run([INSPECTOR, "--cli", url, *call], "the Inspector"), "no echo")


def run(command, name):
    command = [str(part) for part in [harness.NODE, *command]]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3 * STEP_SECONDS)
    if done.returncode != 0:
        raise harness.Failure(f"{name}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def step(title, doing):
    print(title, flush=True)
    if asyncio.iscoroutine(doing):
        asyncio.run(asyncio.wait_for(doing, 3 * STEP_SECONDS))


def scenario():
    with harness.everything_server() as server:
        with harness.gateway("everything", harness.url_of(server, "/mcp")) as gateway:
            base = harness.url_of(gateway, "/mcp/everything").removesuffix("/mcp/everything")
            for path in ("/sse/everything", "/everything/sse", "/sse"):
                step(f"the Python SDK at {path}", python(base + path))
            step("fastmcp", through_fastmcp(f"{base}/sse/everything"))
            step("the TypeScript SDK", typescript(f"{base}/sse/everything"))
            for path in ("/everything/mcp", "/everything/sse"):
                step(f"the Inspector at {path}", inspector(base + path))
            for path, transport in (
                ("/sse/everything", "sse-only"),
                ("/everything/sse", "sse-only"),
                ("/everything/sse", "http-first"),
                ("/mcp/everything", "http-only"),
            ):
                step(f"mcp-remote at {path} ({transport})", through_mcp_remote(base + path, transport))
    return 0


if __name__ == "__main__":
    harness.main(scenario)
