"""Ten servers as one, at `/mcp`, for clients that are not ours.

- server-everything over three transports, server-filesystem, servers of the Python and TypeScript SDKs; one that hangs,
  one that refuses, one of fastmcp that comes, goes and comes again, and one behind oidc-provider.
- The Python and TypeScript clients and the Inspector see the right union at every moment, and lists ask nobody to sign
  in. Members that are killed are there afterwards, and calls of them are answered.
- All features through it, on every front (features.py); the scenarios of the official clients on unions with bare
  names.
- A server that says odd things, and things in another's name, beside one that does not (hostile.py).

Usage: run.py
"""

import asyncio
import json
import signal
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import features
import harness
import hostile
import servers
from servers import LATER, LIST_SECONDS, LIVE, ORDER

STEP_SECONDS = 60
# What a busy machine may add.
SLACK_SECONDS = 3
# What one page of a union has.
PAGE = 1000


class Moment:
    """What a client has to see: the servers that are there, and those that are not, with a state and why."""

    def __init__(self, there, missing):
        self._there, self._missing = there, missing

    def names(self, alone):
        """The names of all tools. `alone` is what each server has."""
        names = []
        for server in sorted(alone, key=ORDER.index):
            state, reasons = self._missing.get(server, (None, ()))
            if server in self._there or state == "stale":
                names += [f"{server}__{tool}" for tool in alone[server]]
            if "sign_in_needed" in reasons:
                names.append(f"{server}__sign_in")
        return names

    def difference(self, seen, alone):
        """How it differs from what was seen; nothing if it does not."""
        wanted, found = self.names(alone), seen["names"]
        without, more = set(wanted) - set(found), set(found) - set(wanted)
        if without or more:
            return f"without {sorted(without)[:9]}, with {sorted(more)[:9]}, missing {seen['missing']}"
        if wanted != found:
            return "another order"
        if seen["missing"].keys() != self._missing.keys():
            return f"missing {seen['missing']}"
        for server, (state, reason) in seen["missing"].items():
            if state != self._missing[server][0] or reason not in self._missing[server][1]:
                return f"{server} is {state}: {reason}"
        return None


UNAVAILABLE = ("upstream_unavailable",)
# Too late for a list, and later not to be opened, or recovered, at all.
SLOW = ("deadline", *UNAVAILABLE)
AWAY = {"hanging": ("absent", SLOW), "refusing": ("absent", UNAVAILABLE)}
SIGNED_OUT = {**AWAY, "gated": ("absent", ("sign_in_needed",))}
FIRST = Moment(LIVE, {**SIGNED_OUT, "late": ("absent", UNAVAILABLE)})
LATE_CAME = Moment([*LIVE, "late"], SIGNED_OUT)
LATE_WENT = Moment(LIVE, {**SIGNED_OUT, "late": ("stale", SLOW)})
SIGNED_IN = Moment([*LIVE, "late", "gated"], AWAY)


class Watcher:
    """A client that lists again and again, and what it saw."""

    def __init__(self, stack, name, command, origin):
        self.name = name
        self._process = stack.enter_context(harness.Process(name, [*command, origin, *LIVE]))
        alone = self._process.wait_for_line(r'^\{"alone".*').group()
        self.alone = {**json.loads(alone)["alone"], **LATER}
        self._allowed, self._past = [], 0

    def sees(self, moment):
        """Waits until the moment is what it sees. What it saw before the last one does not count."""
        self._allowed.append(moment)
        is_moment = lambda line: line.startswith('{"names"') and not moment.difference(json.loads(line), self.alone)
        try:
            self._process.wait_for(is_moment, STEP_SECONDS, "another union", after=self._past)
        except harness.Failure as failure:
            raise harness.Failure(f"{failure}: {moment.difference(self._lists()[-1], self.alone)}") from None
        self._past = len(self._process.lines)

    def look(self):
        """Has it list again, without being told of a change."""
        self._process.signal(signal.SIGUSR1)

    def _lists(self):
        return [json.loads(line) for line in self._process.lines if line.startswith('{"names"')]

    def judge(self):
        """Fails unless each of its lists was that of a moment, in time, and nothing else went wrong."""
        lists = self._lists()
        for seen in lists:
            differences = [moment.difference(seen, self.alone) for moment in self._allowed]
            if all(differences):
                raise harness.Failure(f"{self.name}: a list of no moment: {differences}")
            if seen["seconds"] > LIST_SECONDS + SLACK_SECONDS:
                raise harness.Failure(f"{self.name}: a list took {seen['seconds']} s")
        if wrong := [line for line in self._process.lines if line.startswith("wrong")]:
            raise harness.Failure(f"{self.name}: {wrong}")
        opened = self._process.wait_for_line(r"^opened in ([\d.]+) s").group(1)
        if float(opened) > SLACK_SECONDS:
            raise harness.Failure(f"{self.name}: initialize took {opened} s")
        longest = max(seen["seconds"] for seen in lists)
        print(f"  {self.name}: opened in {opened} s; {len(lists)} lists, the longest took {longest:.1f} s", flush=True)


