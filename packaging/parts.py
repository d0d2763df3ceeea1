"""What every package needs: where things are, running programs, and the first tool call through a package."""

import json
import os
import queue
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SECONDS = 60
# Linux dumps no program that its user cannot read, from its first moment on: docs/security.md, "Servers that are
# commands".
PROGRAM_MODE = 0o711
INITIALIZE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "package-check", "version": "0"},
}


class Failure(Exception):
    """Something that fails the run and needs no traceback."""


@dataclass(frozen=True)
class Job:
    """What is packaged, and where to."""

    version: str
    # The program, stripped; every package holds this file.
    binary: Path
    # Man pages and completions.
    manual: Path
    output: Path
    # A directory that is removed at the end.
    scratch: Path
    # Nothing that takes minutes or the network.
    quick: bool

    def directory(self, name):
        """An empty directory."""
        path = self.scratch / name
        shutil.rmtree(path, ignore_errors=True)
        path.mkdir(parents=True)
        return path


def check_mode(package, program):
    """That the program is installed with that mode."""
    if (mode := program.stat().st_mode & 0o777) != PROGRAM_MODE:
        raise Failure(f"{package}: the program has mode {mode:o}")


def run(*command, **options):
    """What a program prints; `Failure` with all that it said if it fails."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", **options
    )
    if done.returncode:
        raise Failure(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def tool(name, hint):
    """Where a program is: in the virtual environment of the tests, in its npm packages, or on the PATH."""
    places = [ROOT / "interop/.venv/bin", ROOT / "interop/node_modules/.bin"]
    path = os.pathsep.join([*map(str, places), os.environ["PATH"], "/usr/sbin", "/sbin"])
    found = shutil.which(name, path=path)
    if not found:
        raise Failure(f"{name} is missing: {hint}")
    return found


def fill(template, **values):
    """A text with `@NAME@` replaced."""
    text = template.read_text()
    for name, value in values.items():
        text = text.replace(f"@{name.upper()}@", str(value))
    if left := re.search(r"@[A-Z]+@", text):
        raise Failure(f"{template}: nobody gave {left.group()}")
    return text


def said(what):
    print(f"  ok {what}", flush=True)


class Line:
    """A program that speaks JSON, a line each, on stdin and stdout."""

    def __init__(self, command, **options):
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            **options,
        )
        self._lines = queue.Queue()
        self._sent = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _write(self, message):
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._process.stdin.flush()

    def notify(self, method):
        self._write({"method": method})

    def ask(self, method, params):
        self._sent += 1
        self._write({"id": self._sent, "method": method, "params": params})
        while True:
            try:
                line = self._lines.get(timeout=SECONDS)
            except queue.Empty:
                raise Failure(f"{method}: no answer in {SECONDS} s") from None
            if line is None:
                code = self._process.wait()
                self._errors.seek(0)
                raise Failure(f"{method}: the program ended with {code}\n{self._errors.read()}")
            answer = json.loads(line)
            if answer.get("id") == self._sent:
                return answer["result"]

    def close(self):
        """Closes its stdin, and waits until it has ended by itself."""
        self._process.stdin.close()
        try:
            code = self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            raise Failure("it does not end when its stdin is closed") from None
        if code:
            raise Failure(f"exit code {code}")


@contextmanager
def serving(command, **options):
    """`bowline serve` with its demo server: the URLs of the server and of the gateway's health."""
    words = [*command, "serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]
    with subprocess.Popen(
        [str(word) for word in words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        # npx does not pass signals on.
        start_new_session=True,
        **options,
    ) as process:
        try:
            urls = {}
            for line in process.stdout:
                if found := re.search(r"http://\S+/(mcp/demo|health)$", line.rstrip()):
                    urls[found.group(1)] = found.group()
                if len(urls) == 2:
                    break
            else:
                raise Failure(f"{' '.join(map(str, words))}: it ended without a greeting")
            yield urls["mcp/demo"], urls["health"]
        finally:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(SECONDS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)


def count_twice(command, **options):
    """Calls the demo's tool `count` twice in one session of a program that speaks MCP on stdio."""
    line = Line(command, **options)
    opened = line.ask("initialize", INITIALIZE)
    if opened["serverInfo"]["name"] != "bowline-demo":
        raise Failure(f"another server answered: {opened}")
    line.notify("notifications/initialized")
    for expected in ("1", "2"):
        answer = line.ask("tools/call", {"name": "count", "arguments": {}})
        text = answer["content"][0]["text"]
        if text != expected:
            raise Failure(f"counted {text} instead of {expected}")
    line.close()


def first_call(package, command, **options):
    """A gateway and a bridge from a package, and a session through both."""
    with serving(command, **options) as (url, health):
        address = health.removeprefix("http://").removesuffix("/health")
        run(*command, "health", address, **options)
        count_twice([*command, "connect", url], **options)
    said(f"{package}: serve, health and connect; two tool calls in one session")
