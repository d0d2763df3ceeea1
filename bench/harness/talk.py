"""A client of a bridge, over its stdin and stdout. It checks every answer."""

import json
import subprocess

from .processes import Failed

VERSION = "2025-06-18"


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
