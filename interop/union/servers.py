"""The ten servers of the union, most of them not ours, and the gateway in front of them."""

import json
import socket
import sys
from pathlib import Path
from urllib.parse import urlsplit

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "oauth")]
import harness
import parts

# Those that are there from the beginning, in the order of the configuration, which is that of names.
# As the configuration has them.
ORDER = (
    "typescript",
    "ev-http",
    "ev-sse",
    "gated",
    "hanging",
    "late",
    "python",
    "refusing",
    "ev-stdio",
    "files",
)
LIVE = ("ev-http", "ev-sse", "ev-stdio", "files", "python", "typescript")
# What the others have, once they are there.
LATER = {"gated": ["whoami", "echo", "bump", "admin"], "late": ["hello"]}
# How long those may delay a list that do not answer.
LIST_SECONDS = 2
LOOPBACK = ["--require", harness.INTEROP / "loopback.cjs"]


class Restarted:
    """A server over HTTP that comes back on the port it had."""

    def __init__(self, stack, start, path):
        self._stack, self._start = stack, start
        self._begin(harness.free_port())
        self.url = self._process.wait_for_line(r"http://127\.0\.0\.1:\d+").group() + path

    def _begin(self, port):
        self._process = self._stack.enter_context(self._start(port))

    def kill(self):
        self._process.kill()

    def start(self):
        self._begin(urlsplit(self.url).port)
        self._process.wait_for_line(r"http://127\.0\.0\.1:\d+")


class Late:
    """A server of fastmcp that is not there until it is started, on a port that refuses until then."""

    def __init__(self, stack):
        self._stack, self._process = stack, None
        self._port = harness.free_port()
        self.url = f"http://127.0.0.1:{self._port}/mcp"

    def start(self):
        command = [sys.executable, HERE / "late.py", self._port]
        self._process = self._stack.enter_context(harness.Process("late", command))
        self._process.wait_for_line("Uvicorn running on")

    def kill(self):
        self._process.kill()


def everything(port, transport):
    command = [harness.NODE, *LOOPBACK, harness.EVERYTHING, transport]
    return harness.Process(f"server-everything {transport}", command, env={"PORT": str(port)})


class Servers:
    def __init__(self, stack, directory):
        self._stack = stack
        self.http = Restarted(stack, lambda port: everything(port, "streamableHttp"), "/mcp")
        sse = Restarted(stack, lambda port: everything(port, "sse"), "/sse")
        many = stack.enter_context(harness.Process("many", [sys.executable, HERE / "many.py"]))
        self.late = Late(stack)
        # One that takes connections and says nothing, and one whose port is taken by nobody who listens.
        hanging = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        refusing = stack.enter_context(socket.socket())
        refusing.bind(("127.0.0.1", 0))
        issuer = parts.said(stack.enter_context(parts.authority()))["issuer"]
        gated = stack.enter_context(parts.protected_server(issuer))
        self._urls = {
            "ev-http": self.http.url,
            "ev-sse": sse.url,
            "gated": parts.said(gated)["url"],
            "hanging": "http://127.0.0.1:{}/mcp".format(hanging.getsockname()[1]),
            "late": self.late.url,
            "python": many.wait_for_line(r"http://127\.0\.0\.1:\d+").group() + "/mcp",
            "refusing": "http://127.0.0.1:{}/mcp".format(refusing.getsockname()[1]),
        }
        self._commands = {
            "ev-stdio": [harness.NODE, harness.EVERYTHING, "stdio", harness.MARK],
            "files": [harness.NODE, harness.FILESYSTEM, directory],
            "typescript": [harness.NODE, HERE / "server.mjs"],
        }

    def config(self):
        """All of them; and unions of some of them, whose names are bare."""
        text = ""
        for name in ORDER:
            text += f"[servers.{name}]\n"
            if name in self._commands:
                words = json.dumps([str(word) for word in self._commands[name]])
                text += f"command = {words}\n"
                continue
            text += f'url = "{self._urls[name]}"\n'
            if name in ("hanging", "late"):
                text += f'list_timeout = "{LIST_SECONDS}s"\n'
            if name == "gated":
                text += "[servers.gated.oauth]\n"
        for name, members in UNIONS.items():
            text += f'[unions.{name}]\nservers = {json.dumps(members)}\nnames = "bare"\n'
        return text


# A host that shows tools as `UNION: TOOL` prefixes names itself.
UNIONS = {
    "plain": ["files", "ev-http", "typescript"],
    "piped": ["typescript", "ev-stdio"],
    "legacy": ["files", "ev-sse"],
}
