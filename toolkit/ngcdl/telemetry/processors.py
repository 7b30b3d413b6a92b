"""How many processors this process may use, by its affinity and by the limits of its control groups.

Version 2: cpu.max: https://docs.kernel.org/admin-guide/cgroup-v2.html. Version 1: cpu.cfs_quota_us in each
cpu.cfs_period_us: https://docs.kernel.org/scheduler/sched-bwc.html.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from ngcdl.telemetry import container


def processors() -> float:
    """Return how much processor time per second this process may use at most, in processors."""
    paths = container.cgroups(container.cgroup_text("self") or "")
    unified = container.CGROUPS / "unified"
    folders = [*_around(unified if unified.is_dir() else container.CGROUPS, paths.get("", "/"))]
    for mount in ("cpu", "cpu,cpuacct"):
        folders += _around(container.CGROUPS / mount, paths.get("cpu", "/"))
    limits = [limit for folder in folders if (limit := _limit(folder)) is not None]
    return min([float(len(os.sched_getaffinity(0))), *limits])


def _around(mount: Path, path: str) -> list[Path]:
    """Return the folders of a group and its ancestors; a container sees none above its own."""
    group = mount / path.lstrip("/")
    return [one for one in (group, *group.parents) if one.is_relative_to(mount)]


def _limit(folder: Path) -> float | None:
    words: list[str] = []
    with suppress(OSError):
        words = (folder / "cpu.max").read_text().split()
    with suppress(OSError):
        words = [(folder / name).read_text().strip() for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    # "max" and -1: no limit
    return int(words[0]) / int(words[1]) if len(words) == 2 and all(word.isdecimal() for word in words) else None
