"""Definitions as odd as can be, in a union: whatever Bowline serves, the official clients take, and nothing is missing
that they would have taken.

The table is made: each field of the protocol, and some of no protocol, with each of some values. A server lists all of
it. Every definition is shown to the TypeScript client and to the Python client alone, before and after Bowline. What
they refuse of the server's must be named in the list's `_meta`, or mean the same in another spelling.
"""

import asyncio
import copy
import json
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import harness
import mcp_types as types
from mcp_types import methods

VALUES = [
    None, True, False, 0, 1, 0.5, -1, 1e300, 2**53, 2**60, "", "x", "user", "optional", "2026-02-28T01:02:03Z",
    "2026-02-30T01:02:03Z", "2026-02-28", "2026-02-28T01:02Z", "2026-02-28T01:02:03.25+01:00", [], ["x"], ["user"],
    [1], [None], [[]], [{}], [{"src": "x"}], [{"name": "x"}], {}, {"x": 1}, {"x": True}, {"x": None}, {"type": "object"},
    {"type": "string"}, {"type": None}, {"type": ["object", "null"]}, {"type": "object", "properties": {"x": True}},
    {"type": "object", "properties": {"x": False}}, {"type": "object", "properties": {"x": []}},
    {"type": "object", "properties": []}, {"type": "object", "required": None}, {"type": "object", "$schema": 5},
    {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object"},
]  # fmt: skip

ICON = {"src": "data:,", "mimeType": "image/png", "sizes": ["1x1"], "theme": "dark"}
ANNOTATIONS = {"audience": ["user"], "priority": 0.5, "lastModified": "2026-02-28T01:02:03Z"}
SCHEMA = {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]}
COMMON = {"title": "T", "description": "D", "icons": [ICON], "_meta": {"a": 1}}
# Each list, with a definition in which every field is.
LISTS = {
    ("tools/list", "tools"): {
        "name": "n", **COMMON, "inputSchema": SCHEMA, "outputSchema": SCHEMA, "execution": {"taskSupport": "optional"},
        "annotations": {"title": "T", "readOnlyHint": True, "destructiveHint": True, "idempotentHint": True,
                        "openWorldHint": True},
    },
    ("prompts/list", "prompts"): {
        "name": "n", **COMMON, "arguments": [{"name": "a", "title": "A", "description": "D", "required": True}],
    },
    ("resources/list", "resources"): {
        "uri": "u:n", "name": "n", **COMMON, "mimeType": "a/b", "size": 5, "annotations": ANNOTATIONS,
    },
    ("resources/templates/list", "resourceTemplates"): {
        "uriTemplate": "u:n/{x}", "name": "n", **COMMON, "mimeType": "a/b", "annotations": ANNOTATIONS,
    },
}  # fmt: skip
# What is within an output schema, which the TypeScript client compiles.
PARTS = [
    {"type": "banana"}, {"type": []}, {"type": ["string", "null"]}, {"pattern": "["}, {"pattern": "^a+$"},
    {"pattern": "(?i)a"}, {"pattern": "^(?!\\.)[\\w+-]{1,3}@\\p{L}$"}, {"pattern": "\\-"}, {"pattern": 5},
    {"patternProperties": {"[": {}}}, {"$ref": "#/none"}, {"$ref": "https://example.com/x"}, {"$ref": "#"},
    {"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}, {"$ref": 5}, {"enum": []}, {"enum": [1]}, {"enum": 1}, {"const": None},
    {"anyOf": []}, {"anyOf": [{"type": "string"}, True]}, {"allOf": {}}, {"items": [{}]}, {"items": {"type": 1}},
    {"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}, {"minLength": "1"}, {"uniqueItems": 1},
    {"required": True}, {"required": ["a"]}, {"properties": {"a": 1}}, {"properties": {"$id": {}}}, {"format": "own"},
    {"format": "date-time"}, {"format": 5}, {"nullable": True}, {"nullable": True, "type": "string"}, {"id": "x"},
    {"not": 5}, {"if": {}}, {"additionalProperties": "x"}, {"x-own": {"a": [1]}}, {"default": {"$id": "x"}},
    {"$id": "x"}, {"$anchor": "x"}, {"$async": True}, {"dependentRequired": {"a": ["b"]}}, {"prefixItems": [{}]},
    {"format": "date", "formatMaximum": 5}, {"format": "own", "formatMinimum": "x"}, {"pattern": "()" * 66_000},
    {"oneOf": [{"properties": {"a": {"const": number}}} for number in range(3000)]}, {"not": {"unit": {"$id": 5}}},
    {"constructor": {"type": 1}, "toString": ["x"], "__proto__": {"a": 1}}, {"$ref": "urn:whole#/$defs/a"},
    {"examples": [{"a": 1}]}, {"contentEncoding": "base64"}, {"deprecated": True}, {"title": "T", "$comment": "c"},
]  # fmt: skip
# What an output schema is called, and what references make large.
CHAIN = {f"c{number}": {"not": {"$ref": f"#/$defs/c{number + 1}"}} for number in range(3000)}
WHOLES = [
    *({"$id": name, "properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#"}}}
      for name in (5, {}, True, None, "", "#", "constructor", "__proto__", "urn:receipt", "%zz", "https://example.com/a")),
    # A name that a client drops before it compiles, and an end that it cuts off.
    {"properties": {"__proto__": {"properties": {"a": {}}}, "b": {"$ref": "#/properties/__proto__/properties/a"}}},
    {"properties": {"__proto__": {}, "b": {"properties": {"__proto__": {}}}}},
    *({"$defs": {name: {}}, "properties": {"b": {"$ref": f"#/$defs/{name}"}}} for name in ("a#", "a#b", "#", "a.", "..")),
    {"$id": "urn:same", "required": ["x"]}, {"$id": "urn:same", "required": ["y"]},
    {"$defs": {**CHAIN, "c3000": {}}, "properties": {"x": {"$ref": "#/$defs/c0"}}},
    {"properties": {f"p{number}": {"type": "string", "pattern": "^a$", "format": "email"} for number in range(3000)}},
]  # fmt: skip
# What the clients take and Bowline leaves out: rare in schemas, or not JSON for every reader.
STRICTER = {"outputSchema"}


