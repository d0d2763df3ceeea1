"""Bowline signs people in: real authorization server, real protected server, real browser.

Usage: run.py [NAME...]; without names, everything.
"""

import json
import re
import sys
import tempfile
import urllib.parse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import parts
import harness

import httpx2 as httpx

PROTOCOL = "2025-11-25"


def config(server_url, oauth="", extra=""):
    return f"""
listen = "127.0.0.1:0"
admin = "off"
{extra}
[store]
kind = "memory"
[servers.files]
url = "{server_url}"
[servers.files.oauth]
{oauth}
"""


class Client:
    """A thin MCP client over plain HTTP, so that every message is seen."""

    def __init__(self, url, capabilities=None, key=None):
        self._url, self._capabilities = url, capabilities or {}
        self._http = httpx.Client(timeout=60)
        self._headers = {"accept": "application/json, text/event-stream"}
        if key:
            self._headers["authorization"] = f"Bearer {key}"
        self._next = 0

    def open(self):
        params = {
            "protocolVersion": PROTOCOL,
            "capabilities": self._capabilities,
            "clientInfo": {"name": "thin", "version": "1"},
        }
        answer, response = self._post(self._request("initialize", params))
        self._headers["mcp-session-id"] = response.headers["mcp-session-id"]
        self._headers["mcp-protocol-version"] = answer["result"]["protocolVersion"]
        self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return answer["result"]

    def ask(self, method, **params):
        return self._post(self._request(method, params))[0]

    def call(self, tool, **arguments):
        return self.ask("tools/call", name=tool, arguments=arguments)

    def stream(self, method, **params):
        """The messages of an answer that streams, as they come."""
        request = self._request(method, params)
        with self._http.stream("POST", self._url, json=request, headers=self._headers) as response:
            for line in response.iter_lines():
                if line.startswith("data:") and line[5:].strip():
                    yield json.loads(line[5:])

    def answer(self, request, result):
        self._post({"jsonrpc": "2.0", "id": request["id"], "result": result})

    def close(self):
        self._http.close()

    def _request(self, method, params):
        self._next += 1
        return {"jsonrpc": "2.0", "id": self._next, "method": method, "params": params}

    def _post(self, message):
        response = self._http.post(self._url, json=message, headers=self._headers)
        if response.status_code == 202:
            return None, response
        if response.headers["content-type"].startswith("text/event-stream"):
            data = [line[5:] for line in response.text.splitlines() if line.startswith("data:") and line[5:].strip()]
            return json.loads(data[-1]), response
        return response.json(), response


# Every Bowline of this run, whose logs are looked through at its end.
STARTED = []


def bowline(text, env=None):
    path = Path(tempfile.mkdtemp()) / "bowline.toml"
    path.write_text(text)
    env = {"RUST_LOG": "trace", **(env or {})}
    process = harness.Process("bowline", [harness.binary("bowline"), "serve", "-c", path], env)
    STARTED.append(process)
    found = process.wait_for_line(r"files\s+(http://\S+/mcp/files)")
    return process, found.group(1)


def check(condition, *why):
    if not condition:
        raise harness.Failure(" ".join(str(word) for word in why))


def in_words(authority, server):
    """A client that cannot be asked: the sign_in tool, the link in words, the next call works."""
    in_words_at(server, "alice")


def in_words_at(server, name):
    process, url = bowline(config(server))
    with process:
        client = Client(url)
        client.open()
        tools = client.ask("tools/list")["result"]["tools"]
        check([tool["name"] for tool in tools] == ["sign_in"], tools)
        refused = client.call("whoami")
        check(refused["error"]["code"] == -31003, refused)
        told = client.call("sign_in")["result"]["content"][0]["text"]
        link = re.search(r"http://\S+", told).group()
        check(link == refused["error"]["data"]["url"], link, refused)
        page = parts.browse(link, account="alice")
        check("You are signed in" in page["text"], page)
        who = client.call("whoami")
        check(name in json.dumps(who["result"]), who)
        names = [tool["name"] for tool in client.ask("tools/list")["result"]["tools"]]
        check("whoami" in names and "sign_in" not in names, names)


