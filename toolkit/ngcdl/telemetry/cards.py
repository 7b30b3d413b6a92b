"""What a run's cards do, and how many others compute on them, for a sample."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import psutil

from ngcdl.telemetry import container
from ngcdl.telemetry.card import GpuProcess
from ngcdl.telemetry.gpu import Nvml
from ngcdl.telemetry.sample import GpuSample, whole

OTHERS_SECONDS = 0.5


@dataclass(frozen=True)
class Run:
    """`uuids` are its cards. Its processes are known by its container, or by `pid`, the first of a local run's."""

    uuids: Sequence[str]
    container: str | None = None
    pid: int | None = None


class Cards:
    """Reads the cards of a run. The others on them are looked for twice a second at most: each costs a look into
    /proc. In between their number is known."""

    def __init__(self, nvml: Nvml, run: Run, now: Callable[[], float] = time.monotonic) -> None:
        self._nvml, self._run, self._now = nvml, run, now
        self._looked: float | None = None
        self._others: dict[str, int | None] = {}

    def read(self) -> tuple[GpuSample, ...]:
        now = self._now()
        is_due = self._looked is None or now - self._looked >= OTHERS_SECONDS
        if is_due:
            self._looked = now
        return tuple([self._sample(uuid, is_due) for uuid in self._run.uuids])

    def _sample(self, uuid: str, others: bool) -> GpuSample:
        values, error = self._nvml.use(uuid, processes=others)
        if others:
            self._others[uuid] = foreign(values.pop("processes", None), self._run)
        values["foreign_processes"] = self._others[uuid]
        values["error"] = error
        return whole(GpuSample, values)


def foreign(processes: Sequence[GpuProcess] | None, run: Run) -> int | None:
    """Count the processes on a card that are not the run's. None: neither the driver nor /proc can tell."""
    if processes is None or not (run.container or run.pid):
        return None
    verdicts = [_is_ours(process, run) for process in processes]
    return None if None in verdicts else verdicts.count(False)


def _is_ours(process: GpuProcess, run: Run) -> bool | None:
    if container.cgroup_text(process.pid) is None or not container.pids_are_the_hosts():
        return None
    if run.container:
        return process.container_id == run.container
    try:
        return run.pid in (process.pid, *(parent.pid for parent in psutil.Process(process.pid).parents()))
    except psutil.Error:
        return None
