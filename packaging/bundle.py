"""The .mcpb bundle for desktop apps: `bowline connect` with one question, the server's URL."""

import json
import shutil

from parts import HERE, ROOT, Failure, count_twice, fill, run, said, serving, tool

HINT = "run scripts/setup, or: npm install @anthropic-ai/mcpb"


def _name(job):
    return job.output / f"bowline-{job.version}-linux-x64.mcpb"


def build(job):
    directory = job.directory("mcpb")
    (directory / "manifest.json").write_text(fill(HERE / "mcpb/manifest.json", version=job.version))
    shutil.copy(ROOT / "LICENSE", directory)
    (directory / "server").mkdir()
    shutil.copy(job.binary, directory / "server/bowline")
    (directory / "server/bowline").chmod(0o755)
    mcpb = tool("mcpb", HINT)
    run(mcpb, "validate", directory / "manifest.json")
    run(mcpb, "pack", directory, _name(job))


def check(job):
    """As an app does it: unpack, ask for what the manifest wants to know, run what it says."""
    directory = job.directory("mcpb-check")
    run(tool("mcpb", HINT), "unpack", _name(job), directory)
    manifest = json.loads((directory / "manifest.json").read_text())
    asked = [name for name, field in manifest["user_config"].items() if field["required"]]
    if asked != ["url"]:
        raise Failure(f"mcpb: it asks for {asked}")
    config = manifest["server"]["mcp_config"]
    program = directory / manifest["server"]["entry_point"]
    with serving([program]) as (url, _):

        def filled(text):
            return text.replace("${__dirname}", str(directory)).replace("${user_config.url}", url)

        count_twice([filled(word) for word in (config["command"], *config["args"])])
    said("mcpb: unpacked and run as its manifest says; two tool calls in one session")
