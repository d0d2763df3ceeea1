"""A small TLS MCP server in threads of this process; it keeps what it saw of each connection."""

import json
import secrets
import socket
import socketserver
import ssl
import threading
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler

SESSION_ID = "mcp-session-id"


class Connection:
    """What a server saw of one connection; `handshake` is "under way", "done" or why it failed."""

    def __init__(self, address):
        self.address, self.sni, self.handshake = address, None, "under way"
        self.requests = []  # (method, session, Host)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method, session = message["method"], self.headers[SESSION_ID]
        sessions = self.server.sessions
        if method == "initialize":
            sessions.add(session := secrets.token_hex(16))
        self.note(method, session)
        if method == "initialize":
            info = {"name": self.server.address, "version": "0"}
            result = {"capabilities": {"tools": {}}, "serverInfo": info}
            result["protocolVersion"] = message["params"]["protocolVersion"]
            self.answer(200, message, result, session)
        elif session not in sessions:
            self.answer(404)
        elif method == "tools/call":
            content = [{"type": "text", "text": self.server.address}]
            self.answer(200, message, {"content": content})
        else:
            self.answer(202)

    def do_GET(self):
        self.note("GET", self.headers[SESSION_ID])
        self.answer(405)

    def do_DELETE(self):
        session, sessions = self.headers[SESSION_ID], self.server.sessions
        self.note("DELETE", session)
        known = session in sessions
        sessions.discard(session)
        self.answer(204 if known else 404)

    def note(self, method, session):
        self.request.seen.requests.append((method, session, self.headers["host"]))

    def answer(self, status, request=None, result=None, session=None):
        body = b""
        if request is not None:
            body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()
        self.send_response(status)
        if session:
            self.send_header(SESSION_ID, session)
        if body:
            self.send_header("content-type", "application/json")
        if status != 204:
            self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class Replica(socketserver.ThreadingTCPServer):
    """A TLS MCP server at one address. It knows only the sessions that it opened itself."""

    allow_reuse_address = daemon_threads = True

    def __init__(self, address, port, certificate, connections):
        self.address_family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.address, self.connections, self.sessions = address, connections, set()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate)
        self.context.sni_callback = lambda tls, name, _: setattr(tls.seen, "sni", name)
        super().__init__((address, port), Handler)

    def finish_request(self, request, client_address):
        seen = Connection(request.getsockname()[0])
        self.connections.append(seen)
        request.settimeout(30)
        with self.context.wrap_socket(request, True, do_handshake_on_connect=False) as tls:
            tls.seen = seen
            try:
                tls.do_handshake()
            except OSError as error:
                seen.handshake = str(error)
                return
            seen.handshake = "done"
            try:
                super().finish_request(tls, client_address)
            except OSError:
                pass  # A connection may break off; what it left undone is noticed elsewhere.


def serve(stack, addresses, certificate):
    """Replicas at one port of every address: the port, and what they see."""
    connections = []
    for _ in range(20):
        with ExitStack() as attempt:
            port = 0
            try:
                for address in addresses:
                    replica = Replica(address, port, certificate, connections)
                    attempt.callback(replica.server_close)
                    port = replica.server_address[1]
                    threading.Thread(target=replica.serve_forever, daemon=True).start()
                    attempt.callback(replica.shutdown)
            except OSError:
                continue
            stack.push(attempt.pop_all())
            return port, connections
    raise OSError(f"no port is free on all of {addresses}")
