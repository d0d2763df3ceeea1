"""Runs the MCP conformance suite against the fixture server, direct and through the gateway.

Through the gateway it runs three times: with one server behind it, with two replicas, and with the same
server as a command (stdio). The gateway passes when it changes nothing: each check must have the same
status every way.
"""

import json
import re
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness

REQUIREMENTS = "2025-11-25"
SUITE_SECONDS = 180
# What HTTP has and stdio has not: event ids to resume from, and an answer that is a stream before anything
# else is said.
ONLY_HTTP = {"server-sse-polling", "server-sse-multiple-streams"}


def run_suite(title, url):
    """The suite's exit code, and how often each (scenario, check, status) came up."""
    with tempfile.TemporaryDirectory(prefix="conformance-") as results:
        command = [harness.NODE, harness.CONFORMANCE, "server", "--url", url]
        command += ["--requirements", REQUIREMENTS, "-o", results]
        with harness.Process("conformance", command) as suite:
            code = suite.wait(SUITE_SECONDS)
        checks = read_checks(title, Path(results))
    statuses = Counter()
    for (_, _, status), times in checks.items():
        statuses[status] += times
    summary = ", ".join(f"{times} {status}" for status, times in sorted(statuses.items()))
    print(f"{title}: exit code {code}; {summary}", flush=True)
    if not checks:
        raise harness.Failure(f"{title}: the suite wrote no checks\n" + "\n".join(suite.lines))
    return code, checks


def read_checks(title, results):
    checks = Counter()
    for file in sorted(results.rglob("checks.json")):
        # The directory is "server-SCENARIO-TIME", the time in ISO form with dashes.
        scenario = re.sub(r"^server-|-\d{4}(-\d\d){2}T[\d-]+Z$", "", file.parent.name)
        for check in json.loads(file.read_text()):
            checks[scenario, check["id"], check["status"]] += 1
            if check["status"] == "FAILURE":
                print(f"  {title}: {scenario}: {check['id']}: {check.get('errorMessage')}")
    return checks


def print_differences(direct, through):
    rows = [("scenario", "check", "status", "direct", "gateway")]
    for key in sorted(direct.keys() | through.keys()):
        if direct[key] != through[key]:
            rows.append((*key, str(direct[key]), str(through[key])))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())


def compare(title, direct, url, without=frozenset()):
    """Whether the suite passes here, with the results that it had directly, but for these scenarios."""
    code, through = run_suite(title, url)
    direct, through = (
        Counter({check: times for check, times in one.items() if check[0] not in without})
        for one in (direct, through)
    )
    if direct != through:
        print(f"{title}: other results than direct (number of times each came up):")
        print_differences(direct, through)
    return code == 0 and direct == through


def opened(server):
    """How many sessions a fixture server has opened so far."""
    return sum("create new session" in line for line in server.lines)


def run():
    with harness.fixture_server("first") as first, harness.fixture_server("second") as second:
        first_url, second_url = (harness.url_of(server, "/mcp") for server in (first, second))
        direct_code, direct = run_suite("direct", first_url)
        ways = {
            "through the gateway": first_url,
            "through the gateway to two replicas": f"{first_url},{second_url}",
        }
        passed = direct_code == 0
        for title, upstream in ways.items():
            before = opened(first)
            with harness.gateway("fixture", upstream) as gateway:
                passed &= compare(title, direct, harness.url_of(gateway, "/mcp/fixture"))
        # Only the last of these ways leads to the second.
        shares = (opened(first) - before, opened(second))
        with harness.command_gateway("fixture", [harness.binary("fixture-server"), "--stdio"]) as gateway:
            title = "through the gateway to a command"
            url = harness.url_of(gateway, "/mcp/fixture")
            passed &= compare(title, direct, url, without=ONLY_HTTP)
        print(f"sessions by replica: {shares[0]} and {shares[1]}")
        return 0 if passed and all(shares) else 1


if __name__ == "__main__":
    harness.main(run)
