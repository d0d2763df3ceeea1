"""Runs the MCP conformance suite against a union: one server with all features, direct, and the same features spread
over three servers, as one at `/mcp` with bare names. Each check must have the same status both ways, but for one.
"""

import sys
from contextlib import ExitStack
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import features
import harness

NO_SUCH_RESOURCE = -32002
PARTS = ("tools", "prompts", "resources")
# Three lists at once, whose answers may be streams and need not. The gateway makes the list of a union, and answers
# with JSON.
STREAMED_LISTS = {"server-sse-multiple-streams"}


def union(urls):
    """The gateway in front of these servers."""
    servers = "".join(f'[servers.{name}]\nurl = "{url}"\n' for name, url in urls.items())
    return harness.configured_gateway(f'[union]\nnames = "bare"\n{servers}')


def refuses_unknown(url):
    """Whether a resource that nobody has is refused as the server refuses it that has resources."""
    client = features.opened(url)
    (answer,) = client.send({"id": "unknown", "method": "resources/read", "params": {"uri": "test://nowhere"}})
    if answer.get("error", {}).get("code") != NO_SUCH_RESOURCE:
        print(f"three servers as one: an unknown resource: {answer}")
        return False
    return True


def run():
    conformance = features.module("suite", "conformance/run.py")
    with ExitStack() as stack:
        whole = stack.enter_context(harness.fixture_server("whole"))
        code, direct = conformance.run_suite("direct", harness.url_of(whole, "/mcp"))
        parts = {part: stack.enter_context(harness.fixture_server(part, "--part", part)) for part in PARTS}
        urls = {part: harness.url_of(server, "/mcp") for part, server in parts.items()}
        gateway = stack.enter_context(union(urls))
        url = harness.origin_of(gateway) + "/mcp"
        passed = conformance.compare("three servers as one", direct, url, without=STREAMED_LISTS)
        passed &= refuses_unknown(url)
        shares = {part: conformance.opened(server) for part, server in parts.items()}
        print(f"sessions by server: {shares}")
        return 0 if code == 0 and passed and all(shares.values()) else 1


if __name__ == "__main__":
    harness.main(run)
