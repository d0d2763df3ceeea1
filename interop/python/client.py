"""What the official Python client must be able to do with server-everything.

Usage: client.py URL

Every wait is for an event and has a time limit. The wire is watched beneath the SDK, because the
SDK does not say on which stream a message came.
"""

import asyncio
import json
import sys
import warnings

import anyio
import httpx2
import mcp_types as types
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPDeprecationWarning

# Logging, roots and sampling are deprecated in the newest revision; here they are the point.
warnings.simplefilter("ignore", MCPDeprecationWarning)

STEP_SECONDS = 20
# Whether the server can tell to which call its requests belong; over stdio it cannot.
KNOWS_STREAMS = True
# What the server calls itself.
SERVER = "mcp-servers/everything"
TOOLS = {
    "echo",
    "get-roots-list",
    "get-sum",
    "toggle-simulated-logging",
    "toggle-subscriber-updates",
    "trigger-elicitation-request",
    "trigger-long-running-operation",
    "trigger-sampling-request",
}
RESOURCE = "demo://resource/dynamic/text/1"
ROOT = types.Root(uri="file:///interop/root", name="interop root")


class Exchange:
    """One HTTP request and what has come back so far."""

    def __init__(self, request, body):
        self.verb = request.method
        self.request_headers = request.headers
        self.sent = json.loads(body) if body else {}
        self.status = None
        self.headers = {}
        self.received = []


class Wire(httpx2.AsyncHTTPTransport):
    """An HTTP transport that keeps what went over it."""

    def __init__(self):
        super().__init__()
        self.exchanges = []
        self._changed = anyio.Event()

    async def handle_async_request(self, request):
        exchange = Exchange(request, await request.aread())
        self.exchanges.append(exchange)
        response = await super().handle_async_request(request)
        exchange.status = response.status_code
        exchange.headers = response.headers
        self.changed()
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            response.stream = WatchedEvents(response.stream, exchange, self)
        return response

    def changed(self):
        self._changed.set()
        self._changed = anyio.Event()

    async def wait_for(self, predicate):
        while True:
            changed = self._changed
            if found := next((e for e in self.exchanges if predicate(e)), None):
                return found
            await changed.wait()

    def call(self, method, **params):
        """The last request of this method with these parameters."""
        wanted = params.items()
        return next(
            e
            for e in reversed(self.exchanges)
            if e.sent.get("method") == method and wanted <= e.sent["params"].items()
        )

    def on_get_stream(self, method):
        gets = [e for e in self.exchanges if e.verb == "GET"]
        return [m for e in gets for m in e.received if m.get("method") == method]


class WatchedEvents(httpx2.AsyncByteStream):
    """An event stream whose messages are also put into `exchange.received`."""

    def __init__(self, inner, exchange, wire):
        self._inner = inner
        self._exchange = exchange
        self._wire = wire

    async def __aiter__(self):
        pending = b""
        async for chunk in self._inner:
            *events, pending = (pending + chunk).replace(b"\r\n", b"\n").split(b"\n\n")
            for event in events:
                data = [line[5:] for line in event.split(b"\n") if line.startswith(b"data:")]
                # An event with empty data only carries an id to resume from.
                if text := b"\n".join(data).strip():
                    self._exchange.received.append(json.loads(text))
            self._wire.changed()
            yield chunk

    async def aclose(self):
        await self._inner.aclose()


class Peer:
    """The client's side: answers what the server asks and keeps what it tells."""

    def __init__(self):
        self.errors = []
        self.sampled = []
        self.elicited = []
        self.roots_asked = anyio.Event()
        self.logged = []
        self.updated = []
        self._told = anyio.Event()

    async def sample(self, _context, params):
        self.sampled.append(params)
        answer = types.TextContent(type="text", text="an answer from the client's model")
        return types.CreateMessageResult(
            role="assistant", content=answer, model="interop-model", stop_reason="endTurn"
        )

    async def elicit(self, _context, params):
        self.elicited.append(params)
        return types.ElicitResult(action="accept", content={"name": "Ada Bowline", "integer": 7})

    async def list_roots(self, _context):
        self.roots_asked.set()
        return types.ListRootsResult(roots=[ROOT])

    async def on_log(self, params):
        self.logged.append(params)
        self._tell()

    async def on_message(self, message):
        if isinstance(message, Exception):
            self.errors.append(message)
        elif isinstance(message, types.ResourceUpdatedNotification):
            self.updated.append(message.params)
            self._tell()

    def _tell(self):
        self._told.set()
        self._told = anyio.Event()

    async def wait_for(self, kept, predicate):
        while not any(map(predicate, kept)):
            await self._told.wait()


