"""Which programs of the chain are on this host's PATH, and which version NVIDIA's toolkit says that it is."""

from __future__ import annotations

import re

from ngcdl.doctor.hands import Hands
from ngcdl.doctor.packages import MANAGERS
from ngcdl.doctor.sight import Programs

_SECONDS = 2.0
NAMES = (
    "dockerd", "docker", "nvidia-smi", "nvidia-ctk", "nvidia-container-cli", "nvidia-container-runtime",
    "nvidia-container-runtime-hook", "nvidia-cdi-hook", "nvidia-persistenced", "systemctl", *MANAGERS,
)  # fmt: skip
# "NVIDIA Container Toolkit CLI version 1.17.4", and "cli-version: 1.17.4" of the older nvidia-container-cli.
_VERSION = re.compile(r"^(?:.*CLI version|cli-version:)\s+(\S+)", re.MULTILINE)


def look(hands: Hands) -> Programs:
    names = {name: path for name in NAMES if (path := hands.which(name))}
    if not hands.at("/run/systemd/system").exists():  # installed, but this host was started by something else
        names.pop("systemctl", None)
    toolkit = None
    for name in ("nvidia-ctk", "nvidia-container-cli"):
        if toolkit is None and name in names:
            found = _VERSION.search(hands.run([names[name], "--version"], _SECONDS) or "")
            toolkit = found[1] if found else None
    return Programs(frozenset(names), toolkit)
