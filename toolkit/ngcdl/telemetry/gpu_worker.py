"""The process that asks NVML while a run goes on: a driver call that never returns, or crashes, is its trouble alone.

A program of its own (python -m ngcdl.telemetry.gpu_worker JSON), started and ended by gpu_reader. The argument holds
{"uuids": [..] or null, "container": id or null, "pid": of the run's first process or null}. It writes one line when
the driver is open, then one for each line that it reads, until its input ends; "at" (CLOCK_MONOTONIC, s) is
when the reading began:
    {"at", "ready": true}   {"at", "gpus": [as in sample.py]}   {"at", "error": why there are none}
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import orjson
import psutil

from ngcdl.errors import NvmlUnavailable
from ngcdl.telemetry import container, gpu
from ngcdl.telemetry.card import GpuProcess, GpuReading
from ngcdl.telemetry.sample import GpuSample

OTHERS_SECONDS = 0.5


def main(argument: str) -> None:
    """Answer until the input ends."""
    wanted = json.loads(argument)
    try:
        with gpu.open_nvml() as nvml:
            _answer({"at": time.monotonic(), "ready": True})
            others = Others(wanted)
            while sys.stdin.buffer.readline():
                _answer({"at": time.monotonic(), **_read(nvml, wanted, others)})
    except NvmlUnavailable as error:
        _answer({"at": time.monotonic(), "error": error.message})
        while sys.stdin.buffer.readline():
            _answer({"at": time.monotonic(), "error": error.message})


def _answer(what: Mapping[str, Any]) -> None:
    with suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), orjson.dumps(what) + b"\n")


class Others:
    """Knows how many processes on each card are not the run's. They are looked at twice a second at most: each costs
    a look into /proc."""

    def __init__(self, wanted: Mapping[str, Any], now: Callable[[], float] = time.monotonic) -> None:
        self._wanted, self._now = wanted, now
        self._looked: float | None = None
        self._counts: dict[int | str | None, int | None] = {}

    def are_due(self) -> bool:
        return self._looked is None or self._now() - self._looked >= OTHERS_SECONDS

    def samples(self, readings: Sequence[GpuReading], fresh: bool) -> list[GpuSample]:
        """Give `readings` with the counts; `fresh`: their processes were asked for."""
        if fresh:
            self._looked = self._now()
            self._counts = {one.uuid or one.index: foreign(one, self._wanted) for one in readings}
        return [GpuSample.of(one, self._counts.get(one.uuid or one.index)) for one in readings]


def _read(nvml: gpu.Nvml, wanted: Mapping[str, Any], others: Others) -> dict[str, Any]:
    fresh = others.are_due()
    try:
        readings = nvml.read(wanted.get("uuids"), processes=fresh, limits=False)
    except NvmlUnavailable as error:
        return {"error": error.message}
    return {"gpus": [one.as_json() for one in others.samples(readings, fresh)]}


def foreign(reading: GpuReading, wanted: Mapping[str, Any]) -> int | None:
    """Count the processes on a card that are not the run's. None: neither the driver nor /proc can tell."""
    if reading.processes is None or not (wanted.get("container") or wanted.get("pid")):
        return None
    verdicts = [_is_ours(process, wanted) for process in reading.processes]
    return None if None in verdicts else verdicts.count(False)


def _is_ours(process: GpuProcess, wanted: Mapping[str, Any]) -> bool | None:
    if container.cgroup_text(process.pid) is None or not container.pids_are_the_hosts():
        return None
    if wanted.get("container"):
        return bool(process.container_id == wanted["container"])
    try:
        return wanted["pid"] in (process.pid, *(parent.pid for parent in psutil.Process(process.pid).parents()))
    except psutil.Error:
        return None


if __name__ == "__main__":
    main(sys.argv[1])
