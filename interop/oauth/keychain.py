"""The key of the grants' file in a real keychain (gnome-keyring over D-Bus), and without one.

Needs a `bowline` that was built with `--features keychain`, and Debian's `dbus` and `gnome-keyring`.

Usage: keychain.py [BOWLINE]; by default the target directory's.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import parts
import harness
from login import SHOWN, Home
from run import STARTED, check

NO_BUS = {"DBUS_SESSION_BUS_ADDRESS": "unix:path=/nonexistent"}


def unlocked():
    """Starts a keychain that is open, on this session's bus; its files are new."""
    os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp()
    os.environ["XDG_RUNTIME_DIR"] = tempfile.mkdtemp()
    command = ["gnome-keyring-daemon", "--unlock", "--components=secrets"]
    subprocess.run(command, input=b"password", check=True, stdout=subprocess.DEVNULL)


def in_the_keychain(server):
    """The key is in the keychain and in no file; without the keychain the grants are left alone."""
    home = Home(server)
    code, said, _, _ = home.login("files", "-c", home.file)
    check(code == 0 and "sealed with a key in the system's keychain" in said, said)
    check(home.auth("-c", home.file)[0]["signed_in"], "not signed in")
    names = sorted(path.name for path in home.state.iterdir())
    check("grants.sealed" in names and "grants.key" not in names, names)
    sealed = (home.state / "grants.sealed").read_bytes()
    home.env |= NO_BUS
    code, said = home.run("auth", "-c", home.file)
    check(code == 1 and "may be sealed with a key in the keychain" in said, said)
    check((home.state / "grants.sealed").read_bytes() == sealed, "written to")
    check(not (home.state / "grants.key").exists(), "another key was made")


def without(server):
    """Without a keychain the key is in a file of its owner's, and stays there; both is said."""
    home = Home(server)
    bus = os.environ["DBUS_SESSION_BUS_ADDRESS"]
    for address, why in [(NO_BUS["DBUS_SESSION_BUS_ADDRESS"], "no keychain is used, because it cannot"), (bus, "")]:
        home.env |= {"DBUS_SESSION_BUS_ADDRESS": address, "RUST_LOG": "info"}
        code, said = home.run("auth")
        check(code == 0 and "sealed with the key file" in said and why in said, said)
    mode = (home.state / "grants.key").stat().st_mode & 0o777
    check(mode == 0o600, oct(mode))


def hanging(server):
    """A keychain that does not answer is given up after two seconds."""
    home = Home(server)
    path = home.path / "bus"
    bus = socket.socket(socket.AF_UNIX)
    bus.bind(str(path))
    bus.listen()
    home.env |= {"DBUS_SESSION_BUS_ADDRESS": f"unix:path={path}", "RUST_LOG": "info"}
    began = time.monotonic()
    code, said = home.run("auth")
    check(code == 0 and "does not answer within 2s" in said and "the key file" in said, said)
    check(2 <= time.monotonic() - began < 6, "it took", time.monotonic() - began)


TESTS = [in_the_keychain, without, hanging]


def main():
    if "DBUS_SESSION_BUS_ADDRESS" not in os.environ:
        os.execvp("dbus-run-session", ["dbus-run-session", "--", sys.executable, *sys.argv])
    if len(sys.argv) > 1:
        harness.binary = lambda name: sys.argv[1]
    unlocked()
    with parts.authority() as authority, parts.protected_server(parts.said(authority)["issuer"]) as protected:
        server = parts.said(protected)["url"]
        for test in TESTS:
            test(server)
            print(f"  {test.__name__}: {test.__doc__.splitlines()[0]}")
    parts.check_logs(STARTED, shown=SHOWN)
    print(f"{len(TESTS)} passed, 0 failed")


if __name__ == "__main__":
    main()
