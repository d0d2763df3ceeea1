"""The ways in which Bowline asks a client to sign in that need more than a link, with real parts.

Usage: asking.py [NAME...]; without names, everything.
"""

import base64
import hashlib
import json
import secrets
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import parts
import harness

import httpx2 as httpx
from run import STARTED, Client, bowline, check, config

DONE = "http://127.0.0.1:9/done"
DRIVE = f'redirect_uri = "{DONE}"'
KNOWN_CLIENT = {
    "client_id": "known-beforehand",
    "client_secret": "the secret of the known client",
    "redirect_uris": [DONE],
    "grant_types": ["authorization_code", "refresh_token"],
    "token_endpoint_auth_method": "client_secret_post",
}


def came_back(link, account):
    """What the authorization server sends a person back with."""
    end = parts.browse(link, account=account, stop=DONE)
    return dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(end["url"]).query))


def requests(log):
    """What came to the authorization server's endpoints."""
    return [json.loads(line) for line in log.read_text().splitlines()]


def own_sign_in(meta, account):
    """Signs in as a client that does so by itself, from nothing but what it was asked with."""
    server, resource = meta["auth_server_metadata"], meta["resource_metadata"]["resource"]
    registration = {
        "client_name": "a client that drives",
        "redirect_uris": [DONE],
        "grant_types": ["authorization_code", "refresh_token"],
        "token_endpoint_auth_method": "none",
        "application_type": "native",
    }
    client = httpx.post(server["registration_endpoint"], json=registration).json()["client_id"]
    verifier = secrets.token_urlsafe(48)
    digest = hashlib.sha256(verifier.encode()).digest()
    asked = {
        "response_type": "code",
        "client_id": client,
        "redirect_uri": DONE,
        "scope": " ".join(meta["resource_metadata"]["scopes_supported"]),
        "state": secrets.token_urlsafe(16),
        "resource": resource,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    query = came_back(f'{server["authorization_endpoint"]}?{urllib.parse.urlencode(asked)}', account)
    form = {
        "grant_type": "authorization_code",
        "code": query["code"],
        "redirect_uri": DONE,
        "client_id": client,
        "code_verifier": verifier,
        "resource": resource,
    }
    tokens = httpx.post(server["token_endpoint"], data=form).json()
    return {**tokens, "client_id": client}


def client_driven(log):
    """The client signs in by itself and hands over the tokens, which Bowline then refreshes."""
    with parts.authority(REQUESTS_LOG=log) as authority:
        issuer = parts.said(authority)["issuer"]
        with parts.protected_server(issuer) as protected:
            server = parts.said(protected)["url"]
            process, url = bowline(config(server, 'flow = "client-driven"'))
            with process:
                client = Client(url, {"elicitation": {"form": {}}})
                client.open()
                messages = client.stream("tools/call", name="whoami", arguments={})
                question = next(messages)
                meta = question["params"]["_meta"]
                check(meta["auth_server"] == issuer, meta)
                check(not {"bowline/state", "bowline/authorize_url"} & meta.keys(), meta)
                tokens = own_sign_in(meta, "dora")
                # As if it lived for a second, so that a call soon needs another.
                client.answer(question, {"action": "accept", "content": {**tokens, "expires_in": 1}})
                check("dora" in json.dumps(next(messages)["result"]), "not dora")
                grants, until = [], time.monotonic() + 10
                while "refresh_token" not in grants:
                    check(time.monotonic() < until, "never refreshed:", grants)
                    check("dora" in json.dumps(client.call("whoami")["result"]), "not dora any more")
                    grants = [request.get("grant_type") for request in requests(log)]
                check(grants.count("refresh_token") == 1, grants)


def client_by_form(log):
    """An authorization server that registers nobody: the client id is asked for by form."""
    env = {"REGISTRATION": "off", "CLIENTS": json.dumps([KNOWN_CLIENT])}
    with parts.authority(**env) as authority:
        issuer = parts.said(authority)["issuer"]
        with parts.protected_server(issuer) as protected:
            server = parts.said(protected)["url"]
            process, url = bowline(config(server, DRIVE))
            with process:
                client = Client(url, {"elicitation": {"form": {}}})
                client.open()
                messages = client.stream("tools/call", name="whoami", arguments={})
                question = next(messages)
                meta = question["params"]["_meta"]
                check(meta["bowline/type"] == "oauth_client_credentials", meta)
                known = {name: KNOWN_CLIENT[name] for name in ("client_id", "client_secret")}
                client.answer(question, {"action": "accept", "content": known})
                question = next(messages)
                meta = question["params"]["_meta"]
                check("client_id=known-beforehand" in meta["bowline/authorize_url"], meta)
                query = came_back(meta["bowline/authorize_url"], "emil")
                content = {name: query[name] for name in ("code", "state")}
                client.answer(question, {"action": "accept", "content": content})
                check("emil" in json.dumps(next(messages)["result"]), "not emil")
                silent = Client(url)
                silent.open()
                check("emil" in json.dumps(silent.call("whoami")["result"]), "not kept")


def too_late(log):
    """A flow whose time is over: 404 at the callback, and the token endpoint is never asked."""
    with parts.authority(REQUESTS_LOG=log) as authority:
        issuer = parts.said(authority)["issuer"]
        with parts.protected_server(issuer) as protected:
            server = parts.said(protected)["url"]
            # Long enough for a browser to get there and back.
            process, url = bowline(config(server, DRIVE, '[oauth]\ndeadline = "15s"'))
            with process:
                client = Client(url, {"elicitation": {}})
                client.open()
                messages = client.stream("tools/call", name="whoami", arguments={})
                meta = next(messages)["params"]["_meta"]
                query = came_back(meta["bowline/authorize_url"], "flora")
                refused = [message for message in messages if "error" in message]
                check(refused[0]["error"]["code"] == -31003, refused)
                callback = url.split("/mcp/")[0] + "/api/mcp-oauth/callback"
                late = httpx.post(callback, params=query)
                check(late.status_code == 404, late.status_code)
                endpoints = {request["endpoint"] for request in requests(log)}
                check("registration" in endpoints and "token" not in endpoints, endpoints)


def unlisted_pkce(log):
    """An authorization server that requires PKCE and does not list it: only where the operator allows it."""
    with parts.authority(REQUESTS_LOG=log, PKCE="unlisted") as authority:
        issuer = parts.said(authority)["issuer"]
        with parts.protected_server(issuer) as protected:
            server = parts.said(protected)["url"]
            for is_allowed in [False, True]:
                process, url = bowline(config(server, f"unlisted_pkce = {str(is_allowed).lower()}"))
                with process:
                    client = Client(url)
                    client.open()
                    refused = client.call("whoami")["error"]
                    link = refused["data"]["url"]
                    if not is_allowed:
                        check("does not list its PKCE methods" in refused["message"] and link is None, refused)
                        continue
                    page = parts.browse(link, account="gita")
                    check("You are signed in" in page["text"], page)
                    check("gita" in json.dumps(client.call("whoami")["result"]), "not gita")


def docker_agent(log):
    """One prompt for docker-agent's terminal UI, which shows a link, and for its remote clients, which need none."""
    with parts.authority(REQUESTS_LOG=log) as authority:
        issuer = parts.said(authority)["issuer"]
        with parts.protected_server(issuer) as protected:
            server = parts.said(protected)["url"]
            for account in ["hugo", "ines"]:
                process, url = bowline(config(server, "", '[oauth]\nhost = "docker-agent"'))
                with process:
                    client = Client(url, {"elicitation": {"form": {}, "url": {}}})
                    client.open()
                    messages = client.stream("tools/call", name="whoami", arguments={})
                    question = next(messages)
                    params = question["params"]
                    meta = params["_meta"]
                    check("docker-agent/type" not in meta and params["mode"] == "url", params)
                    check(meta["docker-agent/server_url"] == server, meta)
                    if account == "hugo":
                        client.answer(question, {"action": "accept"})
                        page = parts.browse(params["url"], account=account)
                        check("You are signed in" in page["text"], page)
                    else:
                        tokens = own_sign_in(meta, account)
                        told = ("access_token", "token_type", "expires_in", "refresh_token")
                        content = {name: tokens[name] for name in told}
                        client.answer(question, {"action": "accept", "content": content})
                    check(account in json.dumps(next(messages)["result"]), "not", account)


TESTS = {
    test.__name__: test
    for test in [client_driven, client_by_form, too_late, unlisted_pkce, docker_agent]
}


def main():
    names = sys.argv[1:] or list(TESTS)
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            TESTS[name](Path(directory) / "requests.log")
        print(f"  {name}: {TESTS[name].__doc__.splitlines()[0]}")
    secret = KNOWN_CLIENT["client_secret"]
    parts.check_logs(STARTED, secret, kinds=() if sys.argv[1:] else parts.KINDS)
    print(f"{len(names)} passed, 0 failed")
    return 0


if __name__ == "__main__":
    harness.main(main)
