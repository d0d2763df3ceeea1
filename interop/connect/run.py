"""`bowline connect` between clients and servers that are not ours.

- The official Python and TypeScript clients at server-everything, which is killed and started again.
- The same with server-everything on stdio behind `connect --`, which is killed.
- The same at a server that wants a sign-in: a real authorization server, and one browser for both clients.
- The Inspector's command line.
- Eight bridges with one expired token: one refresh.
- A server that vanishes without closing its connections, in network namespaces.

Usage: run.py [NAME...]; without names, everything.
"""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent / "oauth"))
import harness
import parts
from bridges import Everything, bowline, clients, judge, rounds, state
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from namespaces import Vanishing

INSPECTOR = harness.INTEROP / "node_modules/.bin/mcp-inspector"
STEP_SECONDS = 60
KILLS = 2
# Access tokens of the authorization server live this long. A bridge refreshes one after half of it.
TOKEN_SECONDS = 30
BRIDGES = 8


def check(is_so, what):
    if not is_so:
        raise harness.Failure(str(what))


def restarted():
    """A server on streamable HTTP that is killed under both clients."""
    with ExitStack() as stack:
        server = Everything(stack)
        started = clients(stack, bowline(server.url), state(stack))
        for _ in range(KILLS):
            # A client that has seen the list knows what may be called twice, and so does the bridge.
            rounds(started)
            server.process.kill()
            server.start()
        rounds(started)
        judge(started)


def wrapped():
    """server-everything on stdio behind `connect --`, killed under both clients."""
    with ExitStack() as stack:
        command = bowline("--", harness.NODE, harness.EVERYTHING, "stdio", harness.MARK)
        started = clients(stack, command, state(stack))
        killed = 0
        for _ in range(KILLS):
            rounds(started)
            killed += harness.kill(harness.EVERYTHING)
        rounds(started)
        judge(started)
        check(killed >= KILLS, f"only {killed} processes were killed")
        check(not harness.processes(harness.EVERYTHING), "a process is left")


class Person:
    """A person with a state directory and a browser, which opens what it is given and signs in as alice."""

    def __init__(self, stack):
        self.path = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.opened = self.path / "opened"
        self.log = self.path / "log"
        opener = self.path / "bin/xdg-open"
        opener.parent.mkdir()
        browse = f'exec "{harness.NODE}" "{parts.HERE}/browser.mjs" "$1" --account=alice'
        opener.write_text(f'#!/bin/sh\necho "$1" >> "{self.opened}"\n{browse}\n')
        opener.chmod(0o755)
        self.env = {
            **os.environ,
            "XDG_STATE_HOME": str(self.path),
            "PATH": f"{opener.parent}:{os.environ['PATH']}",
            "DISPLAY": ":0",
            "RUST_LOG": "debug",
        }

    def links(self):
        return self.opened.read_text().splitlines() if self.opened.exists() else []

    async def whoami(self, url):
        """Who the server says is there, through a bridge of its own."""
        command = [str(word) for word in bowline(url, "--log", self.log)]
        server = StdioServerParameters(command=command[0], args=command[1:], env=self.env)
        async with stdio_client(server) as streams, ClientSession(*streams) as session:
            await session.initialize()
            result = await session.call_tool("whoami", {})
            return result.content[0].text


async def at_once(person, url, count):
    """What this many bridges are told that call at the same time."""
    return await asyncio.gather(*(person.whoami(url) for _ in range(count)))


def signing_in(person, url):
    """Bridges sign in once, in one browser; the next ones find the token."""
    told = asyncio.run(at_once(person, url, 3))
    check(told == ["alice"] * 3, told)
    [link] = person.links()
    check(link.startswith("http://127.0.0.1:") and "?" not in link, link)
    check(asyncio.run(person.whoami(url)) == "alice", "not signed in")
    check(len(person.links()) == 1, person.links())


def refreshing(person, url, requests, expired):
    """Eight bridges with one expired token refresh it once."""
    time.sleep(max(0, expired - time.monotonic()))
    before, begun = len(refreshes(requests)), time.monotonic()
    told = asyncio.run(at_once(person, url, BRIDGES))
    took = time.monotonic() - begun
    check(told == ["alice"] * BRIDGES, told)
    # The new token is due after half its life, on a machine that takes so long.
    allowed = 1 + int(took / (TOKEN_SECONDS / 2))
    count = len(refreshes(requests)) - before
    check(1 <= count <= allowed, f"{count} refreshes in {took:.1f} s")
    check(len(person.links()) == 1, person.links())


def refreshes(requests):
    entries = parts.entries(requests)
    return [one for one in entries if one["endpoint"] == "token" and one.get("grant_type") == "refresh_token"]


def inspected():
    """The Inspector's command line, with `connect` as its server."""
    with ExitStack() as stack:
        server = Everything(stack)
        env = {**os.environ, **state(stack)}
        run = [INSPECTOR, "--cli", *bowline(server.url), "--method", "tools/list"]
        listed = subprocess.run([str(word) for word in run], env=env, stdout=subprocess.PIPE, timeout=STEP_SECONDS)
        check(listed.returncode == 0, "the Inspector failed")
        names = {tool["name"] for tool in json.loads(listed.stdout)["tools"]}
        check({"echo", "toggle-simulated-logging"} <= names, names)


def leaks(person):
    """No secret is in what the bridges logged."""
    text = person.log.read_text()
    check("sign in with this link" in text, "nothing was logged")
    secrets = parts.entries(parts.SECRETS_LOG)
    kinds = {entry["kind"] for entry in secrets}
    check({"code", "state", "access_token", "refresh_token"} <= kinds, kinds)
    for entry in secrets:
        check(entry["value"] not in text, f"a {entry['kind']} is in the log")


def step(scenario, *arguments):
    begun = time.monotonic()
    scenario(*arguments)
    print(f"  ok {scenario.__doc__.strip()} ({time.monotonic() - begun:.0f} s)", flush=True)


def run():
    names = sys.argv[1:]
    with ExitStack() as stack:
        wanted = lambda name: not names or name in names
        # It only waits, so it does so beside the others.
        vanishing = Vanishing() if wanted("vanishing") else None
        if wanted("signing_in"):
            requests = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "requests"
            env = {"ACCESS_TTL": str(TOKEN_SECONDS), "REQUESTS_LOG": str(requests)}
            issuer = parts.said(stack.enter_context(parts.authority(**env)))["issuer"]
            url = parts.said(stack.enter_context(parts.protected_server(issuer)))["url"]
            person = Person(stack)
            step(signing_in, person, url)
            expired = time.monotonic() + TOKEN_SECONDS
        scenarios = [restarted, wrapped, inspected]
        if not INSPECTOR.exists():
            print("!! the Inspector is not installed: it is NOT run with connect", flush=True)
            scenarios.remove(inspected)
        for scenario in scenarios:
            if wanted(scenario.__name__):
                step(scenario)
        if wanted("signing_in"):
            step(refreshing, person, url, requests, expired)
            step(leaks, person)
        if vanishing:
            step(vanishing.finish)
    return 0


if __name__ == "__main__":
    harness.main(run)
