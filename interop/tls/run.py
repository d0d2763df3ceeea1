"""Puts the gateway in front of HTTPS servers at `localhost`, with certificates made for the run.

Replicas are pinned by address, yet certificate, SNI and Host stay those of the name; and a server
that cannot prove its name gets no request. Where `localhost` has only one address, the script says
so, and the rest is tested with that one.
"""

import json
import socket
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness
from certificates import Authority
from server import SESSION_ID, serve

NAME = "localhost"
VERSION = "2025-11-25"
SESSIONS = 12
TIMEOUT = 10


class Session:
    """One MCP session through the gateway."""

    def __init__(self, url):
        self.url, self.id = url, None
        params = {"protocolVersion": VERSION, "capabilities": {}}
        params["clientInfo"] = {"name": "tls", "version": "0"}
        answer = self.send({"id": 1, "method": "initialize", "params": params})
        self.replica = answer["result"]["serverInfo"]["name"]
        self.send({"method": "notifications/initialized"})

    def send(self, message):
        """Posts a message; `None` ends the session."""
        headers = {"accept": "application/json, text/event-stream"}
        if self.id:
            headers |= {SESSION_ID: self.id, "mcp-protocol-version": VERSION}
        body = message and json.dumps({"jsonrpc": "2.0", **message}).encode()
        if body:
            headers["content-type"] = "application/json"
        method = "POST" if body else "DELETE"
        request = urllib.request.Request(self.url, body, headers, method=method)
        with urllib.request.urlopen(request, timeout=TIMEOUT) as response:
            self.id = self.id or response.headers[SESSION_ID]
            text = response.read()
        return json.loads(text) if text else None

    def call(self):
        answer = self.send({"id": 2, "method": "tools/call", "params": {"name": "where"}})
        where = answer["result"]["content"][0]["text"]
        check(where == self.replica, f"opened at {self.replica}, answered from {where}")


def check(truth, what):
    if not truth:
        raise harness.Failure(what)


def wait_until(condition, what):
    deadline = time.monotonic() + TIMEOUT
    while not condition():
        check(time.monotonic() < deadline, f"{what}: not within {TIMEOUT} s")
        time.sleep(0.02)


def pinned(url, port, addresses, connections):
    def by_session():
        sessions = defaultdict(list)
        for connection in list(connections):
            for method, session, _ in connection.requests:
                sessions[session].append((method, connection.address))
        return sessions

    def ended():
        return sum(("DELETE", a) in seen for seen in by_session().values() for a in addresses)

    sessions = [Session(url) for _ in range(SESSIONS)]
    for _ in range(2):
        for session in sessions:
            session.call()
    for session in sessions:
        session.send(None)
    wait_until(lambda: ended() == SESSIONS, "every session is ended at its server")

    hosts = Counter(host for one in connections for _, _, host in one.requests)
    check(hosts.keys() == {f"{NAME}:{port}"}, f"Host: {hosts}")
    names = Counter(one.sni for one in connections if one.handshake != "under way")
    check(names.keys() == {NAME}, f"SNI: {names}")
    failed = [one.handshake for one in connections if one.handshake not in ("done", "under way")]
    check(not failed, f"handshakes failed: {failed}")
    step(f"{names[NAME]} connections and {hosts.total()} requests, all of them for {NAME}")

    homes = Counter()
    wanted = ["DELETE", "initialize", "notifications/initialized", "tools/call", "tools/call"]
    seen = by_session()
    check(len(seen) == SESSIONS, f"the servers saw {len(seen)} sessions, not {SESSIONS}")
    for session, requests in seen.items():
        # The gateway lists the tools of some sessions, for all of them.
        got = sorted(method for method, _ in requests if method not in ("GET", "tools/list"))
        check(got == wanted, f"session {session}: {requests}")
        places = {address for _, address in requests}
        check(len(places) == 1, f"session {session} was at {places}")
        homes.update(places)
    check(homes.keys() == set(addresses), f"sessions by address: {homes}")
    step(f"each session stays at its address: {dict(homes)}")


def refused(url, connections, what):
    for _ in range(3):
        try:
            Session(url)
        except urllib.error.HTTPError as answer:
            error = json.load(answer)["error"]
            check((answer.code, error["code"]) == (503, -31002), f"{what}: {answer.code}, {error}")
            check("certificate" in error["message"], f"{what}: no reason in {error}")
        else:
            raise harness.Failure(f"{what}: a session was opened")

    def over():
        return [one for one in list(connections) if one.handshake != "under way"]

    wait_until(over, f"{what}: a handshake ends")
    names = {one.sni for one in over()}
    check(names == {NAME}, f"{what}: SNI: {names}")
    check(all(one.handshake != "done" for one in connections), f"{what}: a handshake went through")
    check(not any(one.requests for one in connections), f"{what}: it saw a request")
    step(f"{what} gets no request: {error['message']}")


def step(text):
    print(f"  ok {text}", flush=True)


def run():
    infos = socket.getaddrinfo(NAME, None, type=socket.SOCK_STREAM)
    addresses = sorted({info[4][0] for info in infos})
    if len(addresses) == 1:
        print(f"!! {NAME} is only {addresses[0]}: TLS with several addresses is NOT tested")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tls-")))
        trusted, stranger = Authority(directory, "trusted"), Authority(directory, "stranger")
        servers = {
            "good": serve(stack, addresses, trusted.certificate(NAME)),
            "misnamed": serve(stack, addresses, trusted.certificate("other.test")),
            "untrusted": serve(stack, addresses, stranger.certificate(NAME)),
        }
        config = directory / "bowline.toml"
        table = '[servers.{}]\nendpoints = ["https://{}:{}/mcp"]\n'
        tables = "".join(table.format(n, NAME, port) for n, (port, _) in servers.items())
        config.write_text('store.kind = "memory"\n' + tables)
        options = ["--config", config, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        command = [harness.binary("bowline"), "serve", *options]
        env = {"SSL_CERT_FILE": str(trusted.path)}
        gateway = stack.enter_context(harness.Process("bowline", command, env))
        url = {name: harness.url_of(gateway, f"/mcp/{name}") for name in servers}
        pinned(url["good"], servers["good"][0], addresses, servers["good"][1])
        known = {one["address"] for one in harness.endpoints(gateway, "good")}
        wanted = {f"{NAME}:{servers['good'][0]}@{address}" for address in addresses}
        check(known == wanted, f"endpoints: {known}, not {wanted}")
        step(f"the endpoints are {', '.join(sorted(known))}")
        refused(url["misnamed"], servers["misnamed"][1], "a certificate for another name")
        refused(url["untrusted"], servers["untrusted"][1], "a certificate of an unknown authority")
    return 0


if __name__ == "__main__":
    harness.main(run)
