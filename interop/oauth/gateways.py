"""Three gateways on one Redis sign people in: whichever of them is asked, comes back to, or refreshes.

Each test has a caller of its own. Usage: gateways.py
"""

import hashlib
import json
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import parts
from parts import harness
from run import Client, check

GATEWAYS = 3
CALLERS = ("ann", "bob", "cy", "dan")
CALLS = 50
# So long lives an access token. It counts as stale after half of it: all calls fit into that.
ACCESS_SECONDS = 12
LINK = {"elicitation": {"url": {}}}
# Where nobody listens: a host passes on what people bring there.
HOST = "http://127.0.0.1:9/done"


def key(caller):
    return f"the-key-of-{caller}"


def config(redis, server, public_url):
    callers = "".join(
        f'[callers.{name}]\nkey_sha256 = "{hashlib.sha256(key(name).encode()).hexdigest()}"\n'
        for name in CALLERS
    )
    return f"""
admin = "off"
[oauth]
public_url = "{public_url}"
[store]
kind = "redis"
url = "{redis}"
on_unreachable_start = "exit"
{callers}
[servers.files]
url = "{server}"
[servers.files.oauth]
[servers.driven]
url = "{server}"
[servers.driven.oauth]
redirect_uri = "{HOST}"
"""


def start_gateways(stack, redis, server):
    """Three gateways; people see the pages of the second one, whoever sent them."""
    bowline = harness.binary("bowline")
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateways-")))
    ports = [harness.free_port() for _ in range(GATEWAYS)]
    file = directory / "bowline.toml"
    file.write_text(config(redis, server, f"http://127.0.0.1:{ports[1]}"))
    seal = subprocess.run([bowline, "keygen"], check=True, stdout=subprocess.PIPE, text=True)
    env = {"BOWLINE_SEAL_KEYS": seal.stdout.strip(), "RUST_LOG": "trace"}
    processes, urls = [], []
    for port in ports:
        command = [bowline, "serve", "-c", file, "--listen", f"127.0.0.1:{port}"]
        process = stack.enter_context(harness.Process(f"bowline {port}", command, env))
        urls.append(process.wait_for_line(r"files\s+(http://\S+/mcp/files)").group(1))
        processes.append(process)
    return processes, urls, env["BOWLINE_SEAL_KEYS"]


def withdrawn(messages):
    """A question that nobody answered is taken back once its sign-in is done elsewhere."""
    check(next(messages)["method"] == "notifications/cancelled", "not taken back")


def text(answer):
    check("result" in answer, answer)
    return answer["result"]["content"][0]["text"]


def comes_back_elsewhere(urls):
    """The answer reaches gateway B; the request that A holds goes on by itself."""
    client = Client(urls[0], LINK, key("ann"))
    client.open()
    messages = client.stream("tools/call", name="whoami", arguments={})
    link = next(messages)["params"]["url"]
    check(link.startswith(urls[1].split("/mcp/")[0]), "the link leads elsewhere:", link)
    check("You are signed in" in parts.browse(link, account="ann")["text"], "not signed in")
    withdrawn(messages)
    check(text(next(messages)) == "ann", "not ann")


def client_dies(urls):
    """A client dies while its user signs in; the next session, on another gateway, has the grant."""
    client = Client(urls[0], LINK, key("bob"))
    client.open()
    messages = client.stream("tools/call", name="whoami", arguments={})
    link = next(messages)["params"]["url"]
    messages.close()
    client.close()
    check("You are signed in" in parts.browse(link, account="bob")["text"], "not signed in")
    later = Client(urls[2], LINK, key("bob"))
    later.open()
    check(text(later.call("whoami")) == "bob", "not bob")


def passed_on_elsewhere(urls):
    """A host passes the answer on to gateway C; the request that A holds goes on by itself."""
    client = Client(urls[0].replace("/files", "/driven"), {"elicitation": {}}, key("dan"))
    client.open()
    messages = client.stream("tools/call", name="whoami", arguments={})
    link = next(messages)["params"]["_meta"]["bowline/authorize_url"]
    end = urllib.parse.urlsplit(parts.browse(link, account="dan", stop=HOST)["url"])
    callback = urls[2].split("/mcp/")[0] + "/api/mcp-oauth/callback?" + end.query
    with urllib.request.urlopen(urllib.request.Request(callback, method="POST")) as answer:
        check(json.load(answer) == {"result": "signed_in"}, "not signed in")
    withdrawn(messages)
    check(text(next(messages)) == "dan", "not dan")


def sign_in(url, caller):
    client = Client(url, None, key(caller))
    client.open()
    link = client.call("whoami")["error"]["data"]["url"]
    check("You are signed in" in parts.browse(link, account=caller)["text"], "not signed in")
    return time.monotonic()


def open_sessions(urls, caller):
    """A session for each call, in turn at each gateway, all of them signed in."""

    def opened(number):
        client = Client(urls[number % len(urls)], None, key(caller))
        client.open()
        check(text(client.call("whoami")) == caller, "not", caller)
        return client

    with ThreadPoolExecutor(10) as pool:
        return list(pool.map(opened, range(CALLS)))


def refreshed_once(sessions, obtained, requests_log):
    """The token is over, 50 calls come at once at three gateways: one token request."""
    refreshes = lambda: [
        entry for entry in parts.entries(requests_log) if entry.get("grant_type") == "refresh_token"
    ]
    time.sleep(max(0, obtained + ACCESS_SECONDS + 1 - time.monotonic()))
    before = len(refreshes())
    began = time.monotonic()
    with ThreadPoolExecutor(CALLS) as pool:
        answers = list(pool.map(lambda client: client.call("whoami"), sessions))
    took = time.monotonic() - began
    check(took < ACCESS_SECONDS / 2, f"too slow to tell: {took:.1f} s")
    check([text(answer) for answer in answers] == ["cy"] * CALLS, answers)
    made = refreshes()[before:]
    check(len(made) == 1, f"{len(made)} token requests")
    outcomes = {entry["outcome"] for entry in parts.entries(requests_log)}
    check(outcomes == {"ok"}, "a refresh token was replayed:", outcomes)
    print(f"    {CALLS} calls in {took:.1f} s")


def run():
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory(prefix="authority-"))
        log = Path(directory) / "requests.jsonl"
        authority = parts.authority(ACCESS_TTL=str(ACCESS_SECONDS), REQUESTS_LOG=str(log))
        issuer = parts.said(stack.enter_context(authority))["issuer"]
        server = parts.said(stack.enter_context(parts.protected_server(issuer)))["url"]
        redis = stack.enter_context(harness.redis_server())
        processes, urls, seal_keys = start_gateways(stack, redis.url, server)
        for test in (comes_back_elsewhere, passed_on_elsewhere, client_dies):
            test(urls)
            print(f"  {test.__name__}: {test.__doc__}", flush=True)
        obtained = sign_in(urls[0], "cy")
        refreshed_once(open_sessions(urls, "cy"), obtained, log)
        print(f"  refreshed_once: {refreshed_once.__doc__}", flush=True)
        parts.check_logs(processes, seal_keys, *map(key, CALLERS))
    return 0


if __name__ == "__main__":
    harness.main(run)
