"""What it costs to keep sessions beyond the gateway's memory: a table of its own."""

import socket
from concurrent.futures import ThreadPoolExecutor
from statistics import median

from . import paths, tools

TITLES = {
    "memory": "memory",
    "file": "file",
    "redis": "Redis",
    "redis-cold": "Redis, 16 of 64 sessions at hand",
    "redis-two": "Redis, two gateways",
}

# The fewest that can be at hand: one in each part of the table.
FEW = "cache = 1"


class Stores:
    """One gateway on each kind of store, and two on a Redis; they take turns."""

    def __init__(self, bench):
        self.bench, self.load, self.given = bench, bench.load, bench.given
        server, release = bench.upstreams[0], bench.release
        self.redis = paths.redis()
        url = f'url = "redis://127.0.0.1:{self.redis.port}"'
        shared = lambda *more: paths.bowline_on(release, server, "redis", "\n".join((url, *more)))
        self.ways = {
            "memory": [paths.bowline_on(release, server, "memory")],
            "file": [paths.bowline_on(release, server, "file")],
            "redis": [shared()],
            "redis-cold": [shared(FEW)],
            "redis-two": [shared(), shared()],
        }

    def run(self):
        for number in range(self.given.rounds):
            tools.say(f"stores: round {number + 1}")
            for key, gateways in self.ways.items():
                self.calls(key, gateways, number)
                if len(gateways) == 1:
                    self.opens(key, gateways[0], number)
        self.room()
        for gateways in self.ways.values():
            for gateway in gateways:
                gateway.stop()
        self.redis.stop()

    def calls(self, key, gateways, number):
        """64 sessions, shared out among the gateways, which serve at the same time."""
        options = ["--answers", "json", "--sessions", 64 // len(gateways)]
        options += ["--seconds", self.given.seconds]
        one = lambda gateway: self.load.calls(
            [self.bench.url(gateway)], gateway.pids(),
            {"measure": "stores", "store": key, "round": number}, *options)
        with ThreadPoolExecutor(len(gateways)) as pool:
            list(pool.map(one, gateways))

    def opens(self, key, gateway, number):
        labels = {"measure": "stored", "store": key, "round": number}
        self.load.open([self.bench.url(gateway)], gateway.pids(), self.given.opens, labels)

    def room(self):
        """What Redis holds for one session."""
        gateway = self.ways["redis"][0]
        before = self.used()
        opened = self.load.open([self.bench.url(gateway)], [], self.given.sessions, {"measure": "room"})
        # 64 more are opened, one on each connection, before it counts.
        grown = (self.used() - before) / (opened["sessions"] + 64)
        self.load.note({"measure": "room", "store": "redis"}, {"bytes": grown})

    def used(self):
        with socket.create_connection(("127.0.0.1", self.redis.port)) as asking:
            asking.sendall(b"INFO memory\r\n")
            told = asking.recv(65536).decode()
        return int(told.split("used_memory:")[1].split()[0])


def render(rows):
    """The table as Markdown, or nothing if no store was measured."""
    def values(field, measure, store):
        found = {}
        for row in rows:
            if (row["measure"], row.get("store")) == (measure, store) and not row.get("errors"):
                found.setdefault(row.get("round", 0), []).append(row[field])
        return found

    def cell(numbers, digits):
        if not numbers:
            return ""
        spread = f" ({min(numbers):.{digits}f}–{max(numbers):.{digits}f})" if len(numbers) > 1 else ""
        return f"{median(numbers):.{digits}f}{spread}"

    if not values("per_second", "stores", "memory"):
        return ""
    base = values("cpu_us_per_call", "stores", "memory")
    lines = {
        "calls/s, JSON": lambda key: cell(
            [sum(each) for each in values("per_second", "stores", key).values()], 0),
        "CPU µs per call, JSON": lambda key: cell(
            [sum(each) / len(each) for each in values("cpu_us_per_call", "stores", key).values()], 1),
        "… of that in memory": lambda key: cell(
            [sum(each) / len(each) / base[number][0]
             for number, each in values("cpu_us_per_call", "stores", key).items()], 2),
        "CPU µs per initialize + initialized": lambda key: cell(
            [each[0] for each in values("cpu_us_per_open", "stored", key).values()], 1),
        "bytes of Redis per session": lambda key: cell(
            [each[0] for each in values("bytes", "room", key).values()], 0),
    }
    text = ["", "| sessions in | " + " | ".join(TITLES.values()) + " |"]
    text.append("|---" * (len(TITLES) + 1) + "|")
    for title, line in lines.items():
        text.append(f"| {title} | " + " | ".join(line(key) for key in TITLES) + " |")
    text.append("")
    text.append("Redis's own CPU is not in these numbers. Two gateways: their sum, and their mean.")
    return "\n".join(text)
