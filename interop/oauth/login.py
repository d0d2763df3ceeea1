"""People sign in and out on the command line: real authorization server, server, browser, gateway.

Usage: login.py [NAME...]; without names, everything.
"""

import json
import os
import re
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import parts
import harness
from run import STARTED, Client, bowline, check

import httpx2 as httpx


class Home:
    """A person's machine: a state directory, a configuration file, and what a browser was given."""

    def __init__(self, server, oauth=""):
        self.path = Path(tempfile.mkdtemp())
        self.state = self.path / "state/bowline"
        self.opened = self.path / "opened"
        opener = self.path / "bin/xdg-open"
        opener.parent.mkdir()
        opener.write_text(f'#!/bin/sh\nprintf "%s\\n" "$#" "$@" > {self.opened}.new\nmv {self.opened}.new {self.opened}\n')
        opener.chmod(0o755)
        self.text = f"""
listen = "127.0.0.1:0"
admin = "off"
[servers.files]
url = "{server}"
[servers.files.oauth]
{oauth}
"""
        self.file = self.path / "bowline.toml"
        self.file.write_text(self.text)
        self.env = {
            "XDG_STATE_HOME": str(self.path / "state"),
            "PATH": f"{opener.parent}:{os.environ['PATH']}",
            "DISPLAY": ":0",
        }

    def start(self, *words):
        env = self.env
        if words[0] in ("login", "logout"):
            env = {"RUST_LOG": "trace", **env}
        process = harness.Process("bowline", [harness.binary("bowline"), *words], env)
        STARTED.append(process)
        return process

    def run(self, *words):
        """The exit code and everything printed."""
        with self.start(*words) as process:
            code = process.wait(60)
            process.stop(5)
            return code, "\n".join(process.lines)

    def login(self, *words, account="alice", answer="allow"):
        with self.start("login", *words) as process:
            link = link_of(process)
            page = parts.browse(link, account=account, answer=answer)
            code = process.wait(30)
            process.stop(5)
            return code, "\n".join(process.lines), page, link

    def auth(self, *words):
        code, text = self.run("auth", "--json", *words)
        check(code == 0, text)
        return json.loads(text)["servers"]

    def serve(self):
        return bowline(self.text, self.env)


def link_of(process):
    """The link that a login shows. It has the state, and is meant to be seen."""
    link = process.wait_for_line(r"^  (http://\S+)$").group(1)
    SHOWN.add(link)
    return link


def requests(log, endpoint):
    entries = [json.loads(line) for line in Path(log).read_text().splitlines()]
    return [entry for entry in entries if entry["endpoint"] == endpoint]


def in_and_out(authority, server):
    """login, auth, serve uses it unasked; logout revokes, and the next call asks again."""
    home = Home(server)
    config = ["-c", home.file]
    process, url = home.serve()
    with process:
        client = Client(url)
        client.open()
        check(client.call("whoami")["error"]["code"] == -31003, "not asked")
        check(not home.auth(*config)[0]["signed_in"], "signed in already")

        code, said, page, link = home.login("files", *config)
        check(code == 0 and "Signed in at files" in said, said)
        check("You are signed in" in page["text"], page)
        origin = httpx.URL(link).params["redirect_uri"].removesuffix("/callback")
        check(home.opened.read_text().splitlines() == ["1", f"{origin}/"], "the browser got something else")
        [row] = home.auth(*config)
        check(row["signed_in"] and row["issuer"] == authority and row["scopes"], row)
        check(row["until"] > row["since"] and row["is_renewed"], row)
        check(home.auth() == [{**row, "server": server}], home.auth())
        code, table = home.run("auth", *config)
        check(re.search(r"files\s+yes\s+\S+Z\s+\S+Z, then refreshed\s+http", table), table)
        check("grants.sealed, sealed with the key" in table, table)

        # By the gateway that ran all the time.
        check("alice" in json.dumps(client.call("whoami")["result"]), "the gateway asks")

        code, bye = home.run("logout", "files", *config)
        check(code == 0 and "revoked the tokens" in bye, bye)
        check(not home.auth(*config)[0]["signed_in"] and home.auth() == [], "still signed in")
        # The access token would be good for minutes yet: the gateway looks into the vault.
        refused = eventually(lambda: client.call("whoami").get("error"))
        check(refused["code"] == -31003, refused)
        code, said = home.run("logout", "files", *config)
        check(code == 0 and "Nobody was signed in" in said, said)


