"""Starts the parts of this directory from a Python run; each is a `harness.Process`.

What the first line of a part says is in `said(part)`.
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness

HERE = Path(__file__).resolve().parent
PYTHON = harness.INTEROP / ".venv/bin/python"
BROWSE_SECONDS = 60


def authority(**env):
    """The authorization server; it says its `issuer`. `env` as authority.mjs says."""
    return harness.Process("authority", [harness.NODE, HERE / "authority.mjs"], env)


def protected_server(issuer, port=0):
    """The FastMCP server that takes tokens of `issuer`; it says its `url`."""
    return harness.Process("protected", [PYTHON, HERE / "protected.py", issuer, port])


def guard(issuer, server_url, **env):
    """A guard before the MCP server at `server_url`; it says its `url`. `env` as guard.mjs says."""
    return harness.Process("guard", [harness.NODE, HERE / "guard.mjs", issuer, server_url], env)


def said(part):
    return json.loads(part.wait_for_line(r"^\{.*\}$").group())


def log_in(directory):
    """The environment with which an authority writes its logs into a directory."""
    names = {"REQUESTS_LOG": "requests.jsonl", "SECRETS_LOG": "secrets.jsonl"}
    return {name: str(Path(directory) / file) for name, file in names.items()}


def entries(file):
    """The entries of one of these logs."""
    path = Path(file)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def check_logs(processes, secrets_log, *more):
    """Ends processes and fails if any secret that was seen is anywhere in what they said."""
    for process in processes:
        process.stop(harness.STOP_SECONDS * 4)
    secrets = {(entry["kind"], entry["value"]) for entry in entries(secrets_log)}
    secrets |= {("of the run", value) for value in more}
    kinds = {kind for kind, _ in secrets}
    for kind in ("code", "state", "access_token", "refresh_token"):
        if kind not in kinds:
            raise harness.Failure(f"the scan of the logs knows no {kind}")
    for process in processes:
        for line in process.lines:
            for kind, value in secrets:
                if value in line:
                    raise harness.Failure(f"a {kind} is in the log: {line.replace(value, '...')}")
    lines = sum(len(process.lines) for process in processes)
    print(f"  no secret in the logs: {len(secrets)} secrets, {lines} lines")


def browse(url, **options):
    """What browser.mjs says of the last page: `url` and `text`."""
    flags = [f"--{name}={value}" for name, value in options.items()]
    with harness.Process("browser", [harness.NODE, HERE / "browser.mjs", url, *flags]) as browser:
        if browser.wait(BROWSE_SECONDS) != 0:
            raise harness.Failure("the browser failed")
        return said(browser)
