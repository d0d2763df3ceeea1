"""What a page on another port of the gateway's host can do to a person's browser, in Chromium.

Cookies are shared by all ports of a host. Mallory, a caller of the gateway, continues from the start page
of its own sign-in by a script, puts the cookie that it gets into a person's browser, and sends that browser to
the authorization server. The person signs in there and allows: Mallory must not get that account.

Usage: planted.py [NAME...]; without names, everything.
"""

import json
import re
import sys
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import parts
import harness
import run

import httpx2 as httpx

KEY = "the-key-of-mallory-0123456789"
CALLERS = f'[callers.mallory]\nkey = "{KEY}"'
# A browser lets the scripts of a window rest that a frame without scripts opened.
LURE = """<!doctype html><iframe id="lure" sandbox="allow-popups allow-forms allow-same-origin"
srcdoc="<a target='_blank' href='{}'>A prize</a>"></iframe>"""


@contextmanager
def page(cookie, authorize_url, is_sandboxed):
    """A page on another port: it sets the cookie, and leads on."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if is_sandboxed else 302)
            self.send_header("content-type", "text/html")
            self.send_header("set-cookie", cookie)
            if not is_sandboxed:
                self.send_header("location", authorize_url)
            self.end_headers()
            lure = LURE.format(authorize_url.replace("&", "&amp;amp;"))
            self.wfile.write(lure.encode() if is_sandboxed else b"")

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def attacked(server, is_sandboxed=False, **browser):
    """What the person's browser shows at the end, and what Mallory's next call is answered."""
    process, url = run.bowline(run.config(server) + CALLERS)
    with process:
        mallory = run.Client(url, key=KEY)
        mallory.open()
        link = mallory.call("whoami")["error"]["data"]["url"]
        left = httpx.post(link)
        run.check(left.status_code == 303, left)
        with page(left.headers["set-cookie"], left.headers["location"], is_sandboxed) as lure:
            shown = parts.browse(lure, account="alice", **browser)
        run.check(shown["url"].startswith(url.split("/mcp/")[0] + "/oauth/callback"), "not returned", shown["url"][:40])
        return shown["text"], mallory.call("whoami")


def with_scripts(server):
    """A browser as it is by default: the page at the end finds no mark of the start page, and refuses."""
    text, answer = attacked(server)
    run.check(answer.get("error", {}).get("code") == -31003, "Mallory got an account:", answer)
    run.check("did not continue from the start page" in text, text)
    run.check("Finish" not in text, text)


def without_scripts(server):
    """A browser without scripts: the page at the end says who asks, and nothing is done without its button."""
    text, answer = attacked(server, scripts="off", finish="leave")
    run.check(answer.get("error", {}).get("code") == -31003, "Mallory got an account:", answer)
    run.check("The caller mallory will be able to use the server files" in text, text)
    run.check("Finish only if you asked for this yourself" in text, text)


def in_a_sandbox(server):
    """A window whose scripts the other page switched off: the same."""
    text, answer = attacked(server, is_sandboxed=True, finish="leave")
    run.check(answer.get("error", {}).get("code") == -31003, "Mallory got an account:", answer)
    run.check("The caller mallory will be able to use the server files" in text, text)


def a_double_click(server):
    """A click that was meant for the page before: the button is not there yet, and its form is refused."""
    for is_sandboxed in (False, True):
        options = {} if is_sandboxed else {"scripts": "off"}
        text, answer = attacked(server, is_sandboxed=is_sandboxed, finish="rush", **options)
        run.check(answer.get("error", {}).get("code") == -31003, "Mallory got an account:", answer)
        run.check("The caller mallory will be able to use the server files" in text, text)


def a_person_without_scripts(server):
    """Somebody whose browser runs no scripts signs in by the buttons of both pages."""
    process, url = run.bowline(run.config(server))
    with process:
        client = run.Client(url)
        client.open()
        told = client.call("sign_in")["result"]["content"][0]["text"]
        shown = parts.browse(re.search(r"http://\S+", told).group(), scripts="off")
        run.check("You are signed in" in shown["text"], shown)
        run.check("alice" in json.dumps(client.call("whoami")["result"]), "not alice")


TESTS = [with_scripts, without_scripts, in_a_sandbox, a_double_click, a_person_without_scripts]
TESTS = {test.__name__: test for test in TESTS}


def main():
    names = sys.argv[1:] or list(TESTS)
    with parts.authority() as authority:
        with parts.protected_server(parts.said(authority)["issuer"]) as protected:
            server = parts.said(protected)["url"]
            for name in names:
                TESTS[name](server)
                print(f"  {name}: {TESTS[name].__doc__.splitlines()[0]}", flush=True)
    parts.check_logs(run.STARTED, kinds=() if sys.argv[1:] else parts.KINDS)
    print(f"{len(names)} passed, 0 failed")
    return 0


if __name__ == "__main__":
    harness.main(main)
