"""Debian: the program, its man pages and completions, and a service that may do little else than speak TCP."""

import gzip
import os
import re
import shutil
import subprocess

from parts import HERE, PROGRAM_MODE, Failure, check_mode, fill, first_call, run, said

DEBIAN = HERE / "debian"
# Of `systemd-analyze security`, which counts from 0 to 10; its option takes ten times as much.
MOST_EXPOSURE = 2.0


def _name(job):
    return job.output / f"bowline_{job.version}_amd64.deb"


def build(job):
    root = job.directory("deb")
    _put(job.binary, root / "usr/bin/bowline", PROGRAM_MODE)
    _put(DEBIAN / "bowline.service", root / "usr/lib/systemd/system/bowline.service")
    _put(DEBIAN / "bowline.toml", root / "etc/bowline/bowline.toml")
    _put(DEBIAN / "copyright", root / "usr/share/doc/bowline/copyright")
    completions = job.manual / "completions"
    share = root / "usr/share"
    _put(completions / "bowline.bash", share / "bash-completion/completions/bowline")
    _put(completions / "_bowline", share / "zsh/vendor-completions/_bowline")
    _put(completions / "bowline.fish", share / "fish/vendor_completions.d/bowline.fish")
    pages = share / "man/man1"
    pages.mkdir(parents=True)
    for page in sorted((job.manual / "man").glob("*.1")):
        packed = gzip.compress(page.read_bytes(), mtime=0)
        (pages / f"{page.name}.gz").write_bytes(packed)
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024
    control = root / "DEBIAN"
    control.mkdir()
    text = fill(DEBIAN / "control", version=job.version, glibc=_glibc(job.binary), size=size)
    (control / "control").write_text(text)
    (control / "conffiles").write_text("/etc/bowline/bowline.toml\n")
    for script in ("postinst", "prerm"):
        _put(DEBIAN / script, control / script, 0o755)
    for directory in [path for path in root.rglob("*") if path.is_dir()]:
        directory.chmod(0o755)
    pack = ["-Zgzip", "-z1"] if job.quick else ["-Zxz"]
    run("dpkg-deb", *pack, "--root-owner-group", "--build", root, _name(job))


def _put(source, target, mode=0o644):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    target.chmod(mode)


def _glibc(binary):
    """The oldest glibc that has everything the program asks of it."""
    symbols = run("objdump", "-T", binary)
    found = {tuple(map(int, version.split("."))) for version in re.findall(r"GLIBC_([\d.]+)", symbols)}
    return ".".join(map(str, max(found)))


def check(job):
    root = job.directory("deb-root")
    _install(job, root)
    service = root / "usr/lib/systemd/system/bowline.service"
    check_mode("deb", root / "usr/bin/bowline")
    _unit(job, root, service)
    _pages(root)
    first_call("deb", [root / "usr/bin/bowline"])
    if not job.quick:
        _chroot(job)


def _pages(root):
    share = root / "usr/share"
    run("bash", "-n", share / "bash-completion/completions/bowline")
    said("deb: completions")
    if not shutil.which("man"):
        print("!! no man: the man pages are NOT read", flush=True)
        return
    env = {**os.environ, "MANPAGER": "cat"}
    for page in sorted((share / "man/man1").glob("*.gz")):
        name = page.name.removesuffix(".1.gz")
        if name.replace("-", " ") not in run("man", "-l", page, env=env).replace("-", " "):
            raise Failure(f"deb: the man page of {name} does not name it")
    said("deb: man pages")


def _install(job, root):
    """dpkg's own installation into an empty directory; what it depends on is this machine's."""
    if os.geteuid():
        print("!! not root: the .deb is unpacked, and NOT installed by dpkg", flush=True)
        run("dpkg-deb", "--extract", _name(job), root)
        return
    database = root / "var/lib/dpkg"
    database.mkdir(parents=True)
    (database / "status").touch()
    options = ["--force-depends", "--force-script-chrootless", "--force-not-root", "--no-triggers"]
    log = root / "dpkg.log"
    run("dpkg", f"--root={root}", f"--log={log}", *options, "--install", _name(job))
    state = run("dpkg-query", f"--admindir={database}", "-W", "-f", "${db:Status-Status}", "bowline")
    if state != "installed":
        raise Failure(f"deb: it is {state}")
    said("deb: installed by dpkg into an empty directory")


