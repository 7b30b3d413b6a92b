"""Podman behind Docker's API: what it says of itself in Docker's words, and how it takes GPUs. Pure.

Its code reads neither HostConfig.Runtime nor a request for a number of GPUs: containers start, without any.
https://github.com/containers/podman/blob/main/pkg/api/handlers/compat/containers_create.go
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ngcdl.engines.base import GpuWay

# The first release whose Docker API honours CDI devices: https://github.com/containers/podman/blob/main/RELEASE_NOTES.md
_CDI = (5, 4)
# https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")
_COMMAND = "podman run --device nvidia.com/gpu=all"


def may_be(info: Mapping[str, Any]) -> bool:
    """Could `docker info` be Podman's? It names no containerd, as it has none; Docker nearly always does."""
    return "ContainerdCommit" in info and not (info["ContainerdCommit"] or {}).get("ID")


def version(told: Mapping[str, Any]) -> str | None:
    """Return Podman's version from what `docker version` returned; None: it is not Podman."""
    parts = [one for one in told.get("Components") or [] if "podman" in str(one.get("Name", "")).lower()]
    return str(parts[0].get("Version") or "of an unknown version") if parts else None


def completed(info: Mapping[str, Any], number: str) -> dict[str, Any]:
    """Return `docker info` with what Podman leaves out or means differently: its release is none of Docker's, it looks
    for CDI devices in the usual folders, and containers outlive its service."""
    folders = info.get("CDISpecDirs") or list(_CDI_FOLDERS)
    return {**info, "ServerVersion": f"Podman {number}", "CDISpecDirs": folders, "LiveRestoreEnabled": None}


def is_named(release: str | None) -> bool:
    """Is `release` what `completed` says?"""
    return bool(release and release.startswith("Podman "))


def takes_cdi(named: str) -> bool:
    numbers = re.search(r"(\d+)\.(\d+)", named)
    return not numbers or (int(numbers[1]), int(numbers[2])) >= _CDI


def gpu_way(named: str, devices: Sequence[str]) -> GpuWay:
    """Choose how GPUs get in. `named`: its version, as "Podman 4.9.3"; `devices`: the GPUs that CDI describes."""
    if not takes_cdi(named):
        why = f"{named} leaves out GPUs that are asked for by Docker's API, as it did before 5.4 (by hand: {_COMMAND})"
        return GpuWay("none", why, is_final=True)
    if devices:
        return GpuWay("cdi", "CDI (--device nvidia.com/gpu) is there", tuple(devices))
    folders = " nor ".join(_CDI_FOLDERS)
    return GpuWay("none", f"{named} takes GPUs by CDI alone, and neither {folders} describes one", is_final=True)
