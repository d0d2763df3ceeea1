"""Kills replicas of server-everything in turn, while official clients call through the gateway.

Two replicas; the Python and the TypeScript client call in loops, each in two sessions: one lists the tools
again and again, the other once. Ten times a replica is killed with SIGKILL and started again on its port.
What may run twice (ping, tools/list, echo) must never fail, at the tenth kill as at the first; what may not
(toggle) may only end in -31001, outcome unknown.

Usage: run.py [KILLS]
"""

import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness

HERE = Path(__file__).resolve().parent
KILLS = 10
# How long a replica is dead, and how long both live before the next is killed.
DEAD_SECONDS = 0.5
ALIVE_SECONDS = 1.5
STOP_SECONDS = 60
SAFE = {"ping", "tools/list", "echo"}


class Replica:
    """A server-everything that comes back on the port it had."""

    def __init__(self, stack):
        self._stack = stack
        self._process = stack.enter_context(harness.everything_server(harness.free_port()))
        self.url = harness.url_of(self._process, "/mcp")

    def kill(self):
        self._process.kill()

    def start(self):
        port = urlsplit(self.url).port
        self._process = self._stack.enter_context(harness.everything_server(port))
        harness.url_of(self._process, "/mcp")


def clients(stack, url):
    commands = {
        "Python": [sys.executable, HERE / "client.py", url],
        "TypeScript": [harness.NODE, HERE / "client.mjs", url],
    }
    commands |= {f"{name}, one list": [*command, "once"] for name, command in commands.items()}
    started = {}
    for name, command in commands.items():
        started[name] = stack.enter_context(harness.Process(name, command))
    for client in started.values():
        client.wait_for_line("^ready$")
    return started


def outcomes(client):
    """Stops a client; what it counted."""
    code = client.stop(STOP_SECONDS)
    if code != 0:
        raise harness.Failure(f"{client.name}: exit code {code}")
    return json.loads(client.lines[-1])


def judge(name, counted):
    """Prints the table; the failures in it."""
    failures = 0
    for call, ends in sorted(counted.items()):
        kind = "safe" if call in SAFE else "unsafe"
        ok, unknown = ends.pop("ok", 0), ends.pop("-31001", 0)
        print(f"  {name:<20} {call:<11} {kind:<7} ok {ok:>5}  -31001 {unknown:>3}  other {sum(ends.values()):>3}")
        for text, count in ends.items():
            print(f"      {count} x {text}")
        if call in SAFE and ok == 0:
            print("      never answered")
            failures += 1
        failures += sum(ends.values()) + (unknown if call in SAFE else 0)
    return failures


def run():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else KILLS
    with ExitStack() as stack:
        replicas = [Replica(stack), Replica(stack)]
        urls = ",".join(replica.url for replica in replicas)
        gateway = stack.enter_context(harness.gateway("everything", urls))
        started = clients(stack, harness.url_of(gateway, "/mcp/everything"))
        for number in range(kills):
            time.sleep(ALIVE_SECONDS)
            replica = replicas[number % 2]
            replica.kill()
            time.sleep(DEAD_SECONDS)
            replica.start()
        time.sleep(ALIVE_SECONDS)
        print(f"  {kills} kills", flush=True)
        failures = sum(judge(name, outcomes(client)) for name, client in started.items())
    if failures:
        raise harness.Failure(f"{failures} calls failed that must not")
    print("  ok every safe call was answered, and no call failed but with -31001")
    return 0


if __name__ == "__main__":
    harness.main(run)
