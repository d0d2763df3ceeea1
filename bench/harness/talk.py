"""A client of a bridge, over its stdin and stdout. It checks every answer."""

import json
import subprocess

from .processes import Failed

VERSION = "2025-06-18"
# How many calls are under way at the same time.
AT_ONCE = 8


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
        self.read({0})
        self.write(initialized())
        self.last = 0

    def write(self, message):
        self.child.stdin.write(json.dumps(message) + "\n")
        self.child.stdin.flush()

    def read(self, expected):
        """The answers with these ids; other messages are skipped."""
        answers = {}
        while len(answers) < len(expected):
            line = self.child.stdout.readline()
            if not line:
                raise Failed("the bridge has ended")
            message = json.loads(line)
            if message.get("id") in expected and "method" not in message:
                answers[message["id"]] = message
        return answers

    def call(self, count):
        """Calls, a few at a time."""
        for _ in range(count // AT_ONCE):
            texts = {}
            for _ in range(AT_ONCE):
                self.last += 1
                texts[self.last] = f"call {self.last}".ljust(64, ".")
                self.write(call(self.last, texts[self.last]))
            for number, answer in self.read(texts).items():
                check(answer, number, texts[number])

    def stop(self):
        self.child.stdin.close()
        try:
            self.child.wait(5)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()
