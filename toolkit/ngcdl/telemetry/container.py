"""Which container and which control groups a process belongs to. None: /proc can't be read (any more)."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache
from pathlib import Path

PROC, CGROUPS = Path("/proc"), Path("/sys/fs/cgroup")
_ID = re.compile(r"(?:[a-z][a-z0-9_.]*-)*([0-9a-f]{64})(?:\.scope)?")
_INITIAL_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO, include/linux/proc_ns.h of Linux


def cgroups(text: str) -> dict[str, str]:
    """Parse /proc/PID/cgroup into {controller: path}; version 2's single line has the controller ""."""
    found = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, colon, path = rest.partition(":")
        if colon:
            found.update(dict.fromkeys(controllers.split(","), path))
    return found


def container_ids(text: str) -> tuple[str, ...]:
    """Return the ids of the containers that /proc/PID/cgroup names, from the outermost to the innermost."""
    best: tuple[str, ...] = ()
    for path in cgroups(text).values():
        ids = [match[1] for part in path.split("/") if (match := _match(part))]
        best = max(best, tuple(ids), key=len)
    return best


def _match(part: str) -> re.Match[str] | None:
    # podman's and CRI-O's conmon watches a container from outside. containerd writes "slice:cri-containerd:ID".
    return None if "conmon" in part else _ID.fullmatch(part.rpartition(":")[2])


def cgroup_text(pid: int | str) -> str | None:
    try:
        return (PROC / str(pid) / "cgroup").read_text()
    except OSError:
        return None


def container_of(pid: int) -> str | None:
    """Return the id of the container that a process runs in, as the engine of this host knows it."""
    text = cgroup_text(pid)
    if text is None:
        return None
    around_us = container_ids(cgroup_text("self") or "")
    inner = [one for one in container_ids(text) if one not in around_us]
    return inner[0] if inner else None


def name_of(pid: int) -> str | None:
    """Return the name of a process's program."""
    try:
        return (PROC / str(pid) / "comm").read_text(errors="replace").strip() or None
    except OSError:
        return None


@cache
def pids_are_the_hosts() -> bool:
    """Return whether a PID from the driver means the same process here, and the driver lists all processes.

    In another PID namespace older drivers list the host's PIDs, newer ones only the processes that are visible in it:
    https://github.com/NVIDIA/nvidia-docker/issues/1483
    https://github.com/NVIDIA/open-gpu-kernel-modules/pull/614
    """
    with suppress(OSError):
        return str((PROC / "self/ns/pid").readlink()) == _INITIAL_PID_NAMESPACE
    return False


def folders(pid: int) -> dict[str, Path]:
    """Return the folders of a process's control groups: {"": that of version 2, controller: that of version 1}."""
    paths = cgroups(cgroup_text(pid) or "")
    mounts = {"": CGROUPS / "unified" if (CGROUPS / "unified").is_dir() else CGROUPS}
    mounts |= {name: CGROUPS / name for name in ("cpuacct", "memory")}
    if not mounts["cpuacct"].is_dir():
        mounts["cpuacct"] = CGROUPS / "cpu,cpuacct"
    return {name: mounts[name] / whole_container(path).lstrip("/") for name, path in paths.items() if name in mounts}


def folders_of_container(pid: int) -> dict[str, Path]:
    """Return those of folders() that belong to the container that a process runs in. Without cgroups (`docker info`:
    CgroupDriver none) a container stays in the group that the engine was started in, with other processes: then return
    {}."""
    found, identity = folders(pid), container_of(pid)
    return {name: folder for name, folder in found.items() if identity and identity in str(folder)}


def whole_container(path: str) -> str:
    """Cut a cgroup path after the innermost container's id: init systems inside create their own groups."""
    parts = path.split("/")
    ends = [number for number, part in enumerate(parts) if _match(part)]
    return "/".join(parts[: ends[-1] + 1]) if ends else path
