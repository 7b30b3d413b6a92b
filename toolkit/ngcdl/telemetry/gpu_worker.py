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
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

import psutil

from ngcdl.errors import NvmlUnavailable
from ngcdl.telemetry import container, gpu
from ngcdl.telemetry.card import GpuProcess, GpuReading
from ngcdl.telemetry.sample import GpuSample


def main(argument: str) -> None:
    """Answer until the input ends."""
    wanted = json.loads(argument)
    try:
        with gpu.open_nvml() as nvml:
            _answer({"at": time.monotonic(), "ready": True})
            while sys.stdin.buffer.readline():
                _answer({"at": time.monotonic(), **_read(nvml, wanted)})
    except NvmlUnavailable as error:
        _answer({"at": time.monotonic(), "error": error.message})
        while sys.stdin.buffer.readline():
            _answer({"at": time.monotonic(), "error": error.message})


def _answer(what: Mapping[str, Any]) -> None:
    line = json.dumps(what) + "\n"
    with suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), line.encode())


def _read(nvml: gpu.Nvml, wanted: Mapping[str, Any]) -> dict[str, Any]:
    try:
        readings = nvml.read(wanted.get("uuids"), processes=True)
    except NvmlUnavailable as error:
        return {"error": error.message}
    return {"gpus": [asdict(GpuSample.of(one, foreign(one, wanted))) for one in readings]}


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
