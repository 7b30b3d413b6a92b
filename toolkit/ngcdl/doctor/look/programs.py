"""Which of the chain's programs are on PATH, which version NVIDIA's toolkit is, and which packages the driver has."""

from __future__ import annotations

import re

from ngcdl.doctor.hands import Hands
from ngcdl.doctor.packages import MANAGERS
from ngcdl.doctor.sight import Programs

_SECONDS = 2.0
NAMES = (
    "dockerd", "docker", "nvidia-smi", "nvidia-ctk", "nvidia-container-cli", "nvidia-container-runtime",
    "nvidia-container-runtime-hook", "nvidia-cdi-hook", "systemctl", *MANAGERS,
)  # fmt: skip
# "NVIDIA Container Toolkit CLI version 1.17.4", and "cli-version: 1.17.4" of the older nvidia-container-cli.
_VERSION = re.compile(r"^(?:.*CLI version|cli-version:)\s+(\S+)", re.MULTILINE)
_OF_THE_DRIVER = re.compile(r"^installed ((?:libnvidia|nvidia|linux-modules-nvidia)-\S+)$", re.MULTILINE)


def look(hands: Hands) -> Programs:
    names = {name: path for name in NAMES if (path := hands.which(name))}
    if not hands.at("/run/systemd/system").exists():  # installed, but this host did not boot with it
        names.pop("systemctl", None)
    toolkit = None
    for name in ("nvidia-ctk", "nvidia-container-cli"):
        if toolkit is None and name in names:
            found = _VERSION.search(hands.run([names[name], "--version"], _SECONDS) or "")
            toolkit = found[1] if found else None
    is_loaded = hands.read("/proc/driver/nvidia/version") is not None
    packages = _OF_THE_DRIVER.findall(listed(hands) or "") if is_loaded else ()
    return Programs(frozenset(names), toolkit, frozenset(packages))


def listed(hands: Hands) -> str | None:
    """Return all packages that dpkg knows, a line with state and name each; None without dpkg.

    No pattern is passed, because dpkg-query fails if one of several matches nothing.
    """
    program = hands.which("dpkg-query")
    return hands.run([program, "-W", "-f=${db:Status-Status} ${Package}\\n"], _SECONDS) if program else None
