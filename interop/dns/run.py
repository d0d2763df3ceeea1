"""Puts the gateway in front of a name with several addresses, and changes them while it runs.

The name is in an /etc/hosts of the test's own, which only this process and its children see: the
script runs itself again in a mount namespace, for which it must be root or allowed to become root
in a namespace. Where it may not, it says so and passes.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness

REPLICA = Path(__file__).resolve().parent / "replica.py"
NAME = "replicas.test"
FIRST, SECOND, THIRD = "127.0.0.2", "127.0.0.3", "127.0.0.4"
VERSION = "2025-11-25"
# How often names are looked up, and how long a change may take: that, and some for a busy machine.
EVERY = 1
PATIENCE = EVERY + 4
# So long that only a failure can be why a name is looked up before.
SELDOM = 60
IN_NAMESPACE = "BOWLINE_DNS_TEST"


class Hosts:
    """An /etc/hosts in which `NAME` has the addresses that it is told."""

    SIZE = 1024

    def __init__(self, directory):
        self.path = Path(directory) / "hosts"
        self.path.touch()
        switch = Path(directory) / "nsswitch.conf"
        switch.write_text("hosts: files\n")
        mount(self.path, "/etc/hosts")
        mount(switch, "/etc/nsswitch.conf")

    def set(self, *addresses):
        lines = ["127.0.0.1 localhost", *(f"{address} {NAME}" for address in addresses)]
        # In one write and always of one size, so that nobody can read a half.
        content = "".join(f"{line}\n" for line in lines).ljust(self.SIZE - 1) + "\n"
        with open(self.path, "r+b", buffering=0) as file:
            file.write(content.encode())
        infos = socket.getaddrinfo(NAME, 80, type=socket.SOCK_STREAM)
        found = {info[4][0] for info in infos}
        check(found == set(addresses), f"{NAME} has {found}, not {addresses}")


def mount(source, target):
    subprocess.run(["mount", "--bind", source, target], check=True)


class Session:
    """One MCP session through the gateway, and what its replica is called."""

    def __init__(self, url):
        self.url = url
        self.id = None
        client = {"name": "dns", "version": "0"}
        params = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": client}
        result = self.post({"id": 1, "method": "initialize", "params": params})
        self.post({"method": "notifications/initialized"})
        self.calls = 0
        self.replica = self.call("whoami")
        check(result["serverInfo"]["name"] == self.replica, f"opened on another: {result}")

    def post(self, message):
        headers = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        if self.id:
            headers |= {"mcp-session-id": self.id, "mcp-protocol-version": VERSION}
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        request = urllib.request.Request(self.url, body, headers)
        with urllib.request.urlopen(request, timeout=10) as response:
            self.id = self.id or response.headers["mcp-session-id"]
            text = response.read()
        return json.loads(text)["result"] if text else None

    def call(self, tool):
        self.calls += 1
        message = {"id": self.calls + 1, "method": "tools/call", "params": {"name": tool}}
        return self.post(message)["content"][0]["text"]

    def check_pinned(self):
        """The replica is the same, and so is the session in it."""
        check(self.call("whoami") == self.replica, "the session moved")
        check(self.call("count") == str(self.calls), "the session is another")


class Gateway:
    def __init__(self, stack, directory, port, every, key="endpoints"):
        config = Path(directory) / f"bowline-{key}-{every}.toml"
        url = json.dumps(f"http://{NAME}:{port}/mcp")
        config.write_text(
            f'store = {{ kind = "file", path = "{config}.store" }}\n[servers.replicas]\n'
            f'{key} = {url if key == "url" else f"[{url}]"}\nhealth = {{ every = "{every}s" }}\n'
        )
        options = ["--config", config, "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
        command = [harness.binary("bowline"), "serve", *options]
        process = stack.enter_context(harness.Process("bowline", command))
        self.url = harness.url_of(process, "/mcp/replicas")
        self._process = process

    def open(self, count):
        return [Session(self.url) for _ in range(count)]

    def health(self):
        """The endpoints' status by address."""
        status = {}
        for endpoint in harness.endpoints(self._process, "replicas"):
            [address] = [one for one in (FIRST, SECOND, THIRD) if one in endpoint["address"]]
            status[address] = endpoint["status"]
        return status

    def wait_for(self, expected, timeout=PATIENCE):
        started = time.monotonic()
        while (health := self.health()) != expected:
            if time.monotonic() - started > timeout:
                raise harness.Failure(f"/health says {health} after {timeout} s, not {expected}")
            time.sleep(0.05)
        return time.monotonic() - started


def check(truth, what):
    if not truth:
        raise harness.Failure(what)


def replicas_of(sessions):
    return Counter(session.replica for session in sessions)


def replica(stack, address, port):
    """A replica whose name is its address."""
    command = [sys.executable, REPLICA, address, address, port, NAME]
    process = stack.enter_context(harness.Process(f"replica {address}", command))
    process.wait_for_line("listening")
    return process


def step(text):
    print(f"  ok {text}", flush=True)


def spread(gateway):
    gateway.wait_for({FIRST: "ok", SECOND: "ok"})
    sessions = gateway.open(20)
    # The one with fewer sessions is taken, so with two there is no luck in it.
    check(replicas_of(sessions) == {FIRST: 10, SECOND: 10}, f"spread: {replicas_of(sessions)}")
    for _ in range(3):
        for session in sessions:
            session.check_pinned()
    step("sessions are spread over a name's addresses, and stay")
    return sessions


