"""What the runs of `bowline connect` share: the server, the clients, and what they counted."""

import json
import os
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness

HERE = Path(__file__).resolve().parent
STOP_SECONDS = 200
# What may run twice must never fail.
SAFE = {"ping", "tools/list", "echo", "slow"}


class Server:
    """server.py, which comes back on the port it had."""

    def __init__(self, stack, host="127.0.0.1", prefix=()):
        self._stack, self._host, self._prefix = stack, host, prefix
        self.tally = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "tally"
        self.process = None
        self.url = f"http://{host}:{harness.free_port()}/mcp"
        self.start()

    def start(self):
        port = urlsplit(self.url).port
        command = [*self._prefix, sys.executable, HERE / "server.py", self._host, port, self.tally]
        self.process = self._stack.enter_context(harness.Process("server", command))
        self.url = json.loads(self.process.wait_for_line(r"^\{.*\}$").group())["url"]

    def executions(self):
        return Counter(self.tally.read_text().split())


class Everything:
    """server-everything on streamable HTTP, which comes back on the port it had."""

    def __init__(self, stack):
        self._stack = stack
        self.process = None
        self.url = f"http://127.0.0.1:{harness.free_port()}/mcp"
        self.start()

    def start(self):
        server = harness.everything_server(urlsplit(self.url).port)
        self.process = self._stack.enter_context(server)
        self.url = harness.url_of(self.process, "/mcp")


def bowline(*words):
    return [harness.binary("bowline"), "connect", *words]


def state(stack):
    """The environment of a person of its own."""
    directory = stack.enter_context(tempfile.TemporaryDirectory())
    return {"XDG_STATE_HOME": directory, "XDG_CONFIG_HOME": directory}


def clients(stack, command, env, prefix=()):
    """Both official clients, each with a bridge of its own, once they are ready."""
    kinds = {
        "Python": [sys.executable, HERE / "client.py"],
        "TypeScript": [harness.NODE, HERE / "client.mjs"],
    }
    started = {
        name: stack.enter_context(harness.Process(name, [*prefix, *kind, *command], env))
        for name, kind in kinds.items()
    }
    for client in started.values():
        client.wait_for_line("^ready$", 60)
    return started


def rounds(started, count=2):
    """Waits until every client has done this many more rounds of all its calls, without one under way."""
    for client in started.values():
        done = [int(line.split()[1]) for line in list(client.lines) if line.startswith("round ")]
        last = max(done, default=0)
        client.wait_for_line(rf"^round {last + count}$", STOP_SECONDS)


def stop(name, client):
    """Stops a client, which then ends its bridge; what it counted."""
    # Only itself: its bridge is in the same group.
    os.kill(client._process.pid, signal.SIGTERM)
    line = client.wait_for_line(r"^\{.*\}$", STOP_SECONDS).group()
    code = client.wait(STOP_SECONDS)
    if code != 0:
        raise harness.Failure(f"{name}: exit code {code}")
    return json.loads(line)


def judge(started, server=None):
    """Stops the clients, prints what they counted, and fails if anything is there that must not be."""
    failures = 0
    ended = {name: stop(name, client) for name, client in started.items()}
    executions = server.executions() if server else None
    for name, counted in ended.items():
        for call, ends in sorted(counted["outcomes"].items()):
            ok, unknown = ends.pop("ok", 0), ends.pop("-31001", 0)
            kind = "safe" if call in SAFE else "unsafe"
            other = sum(ends.values())
            print(f"  {name:<11} {call:<11} {kind:<7} ok {ok:>5}  -31001 {unknown:>3}  other {other:>3}")
            for text, count in ends.items():
                print(f"      {count} x {text}")
            failures += other + (unknown if call in SAFE else 0) + (ok == 0)
        print(f"  {name:<11} longest call {counted['longest']} s", flush=True)
        if executions is not None:
            twice = [key for key, count in executions.items() if count > 1]
            missing = [key for key in counted["bumped"] if executions[key] != 1]
            if twice or missing:
                raise harness.Failure(f"ran twice: {twice}; answered and not run: {missing}")
    if failures:
        raise harness.Failure(f"{failures} calls failed that must not")
