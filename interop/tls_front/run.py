"""The gateway with a certificate of its own: clients speak TLS to it, and show who they are by theirs.

curl with each version of TLS, the whole scenarios of the Python and TypeScript clients, certificates of
clients that are right, wrong, missing and expired, and a certificate that is replaced again and again, as
Kubernetes does it, while sessions go on.
"""

import asyncio
import http.client
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tls"), str(HERE.parent / "python")]
import client
import harness
from certificates import Authority, fingerprint

CLIENT = HERE.parent / "typescript" / "client.mjs"
KEY = "a-key-of-the-caller-bob"
VERSION = "2025-11-25"
ROTATIONS = 5
TIMEOUT = 20
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": VERSION,
        "capabilities": {},
        "clientInfo": {"name": "tls", "version": "0"},
    },
}


def check(truth, what):
    if not truth:
        raise harness.Failure(what)


def step(text):
    print(f"  ok {text}", flush=True)


class Mount:
    """A certificate as Kubernetes mounts a Secret: files are links by way of `..data`, which is swapped."""

    def __init__(self, directory):
        self.directory, self._count = directory, 0
        directory.mkdir()
        for name in ("tls.crt", "tls.key"):
            (directory / name).symlink_to(f"..data/{name}")

    def put(self, cert, key):
        self._count += 1
        version = self.directory / f"..{self._count}"
        version.mkdir()
        shutil.copy(cert, version / "tls.crt")
        shutil.copy(key, version / "tls.key")
        (version / "tls.key").chmod(0o600)
        new = self.directory / "..data_tmp"
        new.symlink_to(version.name)
        new.rename(self.directory / "..data")
        for old in self.directory.glob("..[0-9]*"):
            if old != version:
                shutil.rmtree(old)


def curl(url, ca, *options):
    """Sends `initialize`: the status, and the answer or what curl says."""
    command = ["curl", "-sS", "--cacert", ca, "--max-time", TIMEOUT, "-w", "\n%{http_code}", url]
    command += ["-H", "accept: application/json, text/event-stream"]
    command += ["-H", "content-type: application/json", "-d", json.dumps(INITIALIZE), *options]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    body, _, status = done.stdout.rpartition("\n")
    return int(status or 0), body or done.stderr


def versions(url, ca):
    bearer = ("-H", f"authorization: Bearer {KEY}")
    for version in ("1.2", "1.3"):
        only = (f"--tlsv{version}", "--tls-max", version)
        status, said = curl(url, ca, *only, *bearer)
        check(status == 200, f"TLS {version}: {status}, {said}")
    status, said = curl(url, ca, "--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0", *bearer)
    check(status == 0 and "alert" in said, f"TLS 1.1: {status}, {said}")
    step("curl with TLS 1.2 and 1.3, and not with 1.1")
    status, said = curl(url.replace("https:", "http:"), ca, *bearer)
    check(status == 400 and "https://" in said, f"without TLS: {status}, {said}")
    step(f"curl without TLS: {said.strip()}")


def certificates(url, ca, clients):
    ok = curl(url, ca, "--cert", clients["ann"])
    check(ok[0] == 200, f"the certificate of ann: {ok}")
    step("a known certificate is enough")
    expected = {
        "stranger": ("unknown_certificate", fingerprint(clients["stranger"])),
        "late": ("certificate_expired", "has expired"),
        None: ("unauthorized", "a key or a client certificate"),
    }
    for name, (reason, words) in expected.items():
        shown = ("--cert", clients[name]) if name else ()
        status, said = curl(url, ca, *shown)
        check(status == 401 and words in said, f"{name}: {status}, {said}")
        error = json.loads(said)["error"]
        check(error["data"]["reason"] == reason, f"{name}: {error}")
        step(f"{reason}: {error['message']}")


class Session(threading.Thread):
    """A session that counts: every second call on a new connection, the others on one that is kept."""

    def __init__(self, port, context, done):
        super().__init__(daemon=True)
        self._port, self._context, self._done = port, context, done
        self.calls, self.failure = 0, None
        self._kept = self._connect()
        answer, headers = self._post(self._kept, INITIALIZE, {})
        check(answer["result"], f"initialize: {answer}")
        self._headers = {
            "mcp-session-id": headers["mcp-session-id"],
            "mcp-protocol-version": VERSION,
        }

    def _connect(self):
        return http.client.HTTPSConnection(
            "127.0.0.1", self._port, timeout=TIMEOUT, context=self._context
        )

    def _post(self, connection, message, headers):
        headers = {
            "authorization": f"Bearer {KEY}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            **headers,
        }
        # It would connect again by itself.
        if connection.sock:
            connection.auto_open = 0
        connection.request("POST", "/mcp/counter", json.dumps(message), headers)
        response = connection.getresponse()
        text = response.read().decode()
        check(response.status == 200, f"{response.status}: {text}")
        if response.headers["content-type"] == "text/event-stream":
            text = next(line for line in text.splitlines() if line.startswith("data: {"))[6:]
        return json.loads(text), response.headers

    def run(self):
        try:
            while not self._done.is_set():
                self._call(self._kept)
                fresh = self._connect()
                self._call(fresh)
                fresh.close()
        except Exception as failure:  # noqa: BLE001: shown by who waits for this
            self.failure = failure

    def _call(self, connection):
        message = {"jsonrpc": "2.0", "id": self.calls + 2, "method": "tools/call"}
        message["params"] = {"name": "count", "arguments": {}}
        answer, _ = self._post(connection, message, self._headers)
        self.calls += 1
        text = answer["result"]["content"][0]["text"]
        check(str(self.calls) in text, f"call {self.calls}: {text}")


