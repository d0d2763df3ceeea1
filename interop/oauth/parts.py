"""Starts the parts of this directory from a Python run; each is a `harness.Process`.

What the first line of a part says is in `said(part)`.
"""

import hashlib
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness

HERE = Path(__file__).resolve().parent
PYTHON = harness.INTEROP / ".venv/bin/python"
BROWSE_SECONDS = 60


# What every authority of this run saw or issued that is secret.
SECRETS_LOG = Path(tempfile.mkdtemp(prefix="secrets-")) / "secrets.jsonl"
# What no scan of a whole run's logs can have missed.
KINDS = ("code", "state", "flow", "access_token", "refresh_token")


def authority(**env):
    """The authorization server; it says its `issuer`. `env` as authority.mjs says."""
    env = {"SECRETS_LOG": str(SECRETS_LOG), **env}
    return harness.Process("authority", [harness.NODE, HERE / "authority.mjs"], env)


def protected_server(issuer, port=0):
    """The FastMCP server that takes tokens of `issuer`; it says its `url`."""
    return harness.Process("protected", [PYTHON, HERE / "protected.py", issuer, port])


def guard(issuer, server_url, **env):
    """A guard before the MCP server at `server_url`; it says its `url`. `env` as guard.mjs says."""
    return harness.Process("guard", [harness.NODE, HERE / "guard.mjs", issuer, server_url], env)


def said(part):
    return json.loads(part.wait_for_line(r"^\{.*\}$").group())


def entries(file):
    """The entries of one of these logs."""
    path = Path(file)
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def flow_of(state):
    """The id of the flow with this state: whoever has it can go on from the start page."""
    return hashlib.sha256(state.encode()).hexdigest()[:32]


def check_logs(processes, *more, kinds=KINDS, shown=()):
    """Ends processes and fails if any secret that was seen is anywhere in what they said.

    `kinds` are those that have to be known, `shown` what a person was to see.
    """
    for process in processes:
        process.stop(harness.STOP_SECONDS * 4)
    secrets = {(entry["kind"], entry["value"]) for entry in entries(SECRETS_LOG)}
    secrets |= {("flow", flow_of(value)) for kind, value in secrets if kind == "state"}
    secrets |= {("of the run", value) for value in more}
    for kind in set(kinds) - {kind for kind, _ in secrets}:
        raise harness.Failure(f"the scan of the logs knows no {kind}")
    for process in processes:
        for line in process.lines:
            if line.strip() in shown:
                continue
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
