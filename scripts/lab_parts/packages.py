"""Debian packages, unpacked into the cache: two Docker Engines, runc, a registry, mmdebstrap, busybox, Slurm, kubectl.

Packages are downloaded and unpacked, not installed, except iptables and, where there is no compiler, gcc: no service
starts and the machine stays as it is. The mirror is the one that apt itself uses; other suites come from the same
mirror through a private apt folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from lab_parts.where import Lab, LabError, recipe_key, step

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
COMPILER = {"gcc": "gcc", "cc": "libc6-dev"}  # an argument of ensure_installed()

# Folder in the cache: (suite, packages). runc is Debian 12's: Debian 13's needs libc6 >= 2.38, while Debian 13's engine
# needs only 2.34.
UNPACKED = {
    "engine": ("trixie", ["docker.io", "docker-cli", "docker-compose", "containerd", "tini"]),
    "floor": ("bookworm", ["docker.io", "containerd", "tini", "runc"]),
    "tools": ("bookworm", ["docker-registry", "mmdebstrap", "busybox-static", "runc"]),
    "kubernetes": ("trixie", ["kubectl/trixie"]),  # names the suite, else apt takes the newest version that it knows
    "slurm": ("bookworm", [
        "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "libslurm-dev", "libslurm38", "munge",
        "libmunge2", "libhwloc15", "liblua5.1-0",
    ]),
    "slurm-accounting": ("bookworm", [
        "slurmdbd", "slurm-wlm-mysql-plugin", "mariadb-server-core", "mariadb-client-core", "libmariadb3", "libaio1",
        "liburing2",
    ]),
    # Debian 13's, with the libraries that are older in Debian 12
    "slurm-24.11": ("trixie", [
        "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "libslurm-dev", "libslurm42t64", "munge",
        "libmunge2", "libgcrypt20", "libgpg-error0", "libhwloc15", "libnuma1", "liblua5.1-0", "libc6",
    ]),
    "slurm-accounting-24.11": ("trixie", ["slurmdbd", "slurm-wlm-mysql-plugin", "libmariadb3"]),
}  # fmt: skip


def unpacked(lab: Lab, name: str) -> Path:
    """Return the folder with the packages of UNPACKED[name], downloading them if the cache lacks them."""
    suite, packages = UNPACKED[name]
    folder = lab.cache / "packages" / f"{name}-{recipe_key(suite, packages)}"
    if folder.exists():
        return folder
    with step(f"packages of Debian {suite} for {name}: {' '.join(packages)}"):
        draft = lab.cache / "packages" / f"{name}.draft"
        fetch(draft, apt_of(lab, suite), packages)
        draft.rename(folder)
    return folder


def fetch(draft: Path, options: list[str], packages: Iterable[str]) -> None:
    """Download packages with apt-get and these options, and unpack them into `draft`, which is recreated."""
    shutil.rmtree(draft, ignore_errors=True)
    (draft / "debs").mkdir(parents=True)
    run(["apt-get", *options, "-q", "download", *packages], cwd=draft / "debs")
    for deb in sorted((draft / "debs").glob("*.deb")):
        run(["dpkg", "-x", str(deb), str(draft)])
    shutil.rmtree(draft / "debs")


def mirror() -> str:
    """Return the address of the Debian mirror: NGCDL_LAB_DEBIAN, else the one that this machine's apt uses. Raise
    LabError if there is none."""
    if os.environ.get("NGCDL_LAB_DEBIAN"):
        return os.environ["NGCDL_LAB_DEBIAN"]
    lines = run(["apt-get", "indextargets", "--format", "$(ORIGIN)|$(COMPONENT)|$(LABEL)|$(REPO_URI)"]).splitlines()
    for line in lines:
        origin, component, label, address = line.split("|", 3)
        if (origin, component, label) == ("Debian", "main", "Debian"):
            return address
    raise LabError(
        "apt knows no Debian mirror here, and the lab is built from Debian's packages: "
        "type `apt-get update` and look at /etc/apt; on Ubuntu name a Debian mirror in NGCDL_LAB_DEBIAN"
    )


def source(suite: str) -> str:
    """Return the sources.list line for a Debian suite, signed with Debian's key."""
    return f"deb [signed-by={KEYRING}] {mirror()} {suite} main"


def ensure_installed(commands: dict[str, str]) -> None:
    """Install the packages of the commands (command: package) that the machine lacks."""
    missing = [package for command, package in commands.items() if not _found(command)]
    if not missing:
        return
    with step(f"installed {' '.join(missing)}"):
        sudo = [] if os.geteuid() == 0 or not shutil.which("sudo") else ["sudo", "-n"]
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        run([*sudo, "apt-get", "-qq", "update"], env=environment)
        run([*sudo, "apt-get", "-qq", "install", "-y", "--no-install-recommends", *missing], env=environment)


def _found(command: str) -> bool:
    return shutil.which(command, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is not None


def apt_of(lab: Lab, suite: str) -> list[str]:
    """Prepare an apt folder for one suite, update it, and return the options that make apt-get use it."""
    folder = lab.cache / "apt" / suite
    (folder / "lists/partial").mkdir(parents=True, exist_ok=True)
    (folder / "cache/archives/partial").mkdir(parents=True, exist_ok=True)
    listed = folder / "suite.list"
    listed.write_text(source(suite) + "\n")
    options = {
        "Dir::Etc::sourcelist": listed,
        "Dir::Etc::sourceparts": "-",
        "Dir::State::lists": folder / "lists",
        "Dir::Cache": folder / "cache",
        "Debug::NoLocking": 1,
        "APT::Sandbox::User": "root",
    }
    words = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    run(["apt-get", *words, "-q", "update"])
    return words


def run(command: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    try:
        done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise LabError(f"{command[0]} is not here: the lab needs a Debian machine with apt") from error
    if done.returncode:
        raise LabError(
            f"`{' '.join(command)}` failed ({done.returncode}):\n{(done.stderr or done.stdout).strip()[-1500:]}"
        )
    return done.stdout
