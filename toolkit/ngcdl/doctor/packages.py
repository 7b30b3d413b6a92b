"""The commands that install something, or start the engine, in this host's own way."""

from __future__ import annotations

from ngcdl.doctor.chain import Step
from ngcdl.doctor.sight import Programs

MANAGERS = ("apt-get", "dnf", "zypper", "pacman")
TOOLKIT_GUIDE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/install-guide.html"
_TOOLKIT, _NVIDIA = "nvidia-container-toolkit", "https://nvidia.github.io/libnvidia-container"
_KEYRING = f"/usr/share/keyrings/{_TOOLKIT}-keyring.gpg"
_SOURCES = f"/etc/apt/sources.list.d/{_TOOLKIT}.list"
# The guide's, and that of https://github.com/openSUSE/zypper/blob/master/doc/zypper.8.txt.
_FOLDERS = {"dnf": "/etc/yum.repos.d", "zypper": "/etc/zypp/repos.d"}


def install(programs: Programs, apt: str, *, dnf: str | None = None, pacman: str | None = None) -> tuple[Step, ...]:
    """Install a package that is called `apt` on Debian, `dnf` on Fedora and SUSE (None: the same); () for others."""
    if "apt-get" in programs.names:
        return (Step(f"sudo apt-get install {apt}"),)
    for manager in ("dnf", "zypper"):
        if manager in programs.names:
            return (Step(f"sudo {manager} install {dnf or apt}"),)
    return (Step(f"sudo pacman -S {pacman or apt}"),) if "pacman" in programs.names else ()


def toolkit(programs: Programs) -> tuple[Step, ...]:
    """Install NVIDIA's container toolkit, with NVIDIA's repository first: most distributions do not have it."""
    return (*(Step(command) for command in _repository(programs)), *install(programs, _TOOLKIT))


def _repository(programs: Programs) -> tuple[str, ...]:
    """Add it as TOOLKIT_GUIDE does, but so that it may be done again, and that a download which fails ends it.

    `gpg -o` asks before it writes over a file, `zypper addrepo` refuses a repository that is there, and tee, behind
    which the guide has its downloads, does not fail with them.
    """
    if "apt-get" in programs.names:
        signed = f"s#deb https://#deb [signed-by={_KEYRING}] https://#"
        return (
            "sudo apt-get update && sudo apt-get install ca-certificates curl gnupg",
            f"curl -fsSL {_NVIDIA}/gpgkey | sudo gpg --dearmor --yes -o {_KEYRING}",
            f"sudo curl -fsSL -o {_SOURCES} {_NVIDIA}/stable/deb/{_TOOLKIT}.list && sudo sed -i '{signed}' {_SOURCES}",
            "sudo apt-get update",
        )
    folder = next((folder for name, folder in _FOLDERS.items() if name in programs.names), None)
    return (f"sudo curl -fsSL -o {folder}/{_TOOLKIT}.repo {_NVIDIA}/stable/rpm/{_TOOLKIT}.repo",) if folder else ()


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