def eventually(look, seconds=10):
    """What `look` finds, as soon as it finds something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.1)
    raise harness.Failure("nothing was found in time")


def revoked(authority, server):
    """After logout the authorization server refuses the refresh token; by URL, without a file."""
    home = Home(server)
    code, said, _, _ = home.login(server)
    check(code == 0, said)
    secrets = parts.entries(parts.SECRETS_LOG)
    token = [entry["value"] for entry in secrets if entry["kind"] == "refresh_token"][-1]
    before = len(requests(REQUESTS, "revocation"))
    code, said = home.run("logout", server)
    check(code == 0, said)
    check(len(requests(REQUESTS, "revocation")) > before, "nothing was revoked")
    clients = [entry["client_id"] for entry in requests(REQUESTS, "token") if entry.get("client_id")]
    form = {"grant_type": "refresh_token", "refresh_token": token, "client_id": clients[-1]}
    answer = httpx.post(f"{authority}/token", data=form)
    check(answer.json()["error"] == "invalid_grant", answer.text)


def declined(authority, server):
    """A no is an exit code of 1, and a page that says so."""
    home = Home(server)
    code, said, page, _ = home.login("files", "-c", home.file, answer="deny")
    check(code == 1 and "the sign-in was declined" in said, said)
    check("You declined" in page["text"], page)
    check(not home.auth("-c", home.file)[0]["signed_in"], "signed in")


def wrong_answers(authority, server):
    """Wrong, stateless and incomplete answers are 400 and change nothing."""
    home = Home(server)
    with home.start("login", "files", "-c", home.file) as process:
        link = link_of(process)
        query = dict(httpx.QueryParams(httpx.URL(link).query))
        callback, state = query["redirect_uri"], query["state"]
        check(re.fullmatch(r"http://127\.0\.0\.1:\d+/callback", callback), callback)
        get = lambda **params: httpx.get(callback, params=params).status_code
        check(get() == 400, "nothing")
        check(get(code="x") == 400, "no state")
        check(get(error="access_denied") == 400, "an error without a state")
        check(get(code="x", state="forged") == 400, "forged")
        check(get(state=state) == 400, "no code")
        check(get(code="x", state=state, iss="http://evil.example") == 400, "another issuer")
        check(get(code="x", state=state) == 400, "no issuer, though it is announced")
        origin = callback.removesuffix("/callback")
        check(httpx.get(f"{origin}/other").status_code == 404, "another path")
        check(httpx.post(callback).status_code == 405, "POST")
        check(httpx.get(callback, headers={"host": "evil.example"}).status_code == 403, "another host")
        for headers in [{"sec-fetch-dest": "image"}, {"sec-fetch-dest": "iframe"}, {"sec-purpose": "prefetch;prerender"}]:
            for url in [f"{origin}/", callback]:
                check(httpx.get(url, headers=headers).status_code == 403, f"{url} for {headers}")
        page = parts.browse(link, account="bob")
        check("You are signed in" in page["text"], page)
        check(process.wait(30) == 0, "not signed in")


def seen_by_others(authority, server):
    """What the browser is started with has no secret, and leads on a process of the same user alone."""
    home = Home(server)
    with home.start("login", "files", "-c", home.file) as process:
        link = link_of(process)
        start = eventually(lambda: home.opened.exists() and home.opened.read_text()).splitlines()[1]
        state = httpx.URL(link).params["state"]
        check(state not in start and re.fullmatch(r"http://127\.0\.0\.1:\d+/", start), start)
        led = httpx.get(start)
        check((led.status_code, led.headers["location"]) == (303, link), led)
        check(httpx.get(start, headers={"host": "evil.example"}).status_code == 403, "another host")
        # Only root can give a socket away.
        users = [65534] if os.geteuid() == 0 else []
        for user, is_half_closed in [(user, half) for user in users for half in (False, True)]:
            answer = asked_as(user, start, is_half_closed)
            # Who has closed a half may be gone before it is known whose the connection is.
            if answer or not is_half_closed:
                check(b" 403 " in answer.split(b"\r\n")[0], answer)
                check(b"printed" in answer, answer)
            check(state.encode() not in answer, answer)
        page = parts.browse(start, account="carol")
        check("You are signed in" in page["text"], page)
        check(process.wait(30) == 0, "not signed in")


def asked_as(user, url, is_half_closed):
    """What another user's process is answered, which may close its half of the connection at once."""
    host = httpx.URL(url).netloc.decode()
    with socket.socket() as connection:
        os.fchown(connection.fileno(), user, -1)
        connection.connect((httpx.URL(url).host, httpx.URL(url).port))
        connection.sendall(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        if is_half_closed:
            connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def given_up(authority, server):
    """Ctrl-C ends a login at once, and leaves no grant and no listener behind."""
    home = Home(server)
    with home.start("login", "files", "-c", home.file) as process:
        link = link_of(process)
        process.wait_for_line("Ctrl-C cancels")
        callback = httpx.URL(link).params["redirect_uri"]
        os.kill(process._process.pid, signal.SIGINT)
        check(process.wait(5) == 130, "another exit code")
        process.wait_for_line("nobody was signed in")
    try:
        httpx.get(callback)
        raise harness.Failure("somebody still listens")
    except httpx.ConnectError:
        pass
    left = sorted(path.name for path in home.state.iterdir())
    check(left == ["grants.key"], left)
    check(not home.auth("-c", home.file)[0]["signed_in"], "signed in")


def no_registration(authority, server):
    """An authorization server that registers no clients: a configured client id is asked for, and used."""
    native = {
        "client_id": "by-hand",
        "application_type": "native",
        "redirect_uris": ["http://127.0.0.1/callback"],
        "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code", "refresh_token"],
    }
    with parts.authority(REGISTRATION="off", CLIENTS=json.dumps([native])) as closed:
        issuer = parts.said(closed)["issuer"]
        with parts.protected_server(issuer) as protected:
            server = parts.said(protected)["url"]
            home = Home(server)
            code, said = home.run("login", server)
            check(code == 2 and "registers no clients" in said and "client_id" in said, said)
            home = Home(server, 'client_id = "by-hand"')
            code, said, _, _ = home.login("files", "-c", home.file)
            check(code == 0 and "Signed in" in said, said)


