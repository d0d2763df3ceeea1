"""Three gateways on one Redis, two stateful replicas, and 200 sessions of the official Python client,
each of whose requests goes to another gateway than the one before.

Nothing may fail, no replica may see a session that is not its own, and each session is opened once.

Usage: run.py [SESSIONS]
"""

import asyncio
import json
import logging
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from contextlib import ExitStack
from itertools import count
from pathlib import Path

import anyio
import httpx2
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness

SESSIONS = 200
GATEWAYS = 3
REPLICAS = ("left", "right")
# How many sessions call at once; all of them are open at once.
AT_ONCE = 20
ROUNDS = 3
STEP_SECONDS = 30
PATH = "/mcp/replicas"


def check(truth, what):
    if not truth:
        raise harness.Failure(what)


class InTurn(httpx2.AsyncHTTPTransport):
    """Sends each request of a session to another gateway than the one before."""

    def __init__(self, gateways, first, used):
        # There is no TLS here, and certificates would be read anew for each session.
        super().__init__(verify=False)
        self._gateways = gateways
        self._turn = count(first)
        self._used = used

    async def handle_async_request(self, request):
        gateway = httpx2.URL(self._gateways[next(self._turn) % len(self._gateways)])
        request.url = request.url.copy_with(host=gateway.host, port=gateway.port)
        request.headers["host"] = gateway.netloc.decode()
        response = await super().handle_async_request(request)
        self._used[gateway.port, request.method, response.status_code] += 1
        return response


class Sessions:
    """All sessions; they are open until everybody has called in every round."""

    def __init__(self, gateways, many):
        self.gateways = gateways
        self.many = many
        self.used = Counter()
        self.replicas = Counter()
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._called = asyncio.Barrier(many)

    async def run(self):
        async with anyio.create_task_group() as group:
            for number in range(self.many):
                group.start_soon(self._one, number)

    async def _one(self, number):
        turns = InTurn(self.gateways, number, self.used)
        async with httpx2.AsyncClient(transport=turns, timeout=STEP_SECONDS) as http:
            async with streamable_http_client(self.gateways[0], http_client=http) as streams:
                async with ClientSession(*streams) as session:
                    await self._call(session)

    async def _call(self, session):
        replica = None
        for turn in range(1, ROUNDS + 1):
            async with self._turns:
                with anyio.fail_after(STEP_SECONDS):
                    if replica is None:
                        await session.initialize()
                        replica = await text(session, "whoami")
                        self.replicas[replica] += 1
                    check(len((await session.list_tools()).tools) > 0, "no tools")
                    check(await text(session, "whoami") == replica, "the session moved")
                    counted = await text(session, "count")
                    check(counted == str(turn), f"the session is another: {counted}, not {turn}")
            # Between the rounds everybody else's requests come.
            with anyio.fail_after(4 * STEP_SECONDS):
                await self._called.wait()


async def text(session, tool):
    result = await session.call_tool(tool, {})
    check(not result.is_error, f"{tool} failed: {result}")
    return result.content[0].text


def start_gateways(stack, redis, replicas):
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="scale-")))
    config = directory / "bowline.toml"
    config.write_text(
        f'[store]\nkind = "redis"\nurl = "{redis}"\non_unreachable_start = "exit"\n'
        f"[servers.replicas]\nendpoints = {json.dumps(replicas)}\n"
    )
    bowline = harness.binary("bowline")
    key = subprocess.run([bowline, "keygen"], check=True, stdout=subprocess.PIPE, text=True)
    options = ["--config", config, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    env = {"BOWLINE_SEAL_KEYS": key.stdout.strip()}
    command = [bowline, "serve", *options]
    return [
        stack.enter_context(harness.Process(f"bowline {number}", command, env))
        for number in range(GATEWAYS)
    ]


def fetch(url):
    with urllib.request.urlopen(url, timeout=10) as response:
        return json.load(response)


def others(gateway):
    """What a gateway says of its neighbours, once it has seen them all."""
    until = time.monotonic() + harness.START_SECONDS
    while time.monotonic() < until:
        seen = fetch(harness.url_of(gateway, "/health"))["store"]["others"]
        if len(seen) == GATEWAYS - 1:
            return seen
        time.sleep(0.1)
    raise harness.Failure(f"{gateway.name} sees {seen}")


def run():
    many = int(sys.argv[1]) if len(sys.argv) > 1 else SESSIONS
    logging.disable(logging.CRITICAL)
    with ExitStack() as stack:
        servers = [stack.enter_context(harness.fixture_server(name)) for name in REPLICAS]
        replicas = [harness.url_of(server, "/mcp") for server in servers]
        redis = stack.enter_context(harness.redis_server())
        gateways = start_gateways(stack, redis.url, replicas)
        urls = [harness.url_of(gateway, PATH) for gateway in gateways]
        sessions = Sessions(urls, many)
        started = time.monotonic()
        asyncio.run(sessions.run())
        seconds = time.monotonic() - started

        observed = Counter()
        for url in replicas:
            observed.update(fetch(url.removesuffix("/mcp") + "/observed"))
        statuses = Counter()
        for (_port, method, status), times in sessions.used.items():
            statuses[method, status] += times
        print(f"{many} sessions on {GATEWAYS} gateways in {seconds:.1f} s: {dict(sessions.replicas)}")
        for (method, status), times in sorted(statuses.items()):
            print(f"  {method:<6} {status} {times:>5}")
        print(f"  the replicas saw {dict(observed)}")
        check(all(status < 300 for _, status in statuses), "a request failed")
        check(observed["initializes"] == many, "a session was opened again")
        check(observed["strays"] == observed["not_found"] == 0, "a request met the wrong replica")
        check(len({port for port, _, _ in sessions.used}) == GATEWAYS, "a gateway was left out")
        check(len(sessions.replicas) == len(REPLICAS), "a replica was left out")
        for gateway in gateways:
            seen = others(gateway)
            check(not any(one["differs_in"] for one in seen), f"{gateway.name}: {seen}")
    return 0


if __name__ == "__main__":
    harness.main(run)
