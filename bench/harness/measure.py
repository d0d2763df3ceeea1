"""Single measurements, each one run of `bowline-bench`, and the record of them."""

import json
import subprocess
import time

from .processes import Failed

# Nothing here takes minutes unless it hangs.
HANGS = 300


class Load:
    """Runs the load generator and writes every result to a file of JSON lines."""

    def __init__(self, release, record):
        self.program = release / "bowline-bench"
        self.record = open(record, "w")
        self.rows = []

    def _run(self, words, labels):
        command = [str(word) for word in (self.program, *words)]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=HANGS)
        except subprocess.TimeoutExpired:
            ran = None
        if ran is None or ran.returncode != 0:
            why = ran.stderr.strip() if ran else "it hangs"
            result = {"errors": 1, "first_error": why}
        else:
            result = json.loads(ran.stdout)
        return self.note(labels, result)

    def note(self, labels, result):
        """Keeps one result."""
        row = {**labels, **result}
        self.rows.append(row)
        print(json.dumps(row), file=self.record, flush=True)
        return row

    def calls(self, urls, pids, labels, *options):
        words = ["calls", *_each("--url", urls), *_pids(pids), *options]
        return self._run(words, {"measure": "calls", **labels})

    def open(self, urls, pids, sessions, labels, *options):
        words = ["open", *_each("--url", urls), *_pids(pids), "--sessions", sessions, *options]
        return self._run(words, {"measure": "open", **labels})

    def lists(self, url, pids, labels, *options):
        words = ["lists", "--url", url, *_pids(pids), *options]
        return self._run(words, {"measure": "lists", **labels})

    def hold(self, url, pids, streams, settle, labels):
        words = ["hold", "--url", url, *_pids(pids), "--streams", streams, "--settle", settle]
        return self._run(words, {"measure": "hold", **labels})

    def idle(self, process, url, sessions, settle, save, labels):
        """Bytes per session that nobody uses; connections are closed before and after."""
        self._must(self.open([url], [], 1000, {**labels, "measure": "warm-up"}))
        time.sleep(settle)
        before = process.rss()
        opened = self._must(self.open([url], process.pids(), sessions, labels, "--save", save))
        time.sleep(settle)
        # 64 more are opened, one on each connection, before it measures.
        grown = (process.rss() - before) * 1024 / (opened["sessions"] + 64)
        return self.note({"measure": "idle", **labels}, {"bytes_per_session": grown})

    def recover(self, url, direct, kill, labels, *options):
        """Times the request after `kill`, which is told the address of the session's replica."""
        words = [self.program, "recover", "--url", url, "--direct", direct, *options]
        pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        with subprocess.Popen(words, text=True, **pipes) as client:
            pinned = client.stdout.readline()
            if pinned:
                kill(json.loads(pinned)["pinned"])
            told, why = client.communicate("gone\n", timeout=HANGS)
        failed = {"errors": 1, "first_error": why.strip()}
        result = json.loads(told) if client.returncode == 0 else failed
        return self.note({"measure": "recovery", **labels}, result)

    @staticmethod
    def _must(row):
        if row.get("errors"):
            raise Failed(row["first_error"])
        return row


def _each(option, values):
    return [word for value in values for word in (option, value)]


def _pids(pids):
    return ["--pids", ",".join(map(str, pids))] if pids else []
