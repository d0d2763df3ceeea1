"""Starting and stopping the programs an interop run needs."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path

INTEROP = Path(__file__).resolve().parent
ROOT = INTEROP.parent
NODE = INTEROP / "node_modules/.bin/node"
PACKAGES = INTEROP / "node_modules/@modelcontextprotocol"
CONFORMANCE = PACKAGES / "conformance/dist/index.js"
EVERYTHING = PACKAGES / "server-everything/dist/index.js"
FILESYSTEM = PACKAGES / "server-filesystem/dist/index.js"

# A word for the command lines of servers, by which a run tells its own from those of the runs beside it.
MARK = f"run-{os.getpid()}"

START_SECONDS = 30
STOP_SECONDS = 5
# What is shown of a long line.
LINE = 1000


class Failure(Exception):
    """Something that fails the run and needs no traceback."""


class Process:
    """A program in its own process group, with its output (both streams) kept.

    Leaving the `with` block ends the whole group.
    """

    def __init__(self, name, command, env=None):
        self.name = name
        self.lines = []
        self._changed = threading.Condition()
        self._ended = False
        self._process = subprocess.Popen(
            [str(part) for part in command],
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self._process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def wait_for_line(self, pattern, timeout=START_SECONDS):
        """The first match of `pattern` in any line printed so far or from now on."""
        return self.wait_for(lambda line: re.search(pattern, line), timeout, f"no line like {pattern!r}")

    def wait_for(self, what, timeout, failure, after=0):
        """The first value of `what` that is not false, for any line behind the first `after`."""

        def found():
            return next((value for line in self.lines[after:] if (value := what(line))), None)

        with self._changed:
            self._changed.wait_for(lambda: self._ended or found(), timeout)
            if value := found():
                return value
            reason = "it ended" if self._ended else f"nothing in {timeout} s"
        raise Failure(f"{self.name}: {failure} ({reason})")

    def wait(self, timeout):
        """The exit code; `Failure` if it runs for longer than `timeout` seconds."""
        try:
            return self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self.name}: still running after {timeout} s") from None

    def stop(self, timeout):
        """Asks it to end; the exit code, once its last line is here."""
        self._signal_group(signal.SIGTERM)
        code = self.wait(timeout)
        with self._changed:
            self._changed.wait_for(lambda: self._ended, timeout)
        return code

    def signal(self, number):
        """Sends it a signal."""
        self._process.send_signal(number)

    def kill(self):
        """Ends it without a warning."""
        self._signal_group(signal.SIGKILL)
        self._process.wait()

    def _signal_group(self, number):
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            pass

    def __enter__(self):
        return self

    def __exit__(self, kind, _error, _traceback):
        self._signal_group(signal.SIGTERM)
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            pass
        # Also when the leader has gone: it may have left children behind.
        self._signal_group(signal.SIGKILL)
        self._process.wait()
        if kind is not None:
            print(f"--- last output of {self.name}", file=sys.stderr)
            print("\n".join(line[:LINE] for line in self.lines[-40:]), file=sys.stderr)


@cache
def target_directory():
    metadata = subprocess.run(
        ["cargo", "metadata", "--no-deps", "--format-version", "1"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    )
    return Path(json.loads(metadata.stdout)["target_directory"])


def binary(name):
    path = target_directory() / "debug" / name
    if not path.exists():
        raise Failure(f"{path} does not exist; run: cargo build --workspace --bins")
    return path


def url_of(process, path):
    return process.wait_for_line(rf"https?://127\.0\.0\.1:\d+{re.escape(path)}(?![\w/])").group()


def fixture_server(name, *options):
    """A replica of the fixture server; its tool `whoami` answers `name`. It logs its sessions."""
    command = [binary("fixture-server"), "--listen", "127.0.0.1:0", "--name", name, *options]
    return Process(f"fixture-server {name}", command, env={"RUST_LOG": "info"})


def free_port(*addresses):
    """A port that stays free while nobody listens on it: the system hands out none of these."""
    while True:
        port = random.randrange(10_000, 32_000)
        with ExitStack() as stack:
            try:
                for address in addresses or ["127.0.0.1"]:
                    stack.enter_context(socket.create_server((address, port)))
            except OSError:
                continue
            return port


def redis_server():
    """An empty Redis; its URL is in `url`."""
    port = free_port()
    options = ["--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    redis = Process("redis-server", ["redis-server", *options])
    redis.wait_for_line("Ready to accept connections")
    redis.url = f"redis://127.0.0.1:{port}"
    return redis


def everything_server(port=0):
    return Process(
        "server-everything",
        [NODE, "--require", INTEROP / "loopback.cjs", EVERYTHING, "streamableHttp"],
        env={"PORT": str(port)},
    )


def processes(program, mark=MARK):
    """The processes that run a program and have the mark among their words."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words[1:2] == [str(program)] and mark in words:
            found.append(int(path.parent.name))
    return found


def kill(program, mark=MARK):
    """Kills them; how many there were."""
    pids = processes(program, mark)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return len(pids)


def gateway(name, upstream):
    """The gateway in front of one server, whose replicas' URLs are separated by commas.

    Its endpoint is /mcp/`name`.
    """
    options = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    options += ["--server", f"{name}={upstream}"]
    return Process("bowline", [binary("bowline"), "serve", *options])


@contextmanager
def configured_gateway(text):
    """The gateway with this configuration file. Its sessions are in memory."""
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory) / "bowline.toml"
        config.write_text(f'[store]\nkind = "memory"\n{text}')
        options = ["--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "-c", config]
        env = {"XDG_STATE_HOME": directory}
        with Process("bowline", [binary("bowline"), "serve", *options], env) as gateway:
            yield gateway


def command_gateway(name, command):
    """The gateway in front of one server that is a command."""
    words = json.dumps([str(word) for word in command])
    return configured_gateway(f"[servers.{name}]\ncommand = {words}\n")


def origin_of(gateway):
    """Where a gateway listens."""
    return gateway.wait_for_line(r"is listening on (https?://127\.0\.0\.1:\d+)").group(1)


def endpoints(gateway, name):
    """What the gateway's operator is told of a server's endpoints."""
    with urllib.request.urlopen(url_of(gateway, "/health"), timeout=10) as response:
        return json.load(response)["servers"][name]["endpoints"]


def client_run(scenario):
    """A client's scenario on server-everything, direct and, unless told not to, through the gateway.

    `scenario` takes a URL and the status that an ended session has there.
    """
    with everything_server() as server:
        url = url_of(server, "/mcp")
        print("direct", flush=True)
        # server-everything answers 400 where the specification wants 404.
        scenario(url, 400)
        if "--direct" in sys.argv[1:]:
            return 0
        with gateway("everything", url) as through:
            print("through the gateway", flush=True)
            scenario(url_of(through, "/mcp/everything"), 404)
    return 0


def main(run):
    """Runs `run`, which returns an exit code, so that every way out stops the children."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _frame: sys.exit(128 + received))
    try:
        sys.exit(run())
    except Failure as failure:
        print(f"failed: {failure}", file=sys.stderr)
        sys.exit(1)
