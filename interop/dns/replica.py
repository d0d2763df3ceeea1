"""A small MCP server that shows who it is, and refuses what was not meant for it.

Usage: replica.py NAME ADDRESS PORT HOST

Strict in two things: a request must name HOST in its Host header, and a session that this very
replica did not open is unknown. Tools: `whoami` answers NAME, `count` counts the session's calls.
"""

import json
import secrets
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

NAME, ADDRESS, PORT, HOST = sys.argv[1:]
SESSION_ID = "mcp-session-id"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body in one write; two would wait for each other's acknowledgement.
    wbufsize = -1
    counts = {}

    def do_POST(self):
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if self.headers["host"] != f"{HOST}:{PORT}":
            self.answer(421)
        elif message["method"] == "initialize":
            session = secrets.token_hex(16)
            self.counts[session] = 0
            result = {
                "protocolVersion": message["params"]["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": NAME, "version": "0"},
            }
            self.answer(200, message, result, session)
        elif (session := self.headers[SESSION_ID]) not in self.counts:
            self.answer(404)
        elif message["method"] == "tools/call":
            self.counts[session] += 1
            texts = {"whoami": NAME, "count": str(self.counts[session])}
            text = texts[message["params"]["name"]]
            self.answer(200, message, {"content": [{"type": "text", "text": text}]})
        else:
            self.answer(202)

    def do_GET(self):
        self.answer(405)

    def do_DELETE(self):
        self.answer(204 if self.counts.pop(self.headers[SESSION_ID], None) is not None else 404)

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


server = ThreadingHTTPServer((ADDRESS, int(PORT)), Handler)
print(f"listening on {ADDRESS}", flush=True)
server.serve_forever()
