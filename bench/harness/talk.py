"""Clients of a bridge, over HTTP and over its own stdin and stdout. They check every answer."""

import http.client
import json
import subprocess
import threading
from urllib.parse import urlsplit

from .processes import Failed

VERSION = "2025-06-18"
TIMEOUT = 60
BOTH = "application/json, text/event-stream"


def initialize():
    return {
        "jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {"protocolVersion": VERSION, "capabilities": {},
                   "clientInfo": {"name": "bench", "version": "1"}},
    }


def initialized():
    return {"jsonrpc": "2.0", "method": "notifications/initialized"}


def call(number, text):
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call",
            "params": {"name": "echo", "arguments": {"text": text}}}


def check(answer, number, text):
    if answer.get("id") != number or answer["result"]["content"][0]["text"] != text:
        raise Failed(f"not the answer to {number}: {answer}")


class HttpSession:
    """A session on a connection of its own."""

    def __init__(self, url):
        parts = urlsplit(url)
        self.path = parts.path
        self.connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=TIMEOUT)
        self.headers = {"content-type": "application/json", "accept": BOTH}
        head, _ = self.post(initialize())
        if session := head.get("mcp-session-id"):
            self.headers["mcp-session-id"] = session
        self.headers["mcp-protocol-version"] = VERSION
        self.post(initialized())

    def post(self, message):
        self.connection.request("POST", self.path, json.dumps(message), self.headers)
        response = self.connection.getresponse()
        body = response.read().decode()
        if response.status >= 300:
            raise Failed(f"{response.status}: {body}")
        if (response.headers.get("content-type") or "").startswith("text/event-stream"):
            lines = (line[5:] for line in body.splitlines() if line.startswith("data:"))
            messages = [json.loads(line) for line in lines if line.strip()]
            return response.headers, next(one for one in messages if one.get("id") == message.get("id"))
        return response.headers, json.loads(body) if body.strip() else None

    def call(self, number, text):
        _, answer = self.post(call(number, text))
        check(answer, number, text)


def call_over_http(sessions, each):
    """Calls on all sessions at once, so often on each."""
    failed = []

    def run(name, session):
        try:
            # It opens another by itself: servers close what was idle meanwhile.
            session.connection.close()
            for number in range(1, each + 1):
                session.call(number, f"session {name} call {number}".ljust(64, "."))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(sessions)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise Failed(str(failed[0]))


class Lines:
    """A bridge that is spoken to by its stdin and stdout."""

    def __init__(self, command, env, log):
        self.child = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *map(str, command)], env=env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(log, "ab"), text=True)
        self.write(initialize())
        self.read(0)
        self.write(initialized())
        self.last = 0

    def write(self, message):
        self.child.stdin.write(json.dumps(message) + "\n")
        self.child.stdin.flush()

    def read(self, number):
        """The answer with this id; other messages are skipped."""
        for line in self.child.stdout:
            message = json.loads(line)
            if message.get("id") == number and "method" not in message:
                return message
        raise Failed("the bridge has ended")

    def call(self, count):
        """One call after the other."""
        for _ in range(count):
            self.last += 1
            text = f"call {self.last}".ljust(64, ".")
            self.write(call(self.last, text))
            check(self.read(self.last), self.last, text)

    def stop(self):
        self.child.stdin.close()
        try:
            self.child.wait(5)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
