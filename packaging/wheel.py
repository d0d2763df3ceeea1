"""PyPI: a wheel that holds the program and no Python code, made by maturin."""

import os
import zipfile

from parts import HERE, ROOT, Failure, first_call, run, said, tool

HINT = "run scripts/setup, or: pip install maturin uv"


def build(job):
    manifest = ROOT / "crates/bowline-cli/Cargo.toml"
    package = run("cargo", "pkgid", "--offline", "--manifest-path", manifest).strip()
    env = {**os.environ, "CARGO": str(HERE / "prebuilt-cargo")}
    env |= {"BOWLINE_BINARY": str(job.binary), "BOWLINE_PACKAGE": package}
    maturin = tool("maturin", HINT)
    run(maturin, "build", "--release", "--manifest-path", manifest, "--out", job.output, env=env)


def _wheel(job):
    found = list(job.output.glob(f"bowline_mcp-{job.version}-*.whl"))
    if len(found) != 1:
        raise Failure(f"there should be one wheel: {found}")
    return found[0]


def check(job):
    """By pip into an empty virtual environment, and by uvx; both offline."""
    wheel = _wheel(job)
    with zipfile.ZipFile(wheel) as opened:
        names = opened.namelist()
        [program] = [name for name in names if name.endswith(".data/scripts/bowline")]
        if opened.read(program) != job.binary.read_bytes():
            raise Failure("the wheel holds another program")
        if code := [name for name in names if name.endswith(".py")]:
            raise Failure(f"the wheel has Python code: {code}")
    if "-manylinux" not in wheel.name:
        raise Failure(f"{wheel.name} is for this machine only")
    uv = tool("uv", HINT)
    # The user's own settings may name a package index; nothing is to be fetched here.
    env = {**os.environ, "UV_OFFLINE": "1", "UV_CACHE_DIR": str(job.directory("uv-cache"))}
    directory = job.directory("wheel-check")
    run("python3", "-m", "venv", directory)
    pip = [directory / "bin/python", "-m", "pip", "--disable-pip-version-check"]
    run(*pip, "install", "--no-index", wheel)
    first_call("wheel, by pip", [directory / "bin/bowline"])
    env["UV_PYTHON_DOWNLOADS"] = "never"
    run(uv, "tool", "run", "--from", wheel, "bowline", "--version", env=env)
    first_call("wheel, by uvx", [uv, "tool", "run", "--from", wheel, "bowline"], env=env)
    run(uv, "tool", "run", "--from", wheel, "bowline", "demo", "--once", env=env)
    said(f"wheel: the demo, by uvx, of {wheel.name}")
