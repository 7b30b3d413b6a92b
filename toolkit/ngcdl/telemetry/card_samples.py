"""What do a run's cards do, and how many other processes compute on them? For a sample."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil

from ngcdl.telemetry import container
from ngcdl.telemetry.card import IDLE_PERCENT, GpuProcess
from ngcdl.telemetry.gpu import Nvml


@dataclass(frozen=True)
class RunProcesses:
    """`uuids` are its cards. Its processes are known by its container, or by `pid`, a local run's first process."""

    uuids: Sequence[str]
    container: str | None = None
    pid: int | None = None


class Cards:
    """Reads the cards of a run, as a sampler's GpuSource."""

    def __init__(self, nvml: Nvml, run: RunProcesses) -> None:
        self._nvml, self._run = nvml, run
        self._begun: set[str] = set()
        self._least: dict[str, int] = {}

    def read(self, is_brief: bool = False) -> list[dict[str, Any]]:
        return [self._sample(uuid, is_brief) for uuid in self._run.uuids]

    def _sample(self, uuid: str, is_brief: bool) -> dict[str, Any]:
        values, error = self._nvml.use(uuid, processes=not is_brief, is_brief=is_brief)
        if not is_brief:
            processes = values.pop("processes", None)
            before = self._before(uuid, processes or (), values["gpu_percent"])
            values["foreign_processes"] = foreign(processes, self._run, before)
        values["error"] = error
        return values

    def _before(self, uuid: str, processes: Sequence[GpuProcess], percent: int | None) -> int | None:
        """Return the least use of a card, 0..100, that was seen before the run computed on it; None if none was."""
        if uuid not in self._begun and any(_is_ours(one, self._run) for one in processes):
            self._begun.add(uuid)
        if uuid not in self._begun and percent is not None:
            self._least[uuid] = min(percent, self._least.get(uuid, percent))
        return self._least.get(uuid)


def foreign(processes: Sequence[GpuProcess] | None, run: RunProcesses, before_percent: int | None) -> int | None:
    """Count the processes on a card that are not the run's. None: neither the driver nor /proc can tell.

    A desktop's, which draw, do not count if the card was as good as idle before the run, by `before_percent`. Else they
    may be a game, and nobody can tell; nor who computes through an MPS server whose clients the driver doesn't list."""
    if processes is None or not (run.container or run.pid) or not container.pids_are_the_hosts():
        return None
    verdicts = [_is_ours(process, run) for process in processes if not (process.draws or process.is_mps_server)]
    if None in verdicts:
        return None
    is_idle = before_percent is not None and before_percent <= IDLE_PERCENT
    hidden = any(one.hides_clients or (one.draws and not is_idle) for one in processes)
    return verdicts.count(False) or (None if hidden else 0)


def _is_ours(process: GpuProcess, run: RunProcesses) -> bool | None:
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