def inspector(origin, moment, alone):
    """The Inspector lists anew and shows the first page."""
    page = features.inspector(f"{origin}/mcp", "--method", "tools/list")
    names = [tool["name"] for tool in page["tools"]]
    said = page["_meta"]["bowline/servers"]
    missing = {server: [one["state"], one.get("reason")] for server, one in said.items()}
    # The rest is on the second page.
    names += moment.names(alone)[PAGE:]
    if difference := moment.difference({"names": names, "missing": missing}, alone):
        raise harness.Failure(f"the Inspector: {difference}")


class Moments:
    """Clients that watch, and the Inspector, which looks."""

    def __init__(self, stack, origin):
        commands = {
            "Python": [sys.executable, HERE / "watch.py"],
            "TypeScript": [harness.NODE, HERE / "watch.mjs"],
        }
        self._origin, self._began = origin, time.monotonic()
        self._watchers = [Watcher(stack, name, command, origin) for name, command in commands.items()]
        self._alone = {**features.names_alone(origin, LIVE), **LATER}

    def see(self, what, moment, look=False):
        """Fails unless all of them see the moment, after they were told of a change or because they look."""
        for watcher in self._watchers if look else ():
            watcher.look()
        for watcher in self._watchers:
            watcher.sees(moment)
        inspector(self._origin, moment, self._alone)
        print(f"  ok {what} ({time.monotonic() - self._began:.0f} s)", flush=True)

    def judge(self):
        for watcher in self._watchers:
            watcher.judge()


def comings_and_goings(ten, moments):
    """Servers come, go and are killed."""
    moments.see("at first", FIRST)
    ten.late.start()
    moments.see("a server came", LATE_CAME)
    ten.late.kill()
    moments.see("it went", LATE_WENT, look=True)
    ten.late.start()
    moments.see("and came again", LATE_CAME)
    ten.http.kill()
    ten.http.start()
    if harness.kill(harness.EVERYTHING) == 0:
        raise harness.Failure("no process of ev-stdio to kill")
    moments.see("two were killed", LATE_CAME, look=True)


def scenarios(origin):
    """What the official clients do with one server-everything, on unions with bare names, all at once."""
    failures = []

    def python(union, knows_streams):
        client = features.module(f"client_{union}", "python/client.py")
        client.SERVER, client.KNOWS_STREAMS = "bowline", knows_streams
        client.limited = quietly
        asyncio.run(client.scenario(f"{origin}/mcp/{union}", 404))

    def typescript(union, knows_streams):
        kind = "http" if knows_streams else "stdio"
        script = HERE.parent / "typescript/client.mjs"
        command = [harness.NODE, script, f"{origin}/mcp/{union}", "404", kind, "bowline"]
        with harness.Process(f"TypeScript on {union}", command) as process:
            if process.wait(STEP_SECONDS) != 0:
                raise harness.Failure("\n".join(process.lines))

    def attempt(client, union, knows_streams):
        try:
            client(union, knows_streams)
            print(f"  ok {client.__name__} on {servers.UNIONS[union]}", flush=True)
        except BaseException as error:  # noqa: BLE001: whatever it is, it fails the run
            failures.append(f"{client.__name__} on {union}: {error!r}")

    doing = [
        threading.Thread(target=attempt, args=(client, union, union == "plain"))
        for client in (python, typescript)
        for union in servers.UNIONS
    ]
    for thread in doing:
        thread.start()
    for thread in doing:
        thread.join()
    if failures:
        raise harness.Failure("; ".join(failures))


async def quietly(name, step):
    """Limits a step of a scenario. Nothing is printed but failures."""
    try:
        await asyncio.wait_for(step, STEP_SECONDS)
    except BaseException:
        print(f"  FAILED {name}", flush=True)
        raise


def run():
    print("a hostile server", flush=True)
    hostile.run()
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        ten = servers.Servers(stack, directory)
        gateway = stack.enter_context(harness.configured_gateway(ten.config()))
        origin = harness.origin_of(gateway)
        print("moments", flush=True)
        moments = Moments(stack, origin)
        comings_and_goings(ten, moments)
        features.sign_in(origin)
        print("features", flush=True)
        features.run(origin, ten.config())
        print("bare names", flush=True)
        scenarios(origin)
        # Clients that did not sign in themselves get the tools within half a minute.
        moments.see("somebody signed in", SIGNED_IN)
        moments.judge()
        code = gateway.stop(STEP_SECONDS)
        if code != 0:
            raise harness.Failure(f"the gateway: exit code {code}")
    return 0


if __name__ == "__main__":
    harness.main(run)
