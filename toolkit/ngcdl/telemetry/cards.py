"""What do a run's cards do, and how many other processes compute on them? For a sample."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from ngcdl.telemetry import container
from ngcdl.telemetry.card import GpuProcess
from ngcdl.telemetry.gpu import Nvml


@dataclass(frozen=True)
class Run:
    """`uuids` are its cards. Its processes are known by its container, or by `pid`, a local run's first process."""

    uuids: Sequence[str]
    container: str | None = None
    pid: int | None = None


class Cards:
    """Reads the cards of a run, as a sampler's GpuSource."""

    def __init__(self, nvml: Nvml, run: Run) -> None:
        self._nvml, self._run = nvml, run

    def read(self, is_brief: bool = False) -> list[dict[str, Any]]:
        return [self._sample(uuid, is_brief) for uuid in self._run.uuids]

    def _sample(self, uuid: str, is_brief: bool) -> dict[str, Any]:
        values, error = self._nvml.use(uuid, processes=not is_brief, is_brief=is_brief)
        if not is_brief:
            values["foreign_processes"] = foreign(values.pop("processes", None), self._run)
        values["error"] = error
        return values


def foreign(processes: Sequence[GpuProcess] | None, run: Run) -> int | None:
    """Count the processes on a card that are not the run's; a desktop's, which also draw, do not count. None: neither
    the driver nor /proc can tell."""
    if processes is None or not (run.container or run.pid) or not container.pids_are_the_hosts():
        return None
    verdicts = [_is_ours(process, run) for process in processes if not process.draws]
    return None if None in verdicts else verdicts.count(False)


def _is_ours(process: GpuProcess, run: Run) -> bool | None:
    if container.cgroup_text(process.pid) is None:
        return None
    if run.container and process.container_id:
        return process.container_id == run.container
    try:
        parents = psutil.Process(process.pid).parents()
        if run.container:
            # Rootless Docker has no cgroups if `docker info` says CgroupDriver none. Then the shim above a container's
            # processes names it: https://github.com/containerd/containerd/blob/main/core/runtime/v2/README.md
            return any(run.container in parent.cmdline() for parent in parents)
        # its first process leads a session: a worker that outlived its parent is still in it
        return run.pid in (process.pid, os.getsid(process.pid), *(parent.pid for parent in parents))
    except (psutil.Error, OSError):
        return None
