"""Two network namespaces with a cable between them, which can be pulled: for servers that vanish without closing
their connections. They need the rights of root; without those, nothing is tested and a line says so.
"""

import os
import subprocess
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness
from bridges import HERE, Server, bowline, state

NEAR, FAR = "10.255.77.1", "10.255.77.2"
# A connection breaks after half a minute of silence; a loaded machine may notice later.
NOTICED_AFTER, NOTICED_BEFORE = 15, 50


class Cable:
    """A cable between two namespaces. What runs with the prefix `near` or `far` is at its ends."""

    def __init__(self, stack):
        self._holders = [stack.enter_context(holder()) for _ in range(2)]
        self.near, self.far = (
            ["nsenter", "-t", str(one.pid), "-n", "--"] for one in self._holders
        )
        ip(self.near, "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", self._holders[1].pid)
        for end, name, address in [(self.near, "near", NEAR), (self.far, "far", FAR)]:
            ip(end, "addr", "add", f"{address}/30", "dev", name)
            ip(end, "link", "set", name, "up")
            ip(end, "link", "set", "lo", "up")

    def pull(self):
        ip(self.far, "link", "set", "far", "down")

    def plug(self):
        ip(self.far, "link", "set", "far", "up")

    def connections(self):
        """How many connections to the far end the near end believes in."""
        table = Path(f"/proc/{self._holders[0].pid}/net/tcp").read_text().splitlines()[1:]
        far = "".join(f"{int(part):02X}" for part in reversed(FAR.split(".")))
        rows = [line.split() for line in table]
        # 01 is ESTABLISHED.
        return sum(row[2].startswith(far) and row[3] == "01" for row in rows)


class holder:
    """A process that only has a namespace."""

    def __enter__(self):
        self._process = subprocess.Popen(["unshare", "-n", "sleep", "infinity"])
        self.pid = self._process.pid
        own = os.readlink("/proc/self/ns/net")
        end = time.monotonic() + 10
        while os.readlink(f"/proc/{self.pid}/ns/net") == own or "sleep" not in self._name():
            if self._process.poll() is not None or time.monotonic() > end:
                raise harness.Failure("no network namespace")
            time.sleep(0.01)
        return self

    def _name(self):
        return Path(f"/proc/{self.pid}/comm").read_text()

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()


def ip(prefix, *words):
    subprocess.run([*prefix, "ip", *map(str, words)], check=True)


def can_be_made():
    """Whether namespaces can be made here."""
    made = subprocess.run(["unshare", "-n", "true"], stderr=subprocess.DEVNULL)
    has_ip = subprocess.run(["sh", "-c", "command -v ip nsenter"], stdout=subprocess.DEVNULL)
    return os.geteuid() == 0 and made.returncode == 0 and has_ip.returncode == 0


class Vanishing:
    """A server behind a cable that is pulled while a client waits for it."""

    def __init__(self):
        self._failure, self._took = None, None
        if not can_be_made():
            print("!! no network namespaces here: a server that vanishes is NOT tested", flush=True)
            self._thread = None
            return
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        try:
            with ExitStack() as stack:
                self._took = self._noticed_after(stack)
        except Exception as error:  # noqa: BLE001: raised where the run waits for it
            self._failure = error

    def _noticed_after(self, stack):
        cable = Cable(stack)
        server = Server(stack, FAR, cable.far)
        command = [*cable.near, sys.executable, HERE / "client.py", *bowline(server.url)]
        client = stack.enter_context(harness.Process("Python", command, state(stack)))
        client.wait_for_line("^ready$", 60)
        if cable.connections() == 0:
            raise harness.Failure("there is no connection")
        cable.pull()
        begun = time.monotonic()
        while cable.connections() and time.monotonic() - begun < NOTICED_BEFORE:
            time.sleep(0.1)
        return time.monotonic() - begun

    def finish(self):
        """A server that vanished without closing its connections is noticed."""
        if self._thread is None:
            return
        self._thread.join()
        if self._failure:
            raise self._failure
        if not NOTICED_AFTER < self._took < NOTICED_BEFORE:
            raise harness.Failure(f"noticed after {self._took:.1f} s")
        print(f"  noticed after {self._took:.1f} s")
