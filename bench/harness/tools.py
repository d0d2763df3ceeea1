"""Finding, building and installing what the bench runs."""

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def find(command):
    """The path of a command, also of those that only root has in its PATH."""
    return shutil.which(command, path=SYSTEM)


def need(command, package=None):
    """Finds a command, or installs its Debian package."""
    if not find(command):
        package = package or command
        as_root = [] if os.getuid() == 0 else ["sudo"]
        # The run level keeps packages from starting a service of their own.
        install = ["env", "DEBIAN_FRONTEND=noninteractive", "RUNLEVEL=1", "apt-get", "-qq"]
        say(f"installing {package}")
        subprocess.run(as_root + install + ["update"], check=True, stdout=sys.stderr)
        words = ["install", "--yes", "--no-install-recommends", package]
        subprocess.run(as_root + install + words, check=True, stdout=subprocess.DEVNULL)
    return find(command) or sys.exit(f"bench: {command} is missing: please install {package}")


def build():
    """Builds the release programs; returns the directory that they are in."""
    say("building")
    cargo = ["cargo", "build", "--release", "--quiet", "-p", "bowline-cli", "-p", "bowline-bench"]
    subprocess.run(cargo, cwd=ROOT, check=True)
    told = subprocess.run(
        ["cargo", "metadata", "--format-version", "1", "--no-deps"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    return Path(json.loads(told.stdout)["target_directory"]) / "release"


def raise_file_limit():
    """As many open files as this user may have; children inherit it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
