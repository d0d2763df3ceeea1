"""The container image, in Docker's format: one program, no shell, no root.

There is no daemon here to run it. The check unpacks the image and runs it with its user and its root directory.
"""

import json
import os
import shutil
import tarfile

from parts import HERE, PROGRAM_MODE, Failure, check_mode, fill, first_call, run, said

IMAGE = "localhost/bowline"
# What the program needs of Debian: the loader and glibc, the unwinder, and whom TLS trusts.
PACKAGES = ("base-files", "libc6", "gcc-12-base", "libgcc-s1", "ca-certificates")
# What of it the program uses. The rest are tools for people and sources of other languages.
LIBRARIES = ("ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libgcc_s.so.1", "libresolv.so.2")
PROGRAM = "usr/bin/bowline"
USER = 65532
MOUNT = """
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
mount --bind "$2" "$1/var/lib/bowline"
shift 2
exec "$@"
"""


def is_possible():
    if shutil.which("buildah") and os.geteuid() == 0:
        return True
    print("!! no buildah, or not root: the container image is NOT built", flush=True)
    return False


def _archive(job):
    return job.output / f"bowline-{job.version}-linux-amd64.docker.tar"


def build(job):
    context = job.directory("container")
    root = context / "root"
    _base(job, root)
    (root / "usr/bin").mkdir(parents=True)
    shutil.copy(job.binary, root / PROGRAM)
    (root / PROGRAM).chmod(PROGRAM_MODE)
    (context / "state").mkdir(mode=0o700)
    (context / "Containerfile").write_text(fill(HERE / "container/Containerfile", version=job.version))
    # Nothing is run while it is built, so a storage of its own and the plainest driver are enough.
    buildah = ["buildah", "--root", job.scratch / "storage", "--runroot", job.scratch / "run"]
    buildah += ["--storage-driver", "vfs"]
    try:
        tag = f"{IMAGE}:{job.version}"
        run(*buildah, "build", "--format", "docker", "--isolation", "chroot", "--tag", tag, context)
        _archive(job).unlink(missing_ok=True)
        run(*buildah, "push", tag, f"docker-archive:{_archive(job)}:{tag}")
    finally:
        shutil.rmtree(job.scratch / "storage", ignore_errors=True)


def _base(job, root):
    """glibc and certificates, from Debian's packages."""
    downloads, unpacked = job.directory("debs"), job.directory("debian")
    run("apt-get", "-qq", "download", *PACKAGES, cwd=downloads)
    for package in downloads.glob("*.deb"):
        run("dpkg-deb", "--extract", package, unpacked)
    directories = ("etc/ssl/certs", "lib64", "tmp", "usr/lib/x86_64-linux-gnu", "usr/share/doc")
    for directory in directories:
        (root / directory).mkdir(parents=True)
    (root / "lib").symlink_to("usr/lib")
    (root / "tmp").chmod(0o1777)
    for name in LIBRARIES:
        [found] = [path for path in unpacked.rglob(name) if "x86_64-linux-gnu" in str(path)]
        shutil.copy(found.resolve(), root / "usr/lib/x86_64-linux-gnu" / name)
    loader = "ld-linux-x86-64.so.2"
    (root / "lib64" / loader).symlink_to(f"../usr/lib/x86_64-linux-gnu/{loader}")
    trusted = sorted((unpacked / "usr/share/ca-certificates/mozilla").glob("*.crt"))
    bundle = root / "etc/ssl/certs/ca-certificates.crt"
    bundle.write_text("".join(path.read_text() for path in trusted))
    shutil.copy(unpacked / "usr/lib/os-release", root / "etc/os-release")
    (root / "etc/passwd").write_text(f"bowline:x:{USER}:{USER}::/var/lib/bowline:/nonexistent\n")
    (root / "etc/group").write_text(f"bowline:x:{USER}:\n")
    (root / "etc/nsswitch.conf").write_text("hosts: files dns\n")
    documents = root / "usr/share/doc"
    copyrights = {path.parent.name: path for path in unpacked.glob("usr/share/doc/*/copyright")}
    for package, path in {**copyrights, "bowline": HERE / "debian/copyright"}.items():
        (documents / package).mkdir()
        shutil.copy(path, documents / package)


def check(job):
    root = job.directory("image")
    with tarfile.open(_archive(job)) as archive:
        [manifest] = json.load(archive.extractfile("manifest.json"))
        config = json.load(archive.extractfile(manifest["Config"]))["config"]
        for layer in manifest["Layers"]:
            with tarfile.open(fileobj=archive.extractfile(layer)) as files:
                files.extractall(root)
    _settings(config)
    check_mode("container", root / PROGRAM)
    programs = [
        path.relative_to(root)
        for path in root.rglob("*")
        if path.is_file() and not path.is_symlink() and path.stat().st_mode & 0o111
    ]
    strange = [str(path) for path in programs if str(path) != PROGRAM and ".so" not in path.name]
    if strange:
        raise Failure(f"container: there are other programs: {strange}")
    # As a runtime starts it: the root directory, which nobody can write to, a volume, the user, the environment.
    state = job.directory("state")
    state.chmod(0o700)
    os.chown(state, USER, USER)
    mounted = ["unshare", "--mount", "sh", "-ec", MOUNT, "sh", root, state]
    chroot = shutil.which("chroot", path=f"{os.environ['PATH']}:/usr/sbin")
    command = ["env", "-i", *config["Env"], chroot, f"--userspec={config['User']}", "--groups=", root]
    first_call("container, unpacked", [*mounted, *command, *config["Entrypoint"]])
    if not list(state.iterdir()):
        raise Failure("container: nothing is kept in its volume")


def _settings(config):
    if config["User"] != f"{USER}:{USER}":
        raise Failure(f"container: it runs as {config['User']!r}")
    if config["Healthcheck"]["Test"] != ["CMD", *config["Entrypoint"], "health"]:
        raise Failure(f"container: its health check is {config['Healthcheck']}")
    said("container: not root, and its health check is the program itself")
