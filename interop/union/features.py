"""All that a client can do with ten servers as one."""

import asyncio
import importlib.util
import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from contextlib import asynccontextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "oauth")]
import harness
import mcp_types as types
import parts
from mcp import ClientSession, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

import servers

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)

STEP_SECONDS = 60
SOON_SECONDS = 2
EVERYTHING = ("ev-http", "ev-sse", "ev-stdio")
INSPECTOR = harness.PACKAGES / "inspector-cli/build/cli.js"
LARGE = 5 * 1024 * 1024
ROOT = types.Root(uri="file:///interop/root", name="interop root")


def module(name, path):
    """A script of another run, under a name that no other has."""
    spec = importlib.util.spec_from_file_location(name, HERE.parent / path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


Plain = module("stdio_run", "stdio/run.py").Plain


def check(is_so, *what):
    if not is_so:
        raise harness.Failure(" ".join(str(one) for one in what))


def text_of(result):
    check(not result.is_error, "the tool failed:", str(result)[:500])
    return "".join(part.text for part in result.content if part.type == "text")


# === without an SDK, which would drop what it does not know ===


def opened(url):
    client = Plain(url)
    info = {"name": "interop", "version": "0"}
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    client.capabilities = client.request("initialize", opening)["capabilities"]
    client.send({"method": "notifications/initialized"})
    return client


def listed(client, method, key):
    """All items of a list, as they were sent."""
    items, cursor = [], None
    while key in client.capabilities:
        page = client.request(method, {"cursor": cursor} if cursor else {})
        items += page[key]
        cursor = page.get("nextCursor")
        if cursor is None:
            break
    return items


def names_alone(origin, names):
    """What each server has for a client without capabilities."""
    return {
        name: [tool["name"] for tool in listed(opened(f"{origin}/mcp/{name}"), "tools/list", "tools")]
        for name in names
    }


def definitions(origin):
    """Each definition is what its server sends where it is alone, but for the name."""
    union = opened(f"{origin}/mcp")
    there = [server for server in servers.ORDER if server in (*servers.LIVE, *servers.LATER)]
    alone = {server: opened(f"{origin}/mcp/{server}") for server in there}
    for method, key in (("tools/list", "tools"), ("prompts/list", "prompts")):
        expected = [
            {**item, "name": f"{server}__{item['name']}"}
            for server, client in alone.items()
            for item in listed(client, method, key)
        ]
        found = listed(union, method, key)
        check(found == expected, f"{key}: other definitions than those of the servers")
        print(f"  ok {len(found)} {key} as their servers define them", flush=True)
    (reverse,) = [tool for tool in listed(union, "tools/list", "tools") if tool["name"] == "typescript__reverse"]
    check(reverse["future"] == ["field", {"nested": 100}], "fields that nobody knows are gone:", reverse)


# === with the Inspector ===


def inspector(url, *options):
    """What the Inspector prints, which is the result."""
    command = [harness.NODE, INSPECTOR, "--cli", url, *options]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=STEP_SECONDS)
    check(done.returncode == 0, "the Inspector:", done.stdout[-2000:], done.stderr)
    return json.loads(done.stdout)


def large(origin):
    """A large result. The Python client takes no event of more than 1 MiB."""
    result = inspector(f"{origin}/mcp", "--method", "tools/call", "--tool-name", "python__large")
    (content,) = result["content"]
    check(len(content["text"]) == LARGE, len(content["text"]), "bytes of", LARGE)
    print("  ok a result of 5 MiB", flush=True)


# === with the Python SDK ===


class Peer:
    """The client's side: answers with what it was asked."""

    def __init__(self):
        self.progress = []
        self.changed = asyncio.Event()

    async def sample(self, _context, params):
        asked = params.messages[0].content.text
        check((params.meta or {}).get("bowline/server") in asked, "whose is this:", params)
        content = types.TextContent(type="text", text=f"sampled: {asked}")
        return types.CreateMessageResult(role="assistant", model="interop", content=content)

    async def elicit(self, _context, params):
        check(params.message.startswith(EVERYTHING) or "gated" in params.message, "whose is this:", params)
        if isinstance(params, types.ElicitRequestURLParams):
            await asyncio.to_thread(parts.browse, params.url)
            return types.ElicitResult(action="accept")
        return types.ElicitResult(action="accept", content={"name": "Ada Bowline"})

    async def roots(self, _context):
        return types.ListRootsResult(roots=[ROOT])

    async def on_progress(self, progress, _total, _message):
        self.progress.append(progress)

    async def on_message(self, message):
        if isinstance(message, types.ToolListChangedNotification):
            self.changed.set()

    def session(self, streams):
        return ClientSession(
            *streams,
            sampling_callback=self.sample,
            elicitation_callback=self.elicit,
            list_roots_callback=self.roots,
            message_handler=self.on_message,
        )


async def at_once(session, tool, arguments):
    """The texts that a tool of each server-everything answers, all called at once. Each says whose it is."""
    calls = (session.call_tool(f"{server}__{tool}", arguments(server)) for server in EVERYTHING)
    results = await asyncio.gather(*calls)
    said_by = tuple((result.meta or {}).get("bowline/server") for result in results)
    check(said_by == EVERYTHING, tool, "is said by", said_by)
    return [text_of(result) for result in results]


