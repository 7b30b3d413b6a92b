"""What a run's cards do, and how many of its own and of other processes compute on them, for a sample."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import Any

import psutil

from ngcdl.frozen import dataclass
from ngcdl.telemetry import container
from ngcdl.telemetry.card import IDLE_PERCENT, GpuProcess
from ngcdl.telemetry.gpu import Nvml


@dataclass(frozen=True)
class RunProcesses:
    """A run's cards by UUID, and what its processes are recognised by: the id of its container, or `pid`, the first
    process of a run without a container."""

    uuids: Sequence[str]
    container: str | None = None
    pid: int | None = None


class Cards:
    """Reads the cards of a run, as a sampler's GpuSource."""

    def __init__(self, nvml: Nvml, run: RunProcesses) -> None:
        self._nvml, self._run = nvml, run
        self._begun: set[str] = set()
        self._desktops: dict[str, set[int]] = {}

    def read(self, is_brief: bool = False) -> list[dict[str, Any]]:
        return [self._sample(uuid, is_brief) for uuid in self._run.uuids]

    def _sample(self, uuid: str, is_brief: bool) -> dict[str, Any]:
        values, error = self._nvml.use(uuid, "brief" if is_brief else "usual")
        if not is_brief:
            processes = values.pop("processes", None)
            desktop = self._desktop(uuid, processes or (), values["gpu_percent"])
            values |= self._nvml.activity(uuid)
            values["own_processes"], values["foreign_processes"] = counted(processes, self._run, desktop)
        values["error"] = error
        return values

    def _desktop(self, uuid: str, processes: Sequence[GpuProcess], percent: int | None) -> Collection[int]:
        """Return the PIDs of the processes that drew on a card while it was nearly idle, before the run computed on
        it."""
        if not container.pids_are_the_hosts():
            return ()
        desktop = self._desktops.setdefault(uuid, set())
        if uuid not in self._begun:
            if any(one.computes and _is_ours(one, self._run) for one in processes):
                self._begun.add(uuid)
            elif percent is not None and percent <= IDLE_PERCENT:
                desktop.update(one.pid for one in processes if one.draws)
        return desktop


def counted(
    processes: Sequence[GpuProcess] | None, run: RunProcesses, desktop: Collection[int]
) -> tuple[int | None, int | None]:
    """Count the processes on a card that are the run's and compute, and those that are not the run's; None if the
    driver or /proc can't tell.

    Processes of the `desktop`, given by PID, do not count. If no other process is known to compute, the second number
    is still unknown while a process draws that may be a game, or while the driver doesn't list the clients of an MPS
    server. So is then the first, if no process is known to be the run's."""
    if processes is None or not (run.container or run.pid) or not container.pids_are_the_hosts():
        return None, None
    count = [one for one in processes if not (one.is_mps_server or (one.draws and one.pid in desktop))]
    verdicts = [(one, _is_ours(one, run)) for one in count]
    is_hidden = any(one.hides_clients for one in processes)
    ours = [verdict for one, verdict in verdicts if one.computes]
    own = ours.count(True) or (None if is_hidden or None in ours else 0)
    others = [verdict for one, verdict in verdicts if not one.draws]
    if None in others:
        return own, None
    may_play = any(one.draws and not verdict for one, verdict in verdicts)
    return own, others.count(False) or (None if is_hidden or may_play else 0)


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
        # the run's first process leads a session, which a worker that outlived its parent is still in
        return run.pid in (process.pid, os.getsid(process.pid), *(parent.pid for parent in parents))
    except (psutil.Error, OSError):
        return None
