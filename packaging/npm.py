"""npm: a launcher and one package per platform. Neither has an install script."""

import json
import os
import shutil

from parts import HERE, ROOT, Failure, count_twice, first_call, run, said, serving, tool

NODE = "install Node 20 or newer with npm"
LAUNCHER = "@bowline/cli"
CLIENT = ROOT / "interop/connect/once.mjs"
# The platforms that there are packages for, as npm names them.
PLATFORM = "linux-x64"
COMMON = {
    "license": "Apache-2.0",
    "description": "A session-keeping gateway for MCP",
    "keywords": ["mcp", "model-context-protocol", "gateway", "proxy", "session"],
}


def build(job):
    platform = f"{LAUNCHER}-{PLATFORM}"
    os_name, cpu = PLATFORM.split("-")
    manifest = {"name": platform, "version": job.version, **COMMON}
    manifest |= {"os": [os_name], "cpu": [cpu], "libc": ["glibc"], "files": ["bin"]}
    _pack(job, manifest, job.binary, "bowline", f"The program of {LAUNCHER} for {PLATFORM}.\n")
    manifest = {"name": LAUNCHER, "version": job.version, **COMMON}
    manifest |= {"bin": {"bowline": "bin/bowline.js"}, "files": ["bin"], "engines": {"node": ">=18"}}
    manifest["optionalDependencies"] = {platform: job.version}
    readme = (HERE / "npm/README.md").read_text()
    _pack(job, manifest, HERE / "npm/launcher.js", "bowline.js", readme)


def _pack(job, manifest, program, name, readme):
    directory = job.directory("npm")
    (directory / "package.json").write_text(json.dumps(manifest, indent=2) + "\n")
    (directory / "README.md").write_text(readme)
    shutil.copy(ROOT / "LICENSE", directory)
    (directory / "bin").mkdir()
    shutil.copy(program, directory / "bin" / name)
    (directory / "bin" / name).chmod(0o755)
    run(tool("npm", NODE), "pack", "--pack-destination", job.output, cwd=directory)


def _tarballs(job):
    return [
        job.output / f"bowline-cli-{job.version}.tgz",
        job.output / f"bowline-cli-{PLATFORM}-{job.version}.tgz",
    ]


def check(job):
    """Offline, with a cache that is empty: npm has the tarballs and nothing else."""
    npm, npx = tool("npm", NODE), tool("npx", NODE)
    directory = job.directory("npm-check")
    env = {**os.environ, "npm_config_cache": str(job.directory("npm-cache"))}
    env |= {"npm_config_offline": "true", "npm_config_ignore_scripts": "true"}
    here = {"cwd": directory, "env": env}
    (directory / "package.json").write_text('{"private": true}\n')
    run(npm, "install", *_tarballs(job), **here)
    printed = run(npx, "bowline", "--version", **here)
    if printed.splitlines()[-1] != f"bowline {job.version}":
        raise Failure(f"npx bowline --version: {printed}")
    launcher = directory / "node_modules/.bin/bowline"
    first_call("npm", [launcher], **here)
    run(launcher, "demo", "--once", **here)
    said("npm: the demo")
    packages = [word for tarball in _tarballs(job) for word in ("--package", tarball)]
    with serving([launcher], **here) as (url, _):
        there = {"cwd": job.directory("npx-check"), "env": env}
        connect = [npx, "-y", *packages, "bowline", "connect", url]
        count_twice(connect, **there)
        said("npm: npx -y … connect, from the tarballs, in an empty directory")
        _official_client(connect, there)
    _without_platform(job, npm, env)


def _official_client(connect, there):
    if not (ROOT / "interop/node_modules").exists():
        print("!! scripts/setup did not run: the official client is NOT used with the npm package", flush=True)
        return
    counted = run("node", CLIENT, *connect, **there).splitlines()[-1]
    if counted != "1 2":
        raise Failure(f"npm: the official client counted {counted}")
    said("npm: the same by the official TypeScript client")


def _without_platform(job, npm, env):
    """Where there is no package for the platform, the launcher says so."""
    directory = job.directory("npm-alone")
    (directory / "package.json").write_text('{"private": true}\n')
    run(npm, "install", "--omit=optional", _tarballs(job)[0], cwd=directory, env=env)
    try:
        run(directory / "node_modules/.bin/bowline", "--version", env=env)
    except Failure as failure:
        if f"{LAUNCHER}-{PLATFORM} is not installed" in str(failure):
            said("npm: without the platform's package it says what is missing")
            return
    raise Failure("npm: the launcher does not say that the platform's package is missing")