def check(truth, what):
    if not truth:
        raise AssertionError(what)


def text_of(result):
    check(not result.is_error, f"the tool failed: {result}")
    return "\n".join(part.text for part in result.content)


async def initialise(session, wire, _peer):
    result = await session.initialize()
    check(result.server_info.name == SERVER, f"server: {result.server_info}")
    check(result.protocol_version == "2025-11-25", f"version: {result.protocol_version}")
    answer = wire.call("initialize")
    check(answer.headers.get("mcp-session-id"), "no session id")
    # The server asks for roots and reports on this stream, so the rest needs it open.
    get = await wire.wait_for(lambda e: e.verb == "GET" and e.status)
    check(get.status == 200, f"the GET stream was refused: {get.status}")


async def list_tools(session, _wire, _peer):
    names, cursor = [], None
    while True:
        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))
        names += [tool.name for tool in page.tools]
        cursor = page.next_cursor
        if cursor is None:
            break
    check(len(names) == len(set(names)), f"a tool was listed twice: {names}")
    check(TOOLS <= set(names), f"missing: {TOOLS - set(names)}")


async def echo(session, _wire, _peer):
    message = "two lines\nand ünïcödé \u2028 \U0001f40b"
    check(text_of(await session.call_tool("echo", {"message": message})) == f"Echo: {message}", "echo")


async def cancel(session, wire, _peer):
    started = anyio.Event()
    ended_as_cancelled = False

    async def on_progress(_progress, _total, _message):
        started.set()

    async def call():
        nonlocal ended_as_cancelled
        try:
            # Long enough for the cancellation to come in time on a busy machine.
            arguments = {"duration": 2, "steps": 20}
            await session.call_tool(
                "trigger-long-running-operation", arguments, progress_callback=on_progress
            )
        except anyio.get_cancelled_exc_class():
            ended_as_cancelled = True
            raise

    async with anyio.create_task_group() as group:
        group.start_soon(call)
        await started.wait()
        group.cancel_scope.cancel()
    check(ended_as_cancelled, "the call was not cancelled")
    request = wire.call("tools/call", name="trigger-long-running-operation")
    identity = request.sent["id"]
    told = await wire.wait_for(
        lambda e: e.sent.get("method") == "notifications/cancelled" and e.status
    )
    check(told.sent["params"]["requestId"] == identity, f"cancelled another call: {told.sent}")
    check(told.status == 202, f"notifications/cancelled got {told.status}")
    # A new call that ends after the cancelled one would have ended: the session works, and
    # nothing answers the cancelled call.
    arguments = {"duration": 2.1, "steps": 1}
    text_of(await session.call_tool("trigger-long-running-operation", arguments))
    answers = [m for m in request.received if m.get("id") == identity and "method" not in m]
    check(not answers, f"the cancelled call was answered: {answers}")


async def progress(session, wire, _peer):
    seen, all_seen = [], anyio.Event()

    async def on_progress(done, total, _message):
        seen.append((done, total))
        if len(seen) == 5:
            all_seen.set()

    arguments = {"duration": 0.5, "steps": 5}
    result = await session.call_tool(
        "trigger-long-running-operation", arguments, progress_callback=on_progress
    )
    check("completed" in text_of(result), f"result: {result}")
    await all_seen.wait()
    check(seen == [(step, 5) for step in range(1, 6)], f"progress: {seen}")
    # The SDK runs callbacks in tasks; only the wire tells what came before the result.
    received = wire.call("tools/call", name="trigger-long-running-operation").received
    order = [message.get("method", "result") for message in received]
    check(order == ["notifications/progress"] * 5 + ["result"], f"order on the stream: {order}")


async def sampling(session, wire, peer):
    arguments = {"prompt": "a prompt from interop", "maxTokens": 17}
    text = text_of(await session.call_tool("trigger-sampling-request", arguments))
    check(len(peer.sampled) == 1, f"asked {len(peer.sampled)} times")
    asked = peer.sampled[0]
    check(asked.max_tokens == 17, f"asked: {asked}")
    check("a prompt from interop" in asked.messages[0].content.text, f"asked: {asked}")
    check("an answer from the client's model" in text and "interop-model" in text, text)
    on_stream(wire, "trigger-sampling-request", "sampling/createMessage")


