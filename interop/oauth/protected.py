"""A protected MCP server (FastMCP, streamable HTTP) on 127.0.0.1, for the OAuth tests.

It takes JWTs that the authorization server signed for this very resource. Once ready it prints one
line: {"url": "http://127.0.0.1:PORT/mcp"}.

Tools: `whoami` (the token's subject), `echo`, `bump` (counts in the session), and `admin`, which
answers 403 insufficient_scope to a token without the scope mcp:admin.

Usage: protected.py ISSUER [PORT]
"""

import asyncio
import json
import socket
import sys
from collections import Counter

from fastmcp import Context, FastMCP
from fastmcp.server.auth import RemoteAuthProvider
from fastmcp.server.auth.providers.jwt import JWTVerifier
from fastmcp.server.dependencies import get_access_token
from starlette.middleware import Middleware

PATH = "/mcp"
SCOPE = "mcp"
TOOL_SCOPES = {"admin": "mcp:admin"}


class StepUp:
    """Refuses calls of the tools in TOOL_SCOPES with 403 unless the token has the scope.

    FastMCP itself answers such a call with 200 and an error, which is not what RFC 6750 says.
    """

    def __init__(self, app, metadata):
        self._app, self._metadata = app, metadata

    async def __call__(self, scope, receive, send):
        if scope["type"] != "http" or scope["method"] != "POST":
            return await self._app(scope, receive, send)
        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event.get("body", b""), event.get("more_body", False)
        needed = self._needed(body)
        if "user" in scope and needed and needed not in scope["auth"].scopes:
            return await self._refuse(send, f"{SCOPE} {needed}")
        events = [{"type": "http.request", "body": body, "more_body": False}]

        async def again():
            return events.pop() if events else await receive()

        await self._app(scope, again, send)

    def _needed(self, body):
        try:
            message = json.loads(body)
            return message["method"] == "tools/call" and TOOL_SCOPES.get(message["params"]["name"])
        except (ValueError, KeyError, TypeError):
            return None

    async def _refuse(self, send, scopes):
        challenge = f'Bearer error="insufficient_scope", scope="{scopes}", '
        challenge += f'resource_metadata="{self._metadata}"'
        headers = [
            (b"www-authenticate", challenge.encode()),
            (b"content-type", b"application/json"),
        ]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"error":"insufficient_scope"}'})


def subject():
    return get_access_token().claims["sub"]


def tools(server):
    counts = Counter()

    @server.tool
    def whoami() -> str:
        return subject()

    @server.tool
    def echo(message: str) -> str:
        return message

    @server.tool
    def bump(context: Context) -> int:
        counts[context.session_id] += 1
        return counts[context.session_id]

    @server.tool
    def admin() -> str:
        return f"{subject()} is an admin"


async def run(issuer, port):
    listener = socket.create_server(("127.0.0.1", port))
    origin = "http://127.0.0.1:{}".format(listener.getsockname()[1])
    verifier = JWTVerifier(
        jwks_uri=f"{issuer}/jwks", issuer=issuer, audience=origin + PATH, required_scopes=[SCOPE]
    )
    auth = RemoteAuthProvider(
        verifier,
        authorization_servers=[issuer],
        base_url=origin,
        scopes_supported=[SCOPE, *TOOL_SCOPES.values()],
    )
    server = FastMCP("protected", auth=auth)
    tools(server)
    metadata = f"{origin}/.well-known/oauth-protected-resource{PATH}"
    # The socket listens already, so a client that comes early only waits.
    print(json.dumps({"url": origin + PATH}), flush=True)
    await server.run_http_async(
        show_banner=False,
        path=PATH,
        log_level="warning",
        middleware=[Middleware(StepUp, metadata=metadata)],
        sockets=[listener],
    )


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0))
