"""Servers over HTTP+SSE (2024-11-05) that are not ours, through the gateway.

- The scenarios of the official Python and TypeScript clients on server-everything as `sse`.
- server-everything and a server of the Python SDK, killed again and again under both clients: what may run twice must
  never fail, what may not may only end in -31001.

Usage: run.py [KILLS]
"""

import asyncio
import importlib.util
import json
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import harness

KILLS = 5
ALIVE_SECONDS = 1.5
DEAD_SECONDS = 0.5
STEP_SECONDS = 120


def module(name, path):
    """A script of another run, under a name that no other has."""
    spec = importlib.util.spec_from_file_location(name, HERE.parent / path)
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


python_client = module("python_client", "python/client.py")
kill_run = module("kill_run", "kill/run.py")


def everything(port):
    command = [harness.NODE, "--require", harness.INTEROP / "loopback.cjs", harness.EVERYTHING, "sse"]
    return harness.Process("server-everything sse", command, env={"PORT": str(port)})


def python(port):
    return harness.Process("python sse", [sys.executable, HERE.parent / "stdio/server.py", "sse", str(port)])


class Server:
    """A server that comes back on the port it had."""

    def __init__(self, stack, start):
        self._stack, self._start = stack, start
        self._process = None
        self.url = self._begin(harness.free_port()) + "/sse"

    def _begin(self, port):
        self._process = self._stack.enter_context(self._start(port))
        return self._process.wait_for_line(r"http://127\.0\.0\.1:\d+").group()

    def restart(self):
        self._process.kill()
        time.sleep(DEAD_SECONDS)
        self._begin(urlsplit(self.url).port)


def gateway(stack, directory, servers):
    """A gateway that is told nothing of the transport, but for one server."""
    written = {name: {"url": server.url} for name, server in servers.items()}
    written["pinned"] = {"type": "sse", "url": servers["everything"].url}
    config = Path(directory) / "mcp.json"
    config.write_text(json.dumps({"mcpServers": written}))
    options = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "-c", config]
    command = [harness.binary("bowline"), "serve", *options]
    env = {"XDG_STATE_HOME": directory}
    return stack.enter_context(harness.Process("bowline", command, env=env))


def scenarios(gateway):
    # Over one stream nothing says to which call a server's request belongs: it comes on the stream of the GET.
    python_client.KNOWS_STREAMS = False
    print("  Python client", flush=True)
    asyncio.run(python_client.scenario(harness.url_of(gateway, "/mcp/everything"), 404))
    print("  TypeScript client", flush=True)
    script = HERE.parent / "typescript/client.mjs"
    command = [harness.NODE, script, harness.url_of(gateway, "/mcp/pinned"), "404", "stdio"]
    with harness.Process("TypeScript", command) as process:
        code = process.wait(STEP_SECONDS)
        print("\n".join(process.lines), flush=True)
        if code != 0:
            raise harness.Failure(f"the TypeScript client: exit code {code}")


def killed(stack, gateway, name, server, kills):
    """Kills a server again and again, while clients call."""
    clients = kill_run.clients(stack, harness.url_of(gateway, f"/mcp/{name}"))
    for _ in range(kills):
        time.sleep(ALIVE_SECONDS)
        server.restart()
    time.sleep(ALIVE_SECONDS)
    print(f"  {name}: killed {kills} times", flush=True)
    return sum(kill_run.judge(who, kill_run.outcomes(client)) for who, client in clients.items())


def run():
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else KILLS
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        servers = {"everything": Server(stack, everything), "python": Server(stack, python)}
        through = gateway(stack, directory, servers)
        scenarios(through)
        failures = 0
        for name, server in servers.items():
            failures += killed(stack, through, name, server, kills)
        if failures:
            raise harness.Failure(f"{failures} calls failed that must not")
        code = through.stop(STEP_SECONDS)
        if code != 0:
            raise harness.Failure(f"the gateway: exit code {code}")
    print("  ok every safe call was answered, and no call failed but with -31001")
    return 0


if __name__ == "__main__":
    harness.main(run)
