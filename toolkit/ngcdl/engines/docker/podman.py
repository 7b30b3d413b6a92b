"""Podman behind Docker's API: what it says of itself, put as Docker would. Pure.

Its code reads neither HostConfig.Runtime nor a request for a number of GPUs: containers start, without any.
https://github.com/containers/podman/blob/main/pkg/api/handlers/compat/containers_create.go
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# The first release whose Docker API honours CDI devices: https://github.com/containers/podman/blob/main/RELEASE_NOTES.md
_CDI = (5, 4)
# https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md
_CDI_FOLDERS = ("/etc/cdi", "/var/run/cdi")


def may_be(info: Mapping[str, Any]) -> bool:
    """Could `docker info` be Podman's? It names no containerd, as it has none; Docker nearly always does."""
    return "ContainerdCommit" in info and not (info["ContainerdCommit"] or {}).get("ID")


def version(told: Mapping[str, Any]) -> str | None:
    """Return Podman's version from what `docker version` returned; None: it is not Podman."""
    parts = [one for one in told.get("Components") or [] if "podman" in str(one.get("Name", "")).lower()]
    return str(parts[0].get("Version") or "of an unknown version") if parts else None


def as_docker_info(info: Mapping[str, Any], number: str) -> dict[str, Any]:
    """Return `docker info` with what Podman leaves out or means differently: its release is none of Docker's, the
    runtime nvidia is never used, CDI devices are described in the usual folders, and containers outlive its service.
    It makes up a new ID at each call; what tells one from another is its host and where it stores containers.

    https://github.com/containers/podman/blob/main/pkg/api/handlers/compat/info.go
    """
    return {
        **info,
        "ID": f"{info.get('Name')}:{info.get('DockerRootDir')}",
        "ServerVersion": f"Podman {number}",
        "Runtimes": {name: one for name, one in (info.get("Runtimes") or {}).items() if name != "nvidia"},
        "CDISpecDirs": info.get("CDISpecDirs") or list(_CDI_FOLDERS),
        "LiveRestoreEnabled": None,
    }


def is_named(release: str | None) -> bool:
    """Is `release` what `completed` says?"""
    return bool(release and release.startswith("Podman "))


def ignores_cdi(release: str | None) -> bool:
    """Is it a Podman that leaves CDI devices out, too? One of an unknown version is taken for a new one."""
    numbers = re.match(r"Podman (\d+)\.(\d+)", release or "")
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < _CDI


def no_way(release: str) -> str:
    """Say why a Podman hands over no GPU."""
    if ignores_cdi(release):
        by_hand = "podman run --device nvidia.com/gpu=all"
        return (
            f"{release} leaves out GPUs that are asked for by Docker's API, as it did before 5.4 (by hand: {by_hand})"
        )
    return f"{release} takes GPUs by CDI alone, and neither {' nor '.join(_CDI_FOLDERS)} describes one"