def shared(authority, server):
    """With a Redis in the file, a gateway on it uses the grant; nothing is written on this machine."""
    home = Home(server)
    port = harness.free_port()
    home.text += f'[store]\nkind = "redis"\nurl = "redis://127.0.0.1:{port}"\n'
    home.file.write_text(home.text)
    home.env["BOWLINE_SEAL_KEYS"] = home.run("keygen")[1]
    command = ["redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", home.path]
    with harness.Process("redis", command) as redis:
        redis.wait_for_line("Ready to accept connections")
        process, url = home.serve()
        with process:
            code, said, _, _ = home.login("files", "-c", home.file)
            check(code == 0 and "the store that gateways share" in said, said)
            client = Client(url)
            client.open()
            check("alice" in json.dumps(client.call("whoami")["result"]), "the gateway asks")
            check(home.auth("-c", home.file)[0]["signed_in"], "not signed in")
            code, said = home.run("logout", "files", "-c", home.file)
            check(code == 0 and "revoked the tokens" in said, said)
            check(not home.auth("-c", home.file)[0]["signed_in"], "still signed in")
    check(not home.state.exists(), "something was written")


TESTS = {
    test.__name__: test
    for test in [in_and_out, revoked, declined, wrong_answers, seen_by_others, given_up, no_registration, shared]
}

REQUESTS = Path(tempfile.mkdtemp()) / "requests"
# The links that people were shown.
SHOWN = set()


def main():
    names = sys.argv[1:] or list(TESTS)
    with parts.authority(REQUESTS_LOG=str(REQUESTS)) as authority:
        issuer = parts.said(authority)["issuer"]
        with parts.protected_server(issuer) as protected:
            server = parts.said(protected)["url"]
            for name in names:
                TESTS[name](issuer, server)
                print(f"  {name}: {TESTS[name].__doc__.splitlines()[0]}")
    parts.check_logs(STARTED, kinds=() if sys.argv[1:] else parts.KINDS, shown=SHOWN)
    print(f"{len(names)} passed, 0 failed")


if __name__ == "__main__":
    main()
