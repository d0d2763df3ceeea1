"""The conformance suite's client mode on Bowline: every scored auth scenario of both requirement sets.

The 2026-07-28 set wants the modern transport. Where its OAuth can be seen without, the checks alone
decide, as they do in the suite's own score; the rest runs over the older transport, by force.

Usage: conformance.py [--reference] [--modern] [SCENARIO...]
    --reference: the official TypeScript client instead of Bowline, to compare with
    --modern: for a client that has the modern transport: all as the suite wants it
"""

import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness

HERE = Path(__file__).resolve().parent
LEGACY, MODERN = "2025-11-25", "2026-07-28"
# They protect everything but `initialize`, which a modern server does not answer.
NEED_MODERN = {
    "auth/authorization-server-migration",
    "auth/scope-retry-limit",
    "auth/scope-step-up",
}
SCENARIO_SECONDS = 60
AT_ONCE = 3


def scored(revision):
    file = harness.CONFORMANCE.parent.parent / f"requirements/{revision}.yaml"
    names = yaml.safe_load(file.read_text())["client"]
    return [name for name in names if name.startswith("auth/")]


class Run:
    """One scenario of one requirement set."""

    def __init__(self, requirements, scenario, has_modern):
        self.requirements, self.scenario = requirements, scenario
        self.wire = requirements
        if requirements == MODERN and scenario in NEED_MODERN and not has_modern:
            self.wire = LEGACY
        # The client's exit code tells whether it got an answer, too.
        self.answered = self.wire == LEGACY or has_modern

    def __str__(self):
        forced = "" if self.wire == self.requirements else f" over {self.wire}"
        return f"{self.requirements}{forced} {self.scenario}"

    def passes(self, client, env):
        """Whether it does, and all that was said."""
        with tempfile.TemporaryDirectory(prefix="conformance-") as results:
            command = [harness.NODE, "--require", HERE / "suite-loopback.cjs", harness.CONFORMANCE]
            command += ["client", "--command", f"{harness.NODE} {HERE / client}"]
            command += ["--scenario", self.scenario, "--spec-version", self.wire, "--force"]
            command += ["--timeout", str(SCENARIO_SECONDS * 1000), "-o", results]
            with harness.Process(str(self), command, env) as suite:
                code = suite.wait(SCENARIO_SECONDS + 30)
            files = {file.name: file.read_text() for file in Path(results).glob("*/*/*.*")}
        statuses = [check["status"] for check in json.loads(files.get("checks.json", "[]"))]
        content = "SUCCESS" in statuses and not {"FAILURE", "WARNING"} & set(statuses)
        client_said = files.get("stderr.txt", "nothing")
        said = [*suite.lines, "--- the client said", client_said]
        is_quiet = "a secret is in the log" not in "\n".join(said)
        return content and is_quiet and (code == 0 or not self.answered), said


def run():
    arguments = sys.argv[1:]
    chosen = [argument for argument in arguments if not argument.startswith("--")]
    client, env = "conformance-driver.mjs", {}
    if "--reference" in arguments:
        client = "reference-client.mjs"
    else:
        env["BOWLINE"] = os.environ.get("BOWLINE") or str(harness.binary("bowline"))
    runs = [
        Run(requirements, scenario, "--modern" in arguments)
        for requirements in (LEGACY, MODERN)
        for scenario in scored(requirements)
        if not chosen or scenario in chosen
    ]
    passed = 0
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for one, (passes, said) in zip(runs, pool.map(lambda one: one.passes(client, env), runs)):
            print(f"  {'ok  ' if passes else 'FAIL'} {one}", flush=True)
            passed += passes
            if not passes:
                print("\n".join(said))
    print(f"  {passed} of {len(runs)} scenarios passed")
    return 0 if runs and passed == len(runs) else 1


if __name__ == "__main__":
    harness.main(run)