async def elicitation(session, wire, peer):
    text = text_of(await session.call_tool("trigger-elicitation-request", {}))
    check(len(peer.elicited) == 1, f"asked {len(peer.elicited)} times")
    asked = peer.elicited[0]
    check(isinstance(asked, types.ElicitRequestFormParams), f"not a form: {asked}")
    check(asked.requested_schema["required"] == ["name"], f"schema: {asked.requested_schema}")
    check("- Name: Ada Bowline" in text and "- Favorite Integer: 7" in text, text)
    on_stream(wire, "trigger-elicitation-request", "elicitation/create")


def on_stream(wire, tool, method):
    """A server's request must come on the stream of the call it belongs to."""
    if not KNOWS_STREAMS:
        check(wire.on_get_stream(method), f"{method} did not come on the GET stream")
        return
    received = wire.call("tools/call", name=tool).received
    order = [message.get("method", "result") for message in received]
    check(order == [method, "result"], f"order on the stream: {order}")


async def roots(session, wire, peer):
    text = text_of(await session.call_tool("get-roots-list", {}))
    check(peer.roots_asked.is_set(), "the server did not ask for roots")
    check(str(ROOT.uri) in text and ROOT.name in text, text)
    check(wire.on_get_stream("roots/list"), "roots/list did not come on the GET stream")


async def subscription(session, wire, peer):
    await session.subscribe_resource(RESOURCE)
    text_of(await session.call_tool("toggle-subscriber-updates", {}))
    await peer.wait_for(peer.updated, lambda params: params.uri == RESOURCE)
    method = "notifications/resources/updated"
    check(wire.on_get_stream(method), f"{method} did not come on the GET stream")
    await session.unsubscribe_resource(RESOURCE)
    text_of(await session.call_tool("toggle-subscriber-updates", {}))


async def logging(session, wire, peer):
    await session.set_logging_level("debug")
    text_of(await session.call_tool("toggle-simulated-logging", {}))
    # Over stdio there is no session id to log.
    expected = "SessionId" if KNOWS_STREAMS else ""
    await peer.wait_for(peer.logged, lambda params: expected in str(params.data))
    method = "notifications/message"
    check(wire.on_get_stream(method), f"{method} did not come on the GET stream")
    text_of(await session.call_tool("toggle-simulated-logging", {}))


STEPS = [
    initialise,
    list_tools,
    echo,
    cancel,
    progress,
    sampling,
    elicitation,
    roots,
    subscription,
    logging,
]


async def use_after_end(http, wire, url, gone):
    """What a call in the ended session gets."""
    delete = next(e for e in wire.exchanges if e.verb == "DELETE")
    check(delete.status in (200, 204), f"DELETE got {delete.status}")
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2025-11-25",
        "mcp-session-id": delete.request_headers["mcp-session-id"],
    }
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    response = await http.post(url, headers=headers, json=ping)
    check(response.status_code == gone, f"the ended session answers {response.status_code}")


async def scenario(url, gone=404):
    """Runs every step; `gone` is the status the server has for an ended session."""
    wire, peer = Wire(), Peer()
    async with httpx2.AsyncClient(transport=wire, timeout=STEP_SECONDS) as http:
        async with streamable_http_client(url, http_client=http) as streams:
            async with ClientSession(
                *streams,
                sampling_callback=peer.sample,
                elicitation_callback=peer.elicit,
                list_roots_callback=peer.list_roots,
                logging_callback=peer.on_log,
                message_handler=peer.on_message,
            ) as session:
                for step in STEPS:
                    await limited(step.__name__, step(session, wire, peer))
                check(not peer.errors, f"the transport reported: {peer.errors}")
        # Leaving the transport's block ended the session.
        await limited("termination", use_after_end(http, wire, url, gone))


async def limited(name, step):
    try:
        with anyio.fail_after(STEP_SECONDS):
            await step
    except BaseException:
        print(f"  FAILED {name}", flush=True)
        raise
    print(f"  ok {name}", flush=True)


if __name__ == "__main__":
    asyncio.run(scenario(sys.argv[1]))