def paths(value, at=()):
    """All places within a definition, but not those within schemas and within what is anybody's."""
    yield at
    if at and at[-1] in ("inputSchema", "outputSchema", "_meta"):
        return
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield from paths(inner, (*at, name))


def replaced(definition, path, value):
    changed = copy.deepcopy(definition)
    at = changed
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return changed


def table(key, full):
    """All odd definitions of a list, and the good one, each under a name of its own."""
    own = "uriTemplate" if key == "resourceTemplates" else "uri" if key == "resources" else "name"
    odd = [full]
    for path in paths(full):
        if path and path != (own,):
            odd += [replaced(full, path, value) for value in VALUES]
            missing = replaced(full, path, None)
            at = missing
            for step in path[:-1]:
                at = at[step]
            del at[path[-1]]
            odd.append(missing)
    if key == "tools":
        defs = {"a": {"type": "string"}, "b": {"$ref": "#/$defs/c"}, "c": {"$ref": "#/$defs/b"}}
        for part in PARTS:
            odd.append({"name": "n", "inputSchema": SCHEMA, "outputSchema": {**SCHEMA, "properties": {"x": part}, "$defs": defs}})
            odd.append({"name": "n", "inputSchema": {**SCHEMA, "properties": {"x": part}}})
        odd += [{"name": "n", "inputSchema": SCHEMA, "outputSchema": {"type": "object", **whole}} for whole in WHOLES]
    return own, [{**definition, own: f"n{number}"} for number, definition in enumerate(odd)]


# === the clients ===


def python(method, key, items):
    """What the Python client makes of these: which it refuses alone, and whether it takes all at once."""

    def takes(some):
        try:
            methods.parse_server_result(method, "2025-11-25", {key: some})
        except Exception:  # noqa: BLE001: whatever it is, the client refuses the list
            return False
        return True

    refused = {number for number, item in enumerate(items) if not takes([item])}
    return refused, takes(items)


@contextmanager
def typescript():
    command = [str(harness.NODE), str(HERE / "definitions.mjs")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def judge(method, key, items):
        process.stdin.write(json.dumps({"method": method, "key": key, "items": items}) + "\n")
        process.stdin.flush()
        judged = json.loads(process.stdout.readline())
        return set(judged["refused"]), judged["all"]

    try:
        yield judge
    finally:
        process.stdin.close()
        process.wait(10)


def compare(key, own, items, shown, said, judges):
    """Fails unless what is shown is what both clients take, and what is not shown is named and refused."""
    by_name = {one[own]: one for one in shown}
    named = {}
    for one in said:
        named.setdefault(one["name"], []).append(one.get("field"))
    refused = set()
    for client, judge in judges.items():
        bad, takes_all = judge(shown)
        if bad or not takes_all:
            examples = [shown[number] for number in sorted(bad)[:3]]
            raise harness.Failure(f"{client} refuses of the {key} that Bowline serves: {examples}")
        refused |= judge(items)[0]
    for number, item in enumerate(items):
        name = item[own]
        is_refused, after = number in refused, by_name.get(name)
        what_is_gone = named.get(name, [])
        if after is None and None not in what_is_gone:
            raise harness.Failure(f"{key}: not there and not named: {item}")
        if not is_refused and after != item and not set(what_is_gone) <= STRICTER:
            raise harness.Failure(f"{key}: both clients take {item}, and Bowline serves {after}, without {what_is_gone}")
        if not is_refused and after is None:
            raise harness.Failure(f"{key}: both clients take {item}")
    return len(refused)


def run_against(lists):
    """`lists(method, key, items)` has a server list these in a union: what is shown, and what is named as left out."""
    with typescript() as node:
        for (method, key), full in LISTS.items():
            own, items = table(key, full)
            shown, said = lists(method, key, items)
            judges = {
                "the TypeScript client": lambda some: node(method, key, some),
                "the Python client": lambda some: python(method, key, some),
            }
            refused = compare(key, own, items, shown, said, judges)
            print(f"  ok {len(items)} {key}, of which the clients refuse {refused} as they are", flush=True)
