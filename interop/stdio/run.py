"""Servers over stdio that are not ours, through the gateway.

- The scenarios of the official Python and TypeScript clients on server-everything.
- server-filesystem, whose process is killed between calls.
- server-everything and a server of the Python SDK, killed ten times under both clients: what may run twice
  must never fail, what may not may only end in -31001.

Usage: run.py [KILLS]
"""

import asyncio
import importlib.util
import json
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import harness

KILLS = 10
ALIVE_SECONDS = 1.5
STEP_SECONDS = 120



def servers(directory):
    """What an editor would write; `files` may use the directory."""
    node = str(harness.NODE)
    return {
        "everything": {"command": node, "args": [str(harness.EVERYTHING), "stdio", harness.MARK]},
        "files": {"command": node, "args": [str(harness.FILESYSTEM), directory]},
        "python": {"command": sys.executable, "args": [str(HERE / "server.py"), harness.MARK]},
    }



def module(name, path):
    """A script of another run, under a name that no other has."""
    spec = importlib.util.spec_from_file_location(name, HERE.parent / path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


python_client = module("python_client", "python/client.py")
kill_run = module("kill_run", "kill/run.py")


def gateway(stack, directory):
    """A gateway whose servers are commands."""
    config = Path(directory) / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers(directory)}))
    options = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "-c", config]
    command = [harness.binary("bowline"), "serve", *options]
    env = {"XDG_STATE_HOME": directory}
    return stack.enter_context(harness.Process("bowline", command, env=env))


def scenarios(gateway):
    url = harness.url_of(gateway, "/mcp/everything")
    # Over stdio nothing says to which call a server's request belongs: it comes on the stream of the GET.
    python_client.KNOWS_STREAMS = False
    print("  Python client", flush=True)
    asyncio.run(python_client.scenario(url, 404))
    print("  TypeScript client", flush=True)
    script = HERE.parent / "typescript/client.mjs"
    command = [harness.NODE, script, url, "404", "stdio"]
    with harness.Process("TypeScript", command) as process:
        code = process.wait(STEP_SECONDS)
        print("\n".join(process.lines), flush=True)
        if code != 0:
            raise harness.Failure(f"the TypeScript client: exit code {code}")


class Plain:
    """A client of one session that knows nothing but JSON-RPC."""

    def __init__(self, url):
        self._url = url
        self._headers = {
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
        }
        self._id = 0

    def send(self, message):
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        request = urllib.request.Request(self._url, data=body, headers=self._headers)
        with urllib.request.urlopen(request, timeout=STEP_SECONDS) as response:
            if session := response.headers.get("mcp-session-id"):
                self._headers["mcp-session-id"] = session
            text = response.read().decode()
        data = [line[5:] for line in text.splitlines() if line.startswith("data:")]
        return [json.loads(one) for one in data or [text] if one.strip()]

    def request(self, method, params):
        self._id += 1
        answers = self.send({"id": self._id, "method": method, "params": params})
        (answer,) = [one for one in answers if one.get("id") == self._id]
        if "result" not in answer:
            raise harness.Failure(f"{method}: {answer}")
        return answer["result"]

    def call(self, tool, arguments):
        result = self.request("tools/call", {"name": tool, "arguments": arguments})
        if result.get("isError"):
            raise harness.Failure(f"{tool}: {result}")
        return result["content"][0]["text"]


def files(gateway, directory):
    """Reads and writes a file, in one session over three processes."""
    client = Plain(harness.url_of(gateway, "/mcp/files"))
    info = {"name": "interop", "version": "0"}
    opening = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info}
    client.request("initialize", opening)
    client.send({"method": "notifications/initialized"})
    path = str(Path(directory) / "note.txt")
    for text in ["first\n", "second: grüße\n", "third\n"]:
        client.call("write_file", {"path": path, "content": text})
        if client.call("read_text_file", {"path": path}) != text:
            raise harness.Failure("files: another text was read than written")
        pids = harness.processes(harness.FILESYSTEM, directory)
        if harness.kill(harness.FILESYSTEM, directory) == 0:
            raise harness.Failure("files: no process to kill")
        # What is written to a process that dies just now may have run. It has closed its pipes for certain when
        # it is reaped; before that, it only has no command line any more.
        while any(Path(f"/proc/{pid}").exists() for pid in pids):
            time.sleep(0.01)
    print("  ok files", flush=True)


def recoveries(gateway, name):
    """How many sessions with a server were recovered."""
    url = harness.url_of(gateway, "/health").removesuffix("health") + "metrics"
    with urllib.request.urlopen(url, timeout=10) as response:
        text = response.read().decode()
    wanted = f'bowline_recoveries_total{{server="{name}",result="recovered"}} '
    return sum(int(line.split()[-1]) for line in text.splitlines() if line.startswith(wanted))


def killed(stack, gateway, name, program, kills):
    """Kills the processes of a server again and again, while clients call."""
    clients = kill_run.clients(stack, harness.url_of(gateway, f"/mcp/{name}"))
    count = 0
    for _ in range(kills):
        time.sleep(ALIVE_SECONDS)
        before = recoveries(gateway, name)
        killed_now = harness.kill(program)
        count += killed_now
        # A call is retried after one loss; on a busy machine the next may come before that.
        deadline = time.monotonic() + STEP_SECONDS
        while recoveries(gateway, name) < before + killed_now:
            if time.monotonic() > deadline:
                raise harness.Failure(f"{name}: not every killed process was replaced")
            time.sleep(0.05)
    time.sleep(ALIVE_SECONDS)
    print(f"  {name}: {count} processes killed", flush=True)
    return sum(kill_run.judge(who, kill_run.outcomes(client)) for who, client in clients.items())


def run():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else KILLS
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        through = gateway(stack, directory)
        programs = {name: one["args"] for name, one in servers(directory).items()}
        scenarios(through)
        files(through, directory)
        failures = 0
        for name in ["everything", "python"]:
            failures += killed(stack, through, name, programs[name][0], kills)
        if failures:
            raise harness.Failure(f"{failures} calls failed that must not")
        code = through.stop(STEP_SECONDS)
        left = [pid for words in programs.values() for pid in harness.processes(words[0], words[-1])]
        if code != 0 or left:
            raise harness.Failure(f"exit code {code}, processes left: {left}")
    print("  ok every safe call was answered, and no process is left")
    return 0


if __name__ == "__main__":
    harness.main(run)
