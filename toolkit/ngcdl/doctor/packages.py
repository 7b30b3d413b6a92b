"""The commands that install something, or start the engine, in this host's own way."""

from __future__ import annotations

from ngcdl.doctor.chain import Step
from ngcdl.doctor.sight import Programs

MANAGERS = ("apt-get", "dnf", "zypper", "pacman")


def install(programs: Programs, apt: str, *, dnf: str | None = None, pacman: str | None = None) -> tuple[Step, ...]:
    """Install a package that is called `apt` on Debian, `dnf` on Fedora and SUSE (None: the same); () for others."""
    if "apt-get" in programs.names:
        return (Step(f"sudo apt-get install {apt}"),)
    for manager in ("dnf", "zypper"):
        if manager in programs.names:
            return (Step(f"sudo {manager} install {dnf or apt}"),)
    return (Step(f"sudo pacman -S {pacman or apt}"),) if "pacman" in programs.names else ()


def upgrade(programs: Programs, apt: str, *, dnf: str | None = None) -> tuple[Step, ...]:
    if "apt-get" in programs.names:
        return (Step(f"sudo apt-get update && sudo apt-get install --only-upgrade {apt}"),)
    if "dnf" in programs.names:
        return (Step(f"sudo dnf upgrade {dnf or apt}"),)
    return (Step(f"sudo zypper update {dnf or apt}"),) if "zypper" in programs.names else ()


def service(programs: Programs, verb: str, *, is_rootless: bool = False) -> Step:
    """Start or restart the engine's daemon. Without a running systemd it is told in the older way."""
    if is_rootless:
        return Step(f"systemctl --user {verb} docker")
    return Step(f"sudo systemctl {verb} docker" if "systemctl" in programs.names else f"sudo service docker {verb}")