async def use(session, peer):
    """What works on every front."""
    for server, text in zip(EVERYTHING, await at_once(session, "echo", lambda server: {"message": server})):
        check(text == f"Echo: {server}", server, text)
    asked = await at_once(session, "trigger-sampling-request", lambda server: {"prompt": server, "maxTokens": 9})
    for server, text in zip(EVERYTHING, asked):
        check("sampled: " in text and server in text, server, text)
    for text in await at_once(session, "trigger-elicitation-request", lambda _: {}):
        check("Ada Bowline" in text, text)
    for text in await at_once(session, "get-roots-list", lambda _: {}):
        check(ROOT.name in text, text)
    arguments = {"duration": 0.5, "steps": 5}
    tool = "ev-stdio__trigger-long-running-operation"
    text_of(await session.call_tool(tool, arguments, progress_callback=peer.on_progress))
    check(peer.progress, "no progress")
    check(text_of(await session.call_tool("python__tool-999", {})) == "tool-999 ran", "tool-999")
    check(text_of(await session.call_tool("typescript__reverse", {"text": "abc"})) == "cba", "reverse")
    check("Hello Ada" in text_of(await session.call_tool("late__hello", {"name": "Ada"})), "hello")


async def look_up(session):
    """Prompts, resources, and completion of both."""
    prompt = await session.get_prompt("typescript__ask", {"city": "Rom"})
    check("Rom" in prompt.messages[0].content.text, prompt)
    reference = types.PromptReference(type="ref/prompt", name="typescript__ask")
    completed = await session.complete(reference, {"name": "city", "value": "Par"})
    check(completed.completion.values == ["Paris", "Parma"], completed)
    reference = types.PromptReference(type="ref/prompt", name="ev-stdio__completable-prompt")
    completed = await session.complete(reference, {"name": "department", "value": "S"})
    check(completed.completion.values == ["Sales", "Support"], completed)
    templates = (await session.list_resource_templates()).resource_templates
    check(len(templates) == 2 * len(EVERYTHING), templates)
    # What three servers have alike is read at none of them.
    reference = types.ResourceTemplateReference(type="ref/resource", uri=templates[0].uri_template)
    await is_everybodys(session.complete(reference, {"name": "resourceId", "value": "1"}))
    resources = Counter(str(one.uri) for one in (await session.list_resources()).resources)
    check(len(resources) > 3, resources)
    for resource, servers_with_it in resources.items():
        if servers_with_it == 1:
            check((await session.read_resource(resource)).contents, resource)
        else:
            await is_everybodys(session.read_resource(resource))
    await is_everybodys(session.read_resource("demo://resource/dynamic/text/7"))


async def is_everybodys(asking):
    try:
        check(False, "one of several servers answered:", await asking)
    except MCPError as error:
        check(all(f"`{server}`" in error.message for server in EVERYTHING), error)


@asynccontextmanager
async def over_stdio(config):
    """All servers of a configuration file, as an editor starts them."""
    with tempfile.TemporaryDirectory() as directory, open(os.devnull, "w") as nowhere:
        file = Path(directory) / "bowline.toml"
        file.write_text(config)
        command = StdioServerParameters(
            command=str(harness.binary("bowline")),
            args=["connect", "-c", str(file)],
            env={**os.environ, "XDG_STATE_HOME": directory},
        )
        async with stdio_client(command, errlog=nowhere) as streams:
            yield streams


async def on_front(front):
    peer = Peer()
    async with front as streams, peer.session(streams) as session:
        opened = await session.initialize()
        check(opened.server_info.name == "bowline", opened)
        await use(session, peer)
        await look_up(session)


async def tools_of(session, server):
    listed = await session.list_tools()
    return [tool.name for tool in listed.tools if tool.name.startswith(f"{server}__")]


async def signing_in(origin):
    peer = Peer()
    async with streamable_http_client(f"{origin}/mcp") as streams, peer.session(streams) as session:
        await session.initialize()
        check(await tools_of(session, "gated") == ["gated__sign_in"], "no sign-in is offered")
        told = text_of(await session.call_tool("gated__whoami", {}))
        check("alice" in told, told)
        # Other changes may come first: the servers tell of their own.
        async with asyncio.timeout(SOON_SECONDS):
            while "gated__whoami" not in await tools_of(session, "gated"):
                await peer.changed.wait()
                peer.changed.clear()


def sign_in(origin):
    """A call of the server behind the authorization server asks for a sign-in, and goes on after it. The client that
    called is told at once that there are more tools now."""
    asyncio.run(asyncio.wait_for(signing_in(origin), STEP_SECONDS))


def run(origin, config):
    definitions(origin)
    large(origin)
    fronts = {
        "/mcp": lambda: streamable_http_client(f"{origin}/mcp"),
        "/sse": lambda: sse_client(f"{origin}/sse"),
        "stdio": lambda: over_stdio(config),
    }
    for name, front in fronts.items():
        asyncio.run(asyncio.wait_for(on_front(front()), STEP_SECONDS))
        print(f"  ok {name}", flush=True)
