"""The commands that install packages or start the engine, with this host's own package manager and init system."""

from __future__ import annotations

import re
from collections.abc import Sequence
from shlex import quote

from ngcdl.doctor.chain import Step
from ngcdl.doctor.sight import Programs

MANAGERS = ("apt-get", "dnf", "zypper", "pacman")
TOOLKIT_CONFIG = "/etc/nvidia-container-runtime/config.toml"
CDI_GUIDE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html"
_TOOLKIT, _NVIDIA = "nvidia-container-toolkit", "https://nvidia.github.io/libnvidia-container"
_KEYRING = f"/usr/share/keyrings/{_TOOLKIT}-keyring.gpg"
_SOURCES = f"/etc/apt/sources.list.d/{_TOOLKIT}.list"
# From the guide, and from https://github.com/openSUSE/zypper/blob/master/doc/zypper.8.txt.
_FOLDERS = {"dnf": "/etc/yum.repos.d", "zypper": "/etc/zypp/repos.d"}


# The name of a distribution's own package of the engine, by package manager; for dnf, by the distribution's ID.
# https://packages.fedoraproject.org/pkgs/moby-engine/ https://wiki.archlinux.org/title/Docker
# https://docs.aws.amazon.com/AmazonECS/latest/developerguide/create-container-image.html
_ENGINES = {"apt-get": "docker.io", "zypper": "docker", "pacman": "docker"}
_ENGINES_OF_DNF = {"fedora": "moby-engine", "amzn": "docker"}
_DOCKER = "https://download.docker.com/linux"


def install(programs: Programs, packages: str) -> tuple[Step, ...]:
    """Return the step that installs packages of the same name everywhere; () without a known package manager."""
    manager = _manager(programs)
    verb = "-S" if manager == "pacman" else "install"
    return (Step(f"sudo {manager} {verb} {packages}"),) if manager else ()


def engine(programs: Programs, distribution: Sequence[str]) -> tuple[Step, ...]:
    """Return the steps that install the Docker engine and start it; () if only Docker's guide can help.

    `distribution` holds ID and ID_LIKE.
    """
    manager = _manager(programs)
    if manager == "apt-get":  # Debian's packages start the services that they install
        return install(programs, _ENGINES[manager])
    start = Step("sudo systemctl enable --now docker") if "systemctl" in programs.names else service(programs, "start")
    if manager != "dnf":
        return (*install(programs, _ENGINES[manager]), start) if manager else ()
    own = own_engine(programs, distribution)
    if own:
        return (*install(programs, own), start)
    # On RHEL and its derivatives the package docker is Podman: https://docs.docker.com/engine/install/rhel/
    # Uses curl, because the arguments of `dnf config-manager` differ between dnf 4 and dnf 5.
    if not {"rhel", "centos"} & set(distribution):
        return ()
    repository = f"{_DOCKER}/{'centos' if distribution[0] == 'centos' else 'rhel'}/docker-ce.repo"
    added = Step(f"sudo curl -fsSL -o {_FOLDERS['dnf']}/docker-ce.repo {repository}")
    return (added, *install(programs, "docker-ce docker-ce-cli containerd.io"), start)


def own_engine(programs: Programs, distribution: Sequence[str]) -> str | None:
    """Return the name of the distribution's own package of the engine, which has runc in a package apart.

    None if the package is Docker's. Also None with apt: there the versions of a distribution's packages are not judged,
    so that only Docker's packages are ever upgraded.
    """
    manager = _manager(programs)
    if manager == "dnf":
        return _ENGINES_OF_DNF.get(distribution[0]) if distribution else None
    return _ENGINES[manager] if manager == "zypper" else None


def _manager(programs: Programs) -> str | None:
    return next((name for name in MANAGERS if name in programs.names), None)


def toolkit(programs: Programs) -> tuple[Step, ...]:
    """Return the steps that install NVIDIA's container toolkit, from NVIDIA's repository: few distributions have it."""
    return (*(Step(command) for command in _repository(programs)), *install(programs, _TOOLKIT))


def fabric_manager(programs: Programs, driver: str) -> tuple[Step, ...]:
    """Return the step that installs the fabric manager of a driver's own version; () if its package is not known.

    https://github.com/NVIDIA/gpu-driver-container (install.sh of each distribution)
    https://packages.ubuntu.com/nvidia-fabricmanager-580
    """
    branch = driver.partition(".")[0]
    has_plain_name = branch.isascii() and branch.isdecimal() and int(branch) >= 580
    manager = _manager(programs)
    if manager == "dnf":
        return install(programs, f"nvidia-fabric{'' if has_plain_name else '-'}manager-{driver}")
    if manager != "apt-get":
        return ()
    is_ubuntu_s = any(re.search(rf"-{branch}(-|$)", name) for name in programs.driver_packages)
    name = "nvidia-fabricmanager" if has_plain_name and not is_ubuntu_s else f"nvidia-fabricmanager-{branch}"
    return install(programs, f"'{name}={driver}*'")


def subnet_manager(programs: Programs) -> tuple[Step, ...]:
    """Return the step that installs what the fabric manager needs for NVLink 5: see fabric_manager."""
    return install(programs, "nvlsm infiniband-diags") if _manager(programs) in ("apt-get", "dnf") else ()


def describe_gpus(path: str) -> str:
    """Return the command that writes CDI's description of this host's GPUs."""
    return f"sudo nvidia-ctk cdi generate --output={quote(path)}"


def _repository(programs: Programs) -> tuple[str, ...]:
    """Return the commands that add NVIDIA's repository as its guide (verdict.TOOLKIT) does, but are repeatable, and
    that fail if a download fails.

    `gpg -o` asks before overwriting a file, `zypper addrepo` refuses an existing repository, and tee, into which the
    guide pipes its downloads, succeeds even if they fail.
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


def upgrade(programs: Programs, package: str) -> tuple[Step, ...]:
    if "apt-get" in programs.names:
        return (Step(f"sudo apt-get update && sudo apt-get install --only-upgrade {package}"),)
    if "dnf" in programs.names:
        return (Step(f"sudo dnf upgrade {package}"),)
    return (Step(f"sudo zypper update {package}"),) if "zypper" in programs.names else ()


def service(programs: Programs, verb: str, *, is_rootless: bool = False) -> Step:
    """Return the step that starts or restarts the engine's daemon: with `service` if systemd is not running."""
    if is_rootless:
        return Step(f"systemctl --user {verb} docker")
    return Step(f"sudo systemctl {verb} docker" if "systemctl" in programs.names else f"sudo service docker {verb}")