def shown(port):
    return ssl.get_server_certificate(("127.0.0.1", port), timeout=TIMEOUT)


def rotation(gateway, url, mount, authority, certificate):
    port = int(url.split(":")[2].split("/")[0])
    done = threading.Event()
    context = ssl.create_default_context(cafile=authority.path)
    sessions = [Session(port, context, done) for _ in range(4)]
    for session in sessions:
        session.start()
    seen = {shown(port)}
    lines = len(gateway.lines)
    for number in range(ROTATIONS):
        before, calls = shown(port), sum(session.calls for session in sessions)
        if number == 2:
            # A pair that does not belong together keeps the old one.
            old = certificate.with_name("old.pem")
            shutil.copy(certificate, old)
            other = authority.certificate("localhost")
            mount.put(other, old)
            gateway.wait_for_line("the new certificate was rejected")
            check(shown(port) == before, "a broken pair was taken")
        new = authority.certificate("localhost")
        mount.put(new, new)
        wait_for(lambda: shown(port) != before, "the new certificate")
        wait_for(lambda: sum(s.calls for s in sessions) > calls + 8, "calls go on")
        seen.add(shown(port))
        failures = [repr(session.failure) for session in sessions if session.failure]
        check(not failures, f"rotation {number}: {failures}")
    done.set()
    for session in sessions:
        session.join(TIMEOUT)
        check(session.failure is None, f"{session.failure!r}")
    check(len(seen) == ROTATIONS + 1, f"{len(seen)} certificates were seen")
    told = [line for line in gateway.lines[lines:] if "certificate replaced" in line]
    check(len(told) == ROTATIONS, f"told: {told}")
    calls = sum(session.calls for session in sessions)
    step(f"{ROTATIONS} new certificates during {calls} calls in {len(sessions)} sessions, none lost")


def wait_for(condition, what):
    waiting = threading.Event()
    for _ in range(TIMEOUT * 50):
        if condition():
            return
        waiting.wait(0.02)
    raise harness.Failure(f"{what}: not within {TIMEOUT} s")


def sdk_clients(url, ca):
    os.environ["SSL_CERT_FILE"] = str(ca)
    print("Python client", flush=True)
    asyncio.run(client.scenario(url, 404))
    print("TypeScript client", flush=True)
    env = {"NODE_EXTRA_CA_CERTS": str(ca)}
    with harness.Process("client.mjs", [harness.NODE, CLIENT, url, 404], env) as typescript:
        code = typescript.wait(180)
    print("\n".join(typescript.lines), flush=True)
    check(code == 0, f"client.mjs: exit code {code}")


def serve(stack, directory, mount, callers, servers):
    config = directory / f"{len(list(directory.glob('*.toml')))}.toml"
    tables = "".join(f'[servers.{name}]\nurl = "{url}"\n' for name, url in servers.items())
    tls = f'[tls]\ncert = "{mount.directory}/tls.crt"\nkey = "{mount.directory}/tls.key"\n'
    config.write_text('store.kind = "memory"\n' + tls + callers + tables)
    options = ["--config", config, "--listen", "127.0.0.1:0", "--admin", "off"]
    command = [harness.binary("bowline"), "serve", *options]
    gateway = stack.enter_context(harness.Process("bowline", command))
    return gateway, harness.url_of(gateway, f"/mcp/{next(iter(servers))}")


def run():
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tls-front-")))
        authority, strangers = Authority(directory, "own"), Authority(directory, "strangers")
        certificate = authority.certificate("localhost")
        mount = Mount(directory / "mounted")
        mount.put(certificate, certificate)
        everything = stack.enter_context(harness.everything_server())
        options = ["serve", "--listen", "127.0.0.1:0", "--admin", "off"]
        demo = harness.Process("demo", [harness.binary("bowline"), *options])
        stack.enter_context(demo)
        servers = {
            "everything": harness.url_of(everything, "/mcp"),
            "counter": harness.url_of(demo, "/mcp/demo"),
        }
        _, url = serve(stack, directory, mount, "", servers)
        check(url.startswith("https://"), f"greeted with {url}")
        sdk_clients(url, authority.path)
        clients = {
            "ann": authority.client("ann"),
            "stranger": strangers.client("stranger"),
            "late": authority.client("late", age=9),
        }
        known = [f'"{fingerprint(clients[name])}"' for name in ("ann", "late")]
        callers = f"[callers.ann]\ncertificate_sha256 = [{', '.join(known)}]\n"
        callers += f'[callers.bob]\nkey = "{KEY}"\n'
        gateway, url = serve(stack, directory, mount, callers, servers)
        versions(url, authority.path)
        certificates(url, authority.path, clients)
        rotation(gateway, url, mount, authority, certificate)
    return 0


if __name__ == "__main__":
    harness.main(run)
