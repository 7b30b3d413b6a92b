"""Which of the chain's programs are on PATH, NVIDIA's toolkit and its settings, and which packages the driver has."""

from __future__ import annotations

import re
import tomllib

from ngcdl.doctor.hands import Hands
from ngcdl.doctor.packages import MANAGERS, TOOLKIT_CONFIG
from ngcdl.doctor.sight import Programs, ToolkitConfig

_SECONDS = 2.0
NAMES = (
    "dockerd", "docker", "podman", "nvidia-smi", "nvidia-ctk", "nvidia-container-cli", "nvidia-container-runtime",
    "nvidia-container-runtime-hook", "nvidia-cdi-hook", "nv-fabricmanager", "systemctl", *MANAGERS,
)  # fmt: skip
# "NVIDIA Container Toolkit CLI version 1.17.4", and "cli-version: 1.17.4" of the older nvidia-container-cli.
_VERSION = re.compile(r"^(?:.*CLI version|cli-version:)\s+(\S+)", re.MULTILINE)
_OF_THE_DRIVER = re.compile(r"^installed ((?:libnvidia|nvidia|linux-modules-nvidia)-\S+)$", re.MULTILINE)


def look(hands: Hands) -> Programs:
    names = {name: path for name in NAMES if (path := hands.which(name))}
    if not hands.at("/run/systemd/system").exists():  # this host was not booted with systemd
        names.pop("systemctl", None)
    toolkit = None
    for name in ("nvidia-ctk", "nvidia-container-cli"):
        if toolkit is None and name in names:
            found = _VERSION.search(hands.run([names[name], "--version"], _SECONDS) or "")
            toolkit = found[1] if found else None
    is_loaded = hands.read("/proc/driver/nvidia/version") is not None
    packages = _OF_THE_DRIVER.findall(listed(hands) or "") if is_loaded else ()
    return Programs(frozenset(names), toolkit, frozenset(packages), toolkit_config(hands))


def toolkit_config(hands: Hands) -> ToolkitConfig | None:
    """Read the toolkit's settings; None if they can't be read. A daemon set to another file is rare, and not covered.

    https://github.com/NVIDIA/nvidia-container-toolkit/blob/v1.18.0/internal/config/config.go
    """
    try:
        tree = tomllib.loads(hands.at(TOOLKIT_CONFIG).read_text("utf-8"))
        runtime, hook = tree.get("nvidia-container-runtime", {}), tree.get("nvidia-container-cli", {})
        return ToolkitConfig(
            mode=str(runtime.get("mode", "auto")),
            takes_variable=tree.get("accept-nvidia-visible-devices-envvar-when-unprivileged") is not False,
            no_cgroups=hook.get("no-cgroups") is True,
        )
    except FileNotFoundError:
        return ToolkitConfig()
    except (OSError, ValueError, AttributeError):  # AttributeError: a section that is no table
        return None


def listed(hands: Hands) -> str | None:
    """Return all packages that dpkg knows, one line with state and name for each; None without dpkg.

    No pattern is passed, because dpkg-query fails if one of several matches nothing.
    """
    program = hands.which("dpkg-query")
    return hands.run([program, "-W", "-f=${db:Status-Status} ${Package}\\n"], _SECONDS) if program else None