def by_link(authority, server):
    """A client with URL-mode elicitation: asked on its own request, which then goes on."""
    process, url = bowline(config(server))
    with process:
        client = Client(url, {"elicitation": {"url": {}, "form": {}}})
        client.open()
        messages = client.stream("tools/call", name="whoami", arguments={})
        question = next(messages)
        check(question["method"] == "elicitation/create", question)
        check(question["params"]["mode"] == "url", question)
        client.answer(question, {"action": "accept"})
        page = parts.browse(question["params"]["url"], account="bob")
        check("You are signed in" in page["text"], page)
        check("bob" in json.dumps(next(messages)["result"]), "not bob")


def declined(authority, server):
    """A no is remembered, from the client and from the authorization server; sign_in asks again."""
    process, url = bowline(config(server))
    with process:
        client = Client(url, {"elicitation": {"url": {}}})
        client.open()
        messages = client.stream("tools/call", name="whoami", arguments={})
        client.answer(next(messages), {"action": "decline"})
        refused = next(messages)
        check(refused["error"]["code"] == -31003, refused)
        check(client.call("whoami")["error"]["data"]["url"] is None, "asked again")
        told = client.call("sign_in")["result"]["content"][0]["text"]
        page = parts.browse(re.search(r"http://\S+", told).group(), answer="deny")
        check("You declined" in page["text"], page)
        check(client.call("whoami")["error"]["data"]["url"] is None, "asked again")


def driven(authority, server):
    """Drive-flow: the code comes by the client's answer, or by the callback, and only once."""
    oauth = 'redirect_uri = "http://127.0.0.1:9/done"'
    for way in ["answer", "callback"]:
        process, url = bowline(config(server, oauth), {"BOWLINE_API_TOKEN": "secret-api-token"})
        with process:
            client = Client(url, {"elicitation": {}})
            client.open()
            messages = client.stream("tools/call", name="whoami", arguments={})
            question = next(messages)
            meta = question["params"]["_meta"]
            check(meta["bowline/type"] == "oauth_flow", meta)
            end = parts.browse(meta["bowline/authorize_url"], account="carol", stop="http://127.0.0.1:9/done")
            query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(end["url"]).query))
            check(query["state"] == meta["bowline/state"], query)
            if way == "answer":
                client.answer(question, {"action": "accept", "content": {"code": query["code"], "state": query["state"]}})
            else:
                origin = url.split("/mcp/")[0]
                callback = f"{origin}/api/mcp-oauth/callback"
                token = {"authorization": "Bearer secret-api-token"}
                post = lambda params, headers=token: httpx.post(callback, params=params, headers=headers)
                check(post(query, {}).status_code == 401, "without the API token")
                check(post({"code": "x"}).status_code == 400, "without a state")
                check(post({"state": query["state"]}).status_code == 400, "without a code")
                check(post({"state": "forged", "code": query["code"]}).status_code == 404, "forged")
                check(post(query).json() == {"result": "signed_in"}, "not delivered")
                check(post(query).status_code == 404, "replayed")
                withdrawn = next(messages)
                check(withdrawn["method"] == "notifications/cancelled", withdrawn)
                check(withdrawn["params"]["requestId"] == question["id"], withdrawn)
            check("carol" in json.dumps(next(messages)["result"]), "not carol")


def before_rmcp(authority, server):
    """The same before a server of the official Rust SDK, which a guard protects."""
    with harness.fixture_server("rusty") as fixture:
        with parts.guard(authority, harness.url_of(fixture, "/mcp")) as guard:
            in_words_at(parts.said(guard)["url"], "rusty")


TESTS = {test.__name__: test for test in [in_words, by_link, declined, driven, before_rmcp]}



def main():
    names = sys.argv[1:] or list(TESTS)
    with parts.authority() as authority:
        issuer = parts.said(authority)["issuer"]
        with parts.protected_server(issuer) as protected:
            server = parts.said(protected)["url"]
            for name in names:
                TESTS[name](issuer, server)
                print(f"  {name}: {TESTS[name].__doc__.splitlines()[0]}")
    # A few of the tests may not come by every kind of secret.
    parts.check_logs(STARTED, kinds=() if sys.argv[1:] else parts.KINDS)
    print(f"{len(names)} passed, 0 failed")


if __name__ == "__main__":
    main()
