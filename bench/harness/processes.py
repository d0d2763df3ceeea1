"""Starting processes, and ending all of them however the bench ends."""

import atexit
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_running = []
_directory = tempfile.TemporaryDirectory(prefix="bowline-bench-")


def scratch():
    """A directory that is removed at the end."""
    return Path(_directory.name)


class Failed(Exception):
    """A process did not come up, or a measurement could not be made."""


class Process:
    """A server with a port of its own. `make` gives its command for a port."""

    def __init__(self, name, make):
        self.name, self.make = name, make
        for attempt in range(4):
            self.port = free_port()
            self.log = scratch() / f"{name}-{self.port}.log"
            if self._start():
                return
        raise self._failed()

    def kill(self):
        """Ends it as a crash does; on return it is gone."""
        _running.remove(self)
        self.child.kill()
        self.child.wait()

    def start_again(self):
        """Starts it on its old port after `kill`."""
        if not self._start():
            raise self._failed()

    def pids(self):
        """The process and its descendants."""
        found = [self.child.pid]
        for pid in found:
            try:
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
            except OSError:
                continue
            found.extend(int(child) for child in children.split())
        return found

    def rss(self):
        """Resident memory in KiB, of all its processes."""
        total = 0
        for pid in self.pids():
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    total += int(line.split()[1])
        return total

    def stop(self):
        if self in _running:
            _running.remove(self)
        for number in (signal.SIGTERM, signal.SIGKILL):
            try:
                os.killpg(self.child.pid, number)
                self.child.wait(timeout=3)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
        self.child.poll()

    def _start(self):
        # The kernel ends it if this program is killed and cannot.
        words = ["setpriv", "--pdeathsig", "TERM", *map(str, self.make(self.port))]
        with open(self.log, "ab") as log:
            self.child = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        _running.append(self)
        if self._listens():
            return True
        self.stop()
        return False

    def _failed(self):
        return Failed(f"{self.name} does not start:\n{self.log.read_text(errors='replace')}")

    def _listens(self):
        while self.child.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return True
            time.sleep(0.02)
        return False


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@atexit.register
def stop_all():
    for process in list(_running):
        process.stop()


def _exit(number, _):
    sys.exit(128 + number)


for _signal in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
    signal.signal(_signal, _exit)
