"""Podman behind Docker's API: how it is recognised, and its `docker info` as Docker would have written it. Pure.

Podman reads neither HostConfig.Runtime nor a request for a number of GPUs: the container starts, without any GPU.
https://github.com/containers/podman/blob/main/pkg/api/handlers/compat/containers_create.go
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# The first release whose Docker API honours CDI devices: https://github.com/containers/podman/blob/main/RELEASE_NOTES.md
_CDI = (5, 4)
# Podman 5.4 and 5.5 search one folder, later ones both (DefaultCdiSpecDirs), unless containers.conf names others:
# https://github.com/containers/podman/blob/v5.5.0/vendor/github.com/containers/common/pkg/config/default.go
# https://github.com/containers/common/commit/d88bdca8
_CDI_FOLDERS, _BOTH = ("/etc/cdi", "/var/run/cdi"), (5, 6)


def may_be(info: Mapping[str, Any]) -> bool:
    """Whether `docker info` may be Podman's: it names no containerd, which Docker nearly always does."""
    return "ContainerdCommit" in info and not (info["ContainerdCommit"] or {}).get("ID")


def version(told: Mapping[str, Any]) -> str | None:
    """Return Podman's version from what `docker version` returned; None: it is not Podman."""
    parts = [one for one in told.get("Components") or [] if "podman" in str(one.get("Name", "")).lower()]
    return str(parts[0].get("Version") or "of an unknown version") if parts else None


def as_docker_info(info: Mapping[str, Any], number: str) -> dict[str, Any]:
    """Return Podman's `docker info`, corrected where Podman omits a field or means something else by it: the release is
    Podman's, the runtime nvidia is left out as it is never used, CDI devices are described in its default folders, and
    whether containers outlive the service is not reported. The ID, which Podman makes up at each call, is replaced by
    the host and the folder in which it stores containers.

    https://github.com/containers/podman/blob/main/pkg/api/handlers/compat/info.go
    """
    return {
        **info,
        "ID": f"{info.get('Name')}:{info.get('DockerRootDir')}",
        "ServerVersion": f"Podman {number}",
        "Runtimes": {name: one for name, one in (info.get("Runtimes") or {}).items() if name != "nvidia"},
        "CDISpecDirs": info.get("CDISpecDirs") or list(_folders(f"Podman {number}")),
        "LiveRestoreEnabled": None,
    }


def is_named(release: str | None) -> bool:
    """Whether `release` is the ServerVersion that `as_docker_info` writes for Podman."""
    return bool(release and release.startswith("Podman "))


def ignores_cdi(release: str | None) -> bool:
    """Whether `release` is a Podman whose Docker API ignores CDI devices, too. An unknown version counts as new."""
    return _is_before(release, _CDI)


def _is_before(release: str | None, least: tuple[int, int]) -> bool:
    numbers = re.match(r"Podman (\d+)\.(\d+)", release or "")
    return numbers is not None and (int(numbers[1]), int(numbers[2])) < least


def _folders(release: str) -> tuple[str, ...]:
    return _CDI_FOLDERS[:1] if _is_before(release, _BOTH) else _CDI_FOLDERS


def no_way(release: str) -> str:
    """Say why Podman has no way to hand a GPU to a container."""
    if ignores_cdi(release):
        by_hand = "podman run --device nvidia.com/gpu=all"
        return (
            f"{release} leaves out GPUs that are asked for by Docker's API, as it did before 5.4 (by hand: {by_hand})"
        )
    if len(folders := _folders(release)) == 1:
        return f"{release} takes GPUs by CDI alone, and {folders[0]}, where alone it looks before 5.6, describes none"
    return f"{release} takes GPUs by CDI alone, and neither {' nor '.join(folders)} describes one"
