"""`bowline probe` on servers that are not ours.

- server-everything over streamable HTTP, over stdio and over the old transport, HTTP+SSE.
- A server of the Python SDK, which also speaks the revision without sessions, over both transports.
- A server of the Rust SDK, with sessions.
- A server that an authorization server (oidc-provider) protects.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "oauth")]
import harness
import parts

PYTHON_SERVER = HERE.parent / "stdio/server.py"
OLD = ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"]
SECONDS = 60


def probe(*options):
    """The report on a server, and the exit code."""
    with tempfile.TemporaryDirectory() as state:
        command = [harness.binary("bowline"), "probe", "--json", *options]
        ran = subprocess.run(
            [str(word) for word in command],
            env={**harness.os.environ, "XDG_STATE_HOME": state},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=SECONDS,
            text=True,
        )
    if ran.stderr:
        raise harness.Failure(f"on stderr: {ran.stderr}")
    return json.loads(ran.stdout), ran.returncode


def check(report, **expected):
    """Fails unless the report has these values; `a__b` is `b` in `a`."""
    for path, value in expected.items():
        found = report
        for name in path.split("__"):
            found = found[name]
        if found != value:
            raise harness.Failure(f"{path} is {found!r}, not {value!r}, in {json.dumps(report, indent=1)}")


def works(report, code, *findings, **expected):
    """Fails unless the server works, with no findings but these."""
    if code != 0:
        raise harness.Failure(f"exit code {code}: {json.dumps(report, indent=1)}")
    found = [finding["id"] for finding in report["findings"]]
    if found != list(findings):
        raise harness.Failure(f"findings {found}, not {findings}: {json.dumps(report, indent=1)}")
    check(report, **expected)


def accepts(report):
    return [offer["offered"] for offer in report["versions"] if offer["offered"] == offer["answered"]]


def everything():
    with harness.everything_server() as server:
        report, code = probe(harness.url_of(server, "/mcp"))
        works(report, code, transport="streamable_http", era="legacy", sessions__has_ids=True)
        # It answers 400 where the specification wants 404.
        check(report, sessions__unknown_id__status=400, sessions__unknown_id__is_recognized=True)
        check(report, sessions__delete_status=200, tools__count=13, streams__has_event_ids=True)
        check(report, streams__offers_get=True, ping__answered=5)
        if accepts(report) != OLD:
            raise harness.Failure(f"it accepts {report['versions']}")
    report, code = probe("--", harness.NODE, harness.EVERYTHING, "stdio")
    works(report, code, transport="stdio", era="legacy", sessions=None, tools__count=13)
    print("  server-everything over streamable HTTP and stdio")


def old_transport():
    command = [harness.NODE, "--require", harness.INTEROP / "loopback.cjs", harness.EVERYTHING, "sse"]
    with harness.Process("server-everything sse", command, env={"PORT": "0"}) as server:
        origin = server.wait_for_line(r"http://127\.0\.0\.1:\d+").group()
        report, code = probe(origin + "/sse")
    works(report, code, transport="http_sse", era="legacy", sessions=None, tools__count=13)
    print("  server-everything over the old transport")


def python():
    report, code = probe("--", sys.executable, PYTHON_SERVER)
    works(report, code, transport="stdio", era="both", tools__count=2, tools__safe_to_repeat=1)
    with harness.Process("python", [sys.executable, PYTHON_SERVER, "streamable-http"]) as server:
        origin = server.wait_for_line(r"http://127\.0\.0\.1:\d+").group()
        report, code = probe(origin + "/mcp")
        works(report, code, transport="streamable_http", era="both", tools__count=2)
        check(report, sessions__has_ids=True, sessions__unknown_id__status=404)
    print("  a server of the Python SDK, of both eras, over streamable HTTP and stdio")


def rust():
    with harness.fixture_server("probed") as server:
        report, code = probe(harness.url_of(server, "/mcp"))
    works(report, code, transport="streamable_http", sessions__has_ids=True)
    check(report, sessions__unknown_id__status=404)
    print("  a server of the Rust SDK")


def protected():
    with parts.authority() as authority:
        issuer = parts.said(authority)["issuer"]
        with parts.protected_server(issuer) as server:
            report, code = probe(parts.said(server)["url"])
    works(report, code, "sign_in_needed", sign_in__issuer=issuer, sign_in__has_challenge=True)
    check(report, sign_in__has_resource_metadata=True, sign_in__registers_clients=True)
    print("  a server behind oidc-provider")


def run():
    for part in (everything, old_transport, python, rust, protected):
        part()
    return 0


if __name__ == "__main__":
    harness.main(run)
