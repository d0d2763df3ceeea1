"""A long run of `bowline connect`: clients and a server that are not ours, and a network that fails.

The official Python and TypeScript clients call over stdio, each through a bridge of its own, at a server behind a
cable between two network namespaces. In turn, the server is killed and started again, the cable is pulled for a
while, and the server is stopped (SIGSTOP) for 40 s. What may run twice must never fail. What may not may end in
-31001, outcome unknown, and must never run twice: the server writes down what it runs.

It needs root, for the namespaces. Usage: soak.py [--minutes MINUTES]
"""

import argparse
import itertools
import os
import signal
import sys
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import harness
from bridges import Server, bowline, clients, judge, rounds, state
from namespaces import FAR, Cable, can_be_made

EVERY_SECONDS = 20
PULLED_SECONDS = 15
STOPPED_SECONDS = 40


def restart(server, _cable):
    """server restarts"""
    server.process.kill()
    server.start()


def pull(_server, cable):
    """pulled cables"""
    cable.pull()
    time.sleep(PULLED_SECONDS)
    cable.plug()


def freeze(server, _cable):
    """stopped servers"""
    os.killpg(server.process._process.pid, signal.SIGSTOP)
    time.sleep(STOPPED_SECONDS)
    os.killpg(server.process._process.pid, signal.SIGCONT)


def run():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=10)
    minutes = parser.parse_args().minutes
    if not can_be_made():
        raise harness.Failure("network namespaces cannot be made here; root can")
    counts = dict.fromkeys([restart, pull, freeze], 0)
    with ExitStack() as stack:
        cable = Cable(stack)
        server = Server(stack, FAR, cable.far)
        started = clients(stack, bowline(server.url), state(stack), cable.near)
        end = time.monotonic() + 60 * minutes
        for trouble in itertools.cycle([restart, restart, pull, restart, freeze]):
            if time.monotonic() > end:
                break
            time.sleep(EVERY_SECONDS)
            # After a loss, what may be called twice is known again once the client has listed the tools.
            rounds(started)
            trouble(server, cable)
            counts[trouble] += 1
        rounds(started)
        for trouble, count in counts.items():
            print(f"  {count} {trouble.__doc__}", flush=True)
        judge(started, server)
    print("  ok no safe call failed, and no unsafe one ran twice")
    return 0


if __name__ == "__main__":
    harness.main(run)