def _unit(job, root, service):
    analyze = shutil.which("systemd-analyze")
    if not analyze:
        print("!! no systemd-analyze: the unit is NOT checked", flush=True)
        return
    # It looks for the program that the unit names, in the directory.
    placed = job.directory("unit") / "bowline.service"
    text = service.read_text().replace("/usr/bin/bowline", str(root / "usr/bin/bowline"))
    placed.write_text(text)
    if complaints := run(analyze, "verify", "--man=no", placed).strip():
        raise Failure(f"systemd-analyze verify: {complaints}")
    threshold = f"--threshold={int(MOST_EXPOSURE * 10)}"
    printed = run(analyze, "security", "--offline=yes", "--no-pager", threshold, placed)
    said(f"deb: {printed.strip().splitlines()[-1].strip(' →')}")


def _chroot(job):
    """apt's installation into a fresh Debian, with what it depends on."""
    if not shutil.which("debootstrap") or os.geteuid():
        print("!! no debootstrap, or not root: the .deb is NOT installed into a fresh Debian", flush=True)
        return
    root = job.directory("chroot")
    run("debootstrap", "--variant=minbase", "bookworm", root)
    shutil.copy(_name(job), root / "bowline.deb")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    run("chroot", root, "apt-get", "-qq", "install", "--yes", "/bowline.deb", env=env)
    first_call("deb, in a chroot", ["chroot", root, "bowline"])
    checked = subprocess.run(
        ["chroot", root, "bowline", "check", "-c", "/etc/bowline/bowline.toml"],
        capture_output=True,
        text=True,
    )
    if checked.returncode != 2 or "has no servers" not in checked.stderr:
        raise Failure(f"bowline check: {checked.stderr}")
    _service(job, root, env)
    run("chroot", root, "apt-get", "-qq", "remove", "--yes", "bowline", env=env)
    if (root / "usr/bin/bowline").exists():
        raise Failure("deb: removed, and the program is still there")
    said("deb: its configuration needs a server; removed again")


def _service(job, root, env):
    """Boots the fresh Debian, and uses the service there."""
    if not shutil.which("systemd-nspawn"):
        print("!! no systemd-nspawn: the service is NOT run under systemd", flush=True)
        return
    packages = ["systemd", "systemd-sysv"]
    run("chroot", root, "apt-get", "-qq", "install", "--yes", "--no-install-recommends", *packages, env=env)
    _put(DEBIAN / "try-service", root / "root/try-service", 0o755)
    unit = ["[Service]", "Type=oneshot", "ExecStart=/root/try-service", "TimeoutStartSec=120"]
    unit += ["StandardOutput=append:/root/log", "StandardError=inherit"]
    # When it has ended, so does the machine.
    unit += ["ExecStopPost=systemctl start --no-block poweroff.target", "[Install]", "WantedBy=multi-user.target"]
    (root / "etc/systemd/system/try.service").write_text("\n".join(unit) + "\n")
    run("chroot", root, "systemctl", "enable", "try.service")
    boot = ["--boot", "--register=no", "--keep-unit", "--private-network", "--console=pipe"]
    try:
        run("systemd-nspawn", "-D", root, *boot, stdin=subprocess.DEVNULL, timeout=300)
    except subprocess.TimeoutExpired:
        raise Failure("deb: the fresh Debian does not power off") from None
    log = (root / "root/log").read_text().splitlines()
    if log[-1:] != ["done"]:
        raise Failure("deb: the service\n" + "\n".join(log))
    for line in log[:-1]:
        said(f"deb, under systemd: {line}")
