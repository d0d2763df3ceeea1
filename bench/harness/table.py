"""From single measurements to the one table: medians over rounds, with their spread."""

import os
from math import ceil
from statistics import median

PATHS = {
    "direct": "direct",
    "nginx": "nginx",
    "haproxy": "HAProxy",
    "bowline": "Bowline",
    "bowline2": "Bowline, 2 replicas",
    "before": "Bowline before",
}


class Rows:
    """The measurements, to be asked for by their labels."""

    def __init__(self, rows):
        self.rows = rows

    def values(self, field, **labels):
        """Values by round. Raises `Invalid` if any of the measurements met an error."""
        found = {}
        for row in self.rows:
            if all(row.get(label) == value for label, value in labels.items()):
                if row.get("errors"):
                    raise Invalid(row["first_error"])
                found[row.get("round", 0)] = row.get(field)
        return {number: value for number, value in found.items() if value is not None}


class Invalid(Exception):
    """A measurement that met an error is none."""


def plain(field, **labels):
    """The measurement itself."""
    return lambda rows, path: rows.values(field, path=path, **labels)


def against(other, field, combine, **labels):
    """The measurement set against another path's of the same round."""
    def compute(rows, path):
        own = rows.values(field, path=path, **labels)
        base = rows.values(field, path=other, **labels)
        return {key: combine(own[key], base[key]) for key in own if base.get(key)}
    return compute


def beside_before(field, **labels):
    """This Bowline's set against that of the earlier one, in the same round."""
    compute = against("before", field, ratio, **labels)
    return lambda rows, path: compute(rows, path) if path == "bowline" else {}


def growth(of):
    """CPU per call with many, relative to that with few in the same round."""
    def compute(rows, path):
        few = rows.values("cpu_us_per_call", measure="growth", of="few", path=path)
        many = rows.values("cpu_us_per_call", measure="growth", of=of, path=path)
        return {key: many[key] / few[key] for key in many if few.get(key)}
    return compute


def ratio(own, base):
    return own / base


def difference(own, base):
    return own - base


def mib(compute):
    return lambda rows, path: {key: kib / 1024 for key, kib in compute(rows, path).items()}


def _calls(answers, mode):
    return dict(measure="calls", answers=answers, mode=mode)


def _lines():
    """Title, how to compute it, digits, and what Bowline is held to."""
    for answers, shown in (("json", "JSON"), ("sse", "SSE")):
        closed, paced = _calls(answers, "closed"), _calls(answers, "open")
        cpu = "cpu_us_per_call"
        yield f"calls/s, {shown}", plain("per_second", **closed), 0, None
        yield "… of direct", against("direct", "per_second", ratio, **closed), 2, None
        yield f"CPU µs per call, {shown}", plain(cpu, **closed), 1, None
        yield "… of HAProxy's", against("haproxy", cpu, ratio, **closed), 2, 1.7
        yield "… of Bowline's before", beside_before(cpu, **closed), 2, 1.1
        yield f"p50 µs at 1000 calls/s, {shown}", plain("p50_us", **paced), 0, None
        yield "… added to direct", against("direct", "p50_us", difference, **paced), 0, None
        yield f"p99 µs at 1000 calls/s, {shown}", plain("p99_us", **paced), 0, None
        yield "… added to direct", against("direct", "p99_us", difference, **paced), 0, None
    for size, shown in ((32 * 1024, "32 KiB"), (1024 * 1024, "1 MiB")):
        labels = dict(measure="sizes", size=size)
        yield f"CPU µs per call, {shown}", plain("cpu_us_per_call", **labels), 1, None
        yield "… of HAProxy's", against("haproxy", "cpu_us_per_call", ratio, **labels), 2, None
        yield "… of Bowline's before", beside_before("cpu_us_per_call", **labels), 2, 1.1
    last = _calls("sse", "open")
    opened = "cpu_us_per_open"
    yield "RSS after the calls, MiB", mib(plain("rss_kib", **last)), 1, None
    yield "bytes per idle session", plain("bytes_per_session", measure="idle"), 0, 1024
    yield "KiB per held stream", plain("kib_per_stream", measure="hold"), 1, 16
    yield "CPU µs per initialize + initialized", plain(opened, measure="open"), 1, None
    yield "… of HAProxy's", against("haproxy", opened, ratio, measure="open"), 2, 1.5
    yield "CPU per call, many sessions / 64", growth("sessions"), 2, 1.1
    yield "CPU per call, 100 servers / 1", growth("servers"), 2, 1.1


def over_kills(field, share):
    """The value that this share of all kills does not exceed, in ms."""
    def compute(rows, path):
        values = sorted(rows.values(field, measure="recovery", path=path).values())
        return {0: values[ceil(len(values) * share) - 1] / 1000} if values else {}
    return compute


def own_initialise(share):
    """What the server itself takes for it: no way's, so it is shown as the direct one's."""
    measure = over_kills("initialise_us", share)
    return lambda rows, path: measure(rows, "bowline2") if path == "direct" else {}


def beyond_initialise(share):
    """What recovery takes besides the server's own part of it."""
    whole, part = over_kills("answer_us", share), own_initialise(share)
    def compute(rows, path):
        own = part(rows, "direct")
        return {key: value - own[key] for key, value in whole(rows, path).items() if key in own}
    return compute


def _recovery_lines():
    """The same, of what is measured with two replicas only."""
    for name, share in (("p50", 0.50), ("p99", 0.99)):
        yield f"initialize + initialized {name} ms", own_initialise(share), 2, None
        yield f"told 404 after {name} ms", over_kills("refused_us", share), 2, None
        yield f"recovery {name} ms", over_kills("answer_us", share), 2, None
    yield "… beyond the server's p99 initialise", beyond_initialise(0.99), 2, 25


def cell(compute, rows, path, digits):
    """A median with its spread, and the bare median."""
    try:
        values = list(compute(rows, path).values())
    except Invalid as invalid:
        return f"invalid: {' '.join(str(invalid).split())[:60]}", None
    if not values or (path == "direct" and not any(values)):
        return "", None
    middle = f"{median(values):.{digits}f}"
    if len(values) == 1:
        return middle, median(values)
    return f"{middle} ({min(values):.{digits}f}–{max(values):.{digits}f})", median(values)


def render(measured, notes):
    """The table as Markdown. Lines without any number are left out."""
    rows = Rows(measured)
    measured_paths = {row.get("path") for row in measured}
    paths = [path for path in PATHS if path != "before" or path in measured_paths]
    text = ["| | " + " | ".join(PATHS[path] for path in paths) + " | Bowline's target |"]
    text.append("|---" * (len(paths) + 2) + "|")
    lines = [("bowline", *line) for line in _lines()]
    lines += [("bowline2", *line) for line in _recovery_lines()]
    for judged, title, compute, digits, target in lines:
        cells = {path: cell(compute, rows, path, digits) for path in paths}
        if not any(shown for shown, _ in cells.values()):
            continue
        verdict = ""
        if target is not None:
            reached = cells[judged][1]
            verdict = f"≤ {target}"
            if reached is not None:
                verdict += ": reached" if reached <= target else ": missed"
        shown = " | ".join(shown for shown, _ in cells.values())
        text.append(f"| {title} | {shown} | {verdict} |")
    text.append("")
    text.append(f"Medians over rounds (smallest–largest). {os.cpu_count()} cores for everything.")
    text.extend(notes)
    return "\n".join(text)