def added(gateway, hosts, sessions):
    hosts.set(FIRST, SECOND, THIRD)
    took = gateway.wait_for({FIRST: "ok", SECOND: "ok", THIRD: "ok"})
    new = gateway.open(20)
    check(replicas_of(new)[THIRD] > 0, f"nothing went to the new one: {replicas_of(new)}")
    sessions += new
    for session in sessions:
        session.check_pinned()
    step(f"an added address takes sessions (known after {took:.1f} s)")


def removed(gateway, hosts, sessions):
    hosts.set(FIRST, THIRD)
    took = gateway.wait_for({FIRST: "ok", SECOND: "draining", THIRD: "ok"})
    new = gateway.open(10)
    check(replicas_of(new)[SECOND] == 0, f"a new session went to it: {replicas_of(new)}")
    sessions += new
    for session in sessions:
        session.check_pinned()
    step(f"a removed address keeps its sessions and takes no more (known after {took:.1f} s)")


def unresolvable(gateway, hosts, sessions):
    before = gateway.health()
    try:
        hosts.set()
    except socket.gaierror:
        pass
    time.sleep(2 * EVERY)
    check(gateway.health() == before, f"an outage of the resolver changed {gateway.health()}")
    for session in sessions + gateway.open(4):
        session.check_pinned()
    step("a name that cannot be looked up keeps its addresses")
    hosts.set(FIRST, THIRD)


def killed(directory, hosts, port, dying):
    """With names looked up so seldom that only the failure can be the reason for a look."""
    hosts.set(FIRST, SECOND)
    with ExitStack() as stack:
        gateway = Gateway(stack, directory, port, SELDOM)
        gateway.wait_for({FIRST: "ok", SECOND: "ok"})
        sessions = gateway.open(4)
        hosts.set(FIRST, THIRD)
        time.sleep(2 * EVERY)
        check(THIRD not in gateway.health(), "the name was looked up without a reason")
        dying.kill()
        [lost, *_] = [session for session in sessions if session.replica == SECOND]
        answer = lost.call("whoami")
        check(answer in (FIRST, THIRD), f"a session of a dead replica was answered by {answer}")
        took = gateway.wait_for({FIRST: "ok", SECOND: "ejected", THIRD: "ok"})
        new = gateway.open(6)
        check(replicas_of(new).keys() == {FIRST, THIRD}, f"new ones: {replicas_of(new)}")
        for session in new + [one for one in sessions if one.replica == FIRST]:
            session.check_pinned()
        step(f"a dead replica is ejected and its name looked up at once ({took:.1f} s)")


def check_pinned(sessions):
    """Also on new connections: when this returns, none is kept any more."""
    for _ in range(2):
        for session in sessions:
            session.check_pinned()
        # They are kept for four seconds.
        time.sleep(5)


def by_url(directory, hosts, port, dying):
    """The name in a `url`: one endpoint, and each session stays at its address for as long as the name has it."""

    def gateway(stack):
        return Gateway(stack, directory, port, EVERY, key="url")

    hosts.set(FIRST)
    with ExitStack() as stack:
        before = gateway(stack)
        sessions = before.open(3)
        check(replicas_of(sessions) == {FIRST: 3}, f"opened at {replicas_of(sessions)}")
        hosts.set(SECOND, FIRST)
        check_pinned(sessions)
        new = before.open(3)
        check(replicas_of(new).keys() == {SECOND}, f"new ones: {replicas_of(new)}")
        hosts.set(FIRST, SECOND)
        check_pinned(sessions + new)
        step("sessions of a `url` stay at their address, whatever the order of a name's addresses")
    with ExitStack() as stack:
        after = gateway(stack)
        for session in sessions + new:
            session.url = after.url
            session.check_pinned()
        step("and so they do when the gateway was started again")
        dying.kill()
        check(new[0].call("whoami") == FIRST, "a session of a dead replica was not moved")
        for session in sessions:
            session.check_pinned()
        step("a session whose address is dead goes on at another")
        hosts.set(THIRD)
        time.sleep(5)
        check(sessions[0].call("whoami") == THIRD, "an address that the name no longer has was used")
        step("a name that moved is followed at once")


def scenario(directory):
    hosts = Hosts(directory)
    hosts.set(FIRST, SECOND)
    port = harness.free_port(FIRST, SECOND, THIRD)
    with ExitStack() as stack:
        replica(stack, FIRST, port)
        second = replica(stack, SECOND, port)
        replica(stack, THIRD, port)
        with ExitStack() as first_gateway:
            gateway = Gateway(first_gateway, directory, port, EVERY)
            sessions = spread(gateway)
            added(gateway, hosts, sessions)
            removed(gateway, hosts, sessions)
            unresolvable(gateway, hosts, sessions)
        killed(directory, hosts, port, second)
        by_url(directory, hosts, port, replica(stack, SECOND, port))
    return 0


def namespace():
    """The command that runs a program with mounts of its own; `None` where that is forbidden."""
    for command in (["unshare", "--mount"], ["unshare", "--mount", "--map-root-user"]):
        try:
            tried = subprocess.run(
                [*command, "mount", "--bind", "/etc/hosts", "/etc/hosts"], capture_output=True
            )
        except FileNotFoundError:
            return None
        if tried.returncode == 0:
            return command
    return None


def run():
    if IN_NAMESPACE in os.environ:
        with tempfile.TemporaryDirectory(prefix="dns-") as directory:
            return scenario(directory)
    if (command := namespace()) is None:
        print("!! not root, or no mount namespaces: names with several addresses are NOT tested")
        return 0
    again = [*command, sys.executable, __file__]
    # In this process's place, so that whoever stops it stops the test.
    os.execvpe(again[0], again, {**os.environ, IN_NAMESPACE: "1"})


if __name__ == "__main__":
    harness.main(run)
