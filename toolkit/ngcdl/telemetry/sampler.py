"""Measures during a run, and writes a line of samples.jsonl (format: sample.py) at each tick.

Ticks do not drift; if ticks are missed, the gap of the next line counts them. No failure here stops the run: a reading
that fails is a gap with its reason, and a file that can't be written is a problem that ends the sampling. Each tick
reads the GPUs' use and power; everything else is read in full samples, not more than twice a second.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import orjson

from ngcdl.frozen import dataclass
from ngcdl.spec import MISSED, RUN_UNREAD, samples_to_full
from ngcdl.telemetry import host
from ngcdl.telemetry.kernelfile import KernelFile
from ngcdl.telemetry.usage import Meter, Usage

T = TypeVar("T")

_JOIN_SECONDS = 1.2


class Gap(Exception):
    """No reading is available now; the text says why."""


class GpuSource(Protocol):
    """Reads a run's cards, each as in a line's "gpus"; read() raises Gap. `is_brief`: only their use and power."""

    def read(self, is_brief: bool = False) -> list[dict[str, Any]]: ...


class Clock(Protocol):
    def time(self) -> float: ...
    def monotonic(self) -> float: ...
    def wait(self, event: threading.Event, seconds: float) -> bool: ...


class SystemClock:
    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for `event` for at most `seconds`, and return whether it was set."""
        return event.wait(seconds)


@dataclass(frozen=True)
class Sources:
    """What a sample is read from. None: the run has nothing of that kind, which is not a gap."""

    host_cpu: Callable[[], host.Cpu] | None = None
    host_memory_bytes: Callable[[], int | None] | None = None
    usage: Meter | None = None
    gpus: GpuSource | None = None


def sources(usage: Meter | None = None, gpus: GpuSource | None = None) -> Sources:
    """Return what is read for a run: this host, the run's container or process tree, its GPUs."""
    meminfo = KernelFile(host.MEMORY)
    return Sources(host.CpuMeter().read, lambda: host.memory_used_bytes(meminfo.read()), usage, gpus)


class Sampler:
    """Writes samples from start() to stop(), or within `with`."""

    def __init__(
        self,
        path: Path,
        sources: Sources,
        interval_seconds: float = 1.0,
        clock: Clock | None = None,
        started: float | None = None,  # by that clock's monotonic()
    ) -> None:
        self._sources = sources
        self._interval = interval_seconds
        self._whole_ticks, self._whole_in = samples_to_full(interval_seconds), 0
        self._is_first = True
        self._clock = clock or SystemClock()
        self._lines = _Lines(path)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._started = self._clock.monotonic() if started is None else started
        self._stuck: tuple[str, ...] = ()
        self._due, self._skipped = self._started, 0

    @property
    def problems(self) -> tuple[str, ...]:
        """What went wrong with the sampling itself, for the run's notes."""
        return self._lines.problems + self._stuck

    def start(self) -> None:
        """Start sampling; harmless twice."""
        if self._thread is None:
            self._thread = threading.Thread(target=self.run, name="ngcdl-sampler", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """End within 2 s; harmless twice."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)
            if self._thread.is_alive() and not self._stuck:
                self._stuck = ("a reading of the host did not return; the sampler was left behind",)

    def __enter__(self) -> Sampler:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def run(self) -> None:
        """Take samples until stop(), or until they can't be written. start() calls it in its thread."""
        with self._lines:
            self._due = self._clock.monotonic()
            while not self._stop.is_set() and self._lines.are_open:
                values, gaps = self._begun()
                self._finish(values, gaps, self._gpus(values, gaps))
                if self._clock.wait(self._stop, self._next()):
                    break

    def _next(self) -> float:
        """Schedule the next tick, skipping missed ones, and return the seconds until it is due."""
        now, self._due, self._skipped = self._clock.monotonic(), self._due + self._interval, 0
        self._skip(now)
        return max(0.0, self._due - now)

    def _skip(self, now: float) -> None:
        late = max(0, int((now - self._due) / self._interval))
        self._skipped += late
        self._due += late * self._interval

    def _begun(self) -> tuple[dict[str, Any], list[str]]:
        """Begin a sample: read all that is due except the GPUs. Return the values, and the gaps so far."""
        monotonic = self._clock.monotonic()
        self._skip(monotonic)  # otherwise a tick that woke late would be followed by another at once
        gaps = [f"{self._skipped} {MISSED}"] if self._skipped else []
        now, seconds = self._clock.time(), monotonic - self._started
        values = {"t": round(now, 3), "seconds": round(seconds, 3)}
        self._whole_in -= 1 + self._skipped
        if self._whole_in <= 0:
            self._whole_in = self._whole_ticks
            values |= self._machine(gaps)
        return values, gaps

    def _machine(self, gaps: list[str]) -> dict[str, Any]:
        usage = _piece(gaps, "run", self._sources.usage.read if self._sources.usage else None)
        if usage == Usage():
            gaps.append(RUN_UNREAD)
        usage = usage or Usage()
        cpu = _piece(gaps, "host CPU", self._sources.host_cpu) or host.Cpu()
        if self._is_first:  # the meters were made milliseconds ago, too little time for a rate
            cpu, usage = replace(cpu, percent=None, percents=None), replace(usage, cpu_percent=None)
            self._is_first = False
        return {
            "host_cpu_percent": cpu.percent,
            "cpu_percents": cpu.percents,
            "threads_running": cpu.threads_running,
            "host_memory_bytes": _piece(gaps, "host memory", self._sources.host_memory_bytes),
            "container_cpu_percent": usage.cpu_percent,
            "memory_bytes": usage.memory_bytes,
            "memory_limit_bytes": usage.memory_limit_bytes,
            "memory_pressure_percent": usage.memory_pressure_percent,
            "memory_oom_kills": usage.memory_oom_kills,
        }

    def _gpus(self, values: dict[str, Any], gaps: list[str]) -> list[dict[str, Any]]:
        read, is_brief = self._sources.gpus.read if self._sources.gpus else None, "host_cpu_percent" not in values
        gpus = _piece(gaps, "GPUs", partial(read, is_brief) if read else None) or []
        for card in gpus:
            if card["error"]:
                gaps.append(f"GPU {card['index'] if card['uuid'] is None else card['uuid']}: {card['error']}")
        return gpus

    def _finish(self, values: dict[str, Any], gaps: list[str], gpus: list[dict[str, Any]]) -> None:
        values["gpus"], values["gap"] = gpus, "; ".join(gaps) or None
        self._lines.write(orjson.dumps(values, option=orjson.OPT_APPEND_NEWLINE))


def _piece(gaps: list[str], name: str, read: Callable[[], T] | None) -> T | None:
    """Read one thing. Any failure is a gap: no failed measurement may end the run that it measures."""
    if read is None:
        return None
    try:
        return read()
    except Gap as gap:
        gaps.append(f"{name}: {gap}")
    except Exception as error:
        gaps.append(f"{name}: {type(error).__name__}: {error}")
    return None


class _Lines:
    """A file of lines, each written whole in one write; after the first failure nothing more is written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: int | None = None
        self.problems: tuple[str, ...] = ()
        self.written = 0

    @property
    def are_open(self) -> bool:
        return self._file is not None

    def __enter__(self) -> _Lines:
        try:
            # The run can write to its folder: a link there could lead out of it, and a pipe would block.
            how = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            self._file = os.open(self._path, how, 0o666)
            size = os.fstat(self._file).st_size
            if size and os.pread(self._file, 1, size - 1) != b"\n":  # a crash cut its last line
                os.write(self._file, b"\n")
        except OSError as error:
            self._give_up(error.strerror)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def write(self, line: bytes) -> None:
        if self._file is None:
            return
        try:
            if (count := os.write(self._file, line)) < len(line):
                os.ftruncate(self._file, os.fstat(self._file).st_size - count)
                self._give_up(f"only {count} of {len(line)} bytes could be written")
            else:
                self.written += 1
        except OSError as error:
            self._give_up(error.strerror)

    def _give_up(self, why: str | None) -> None:
        self.problems = (f"{self._path}: {why}; no samples are written from here on ({self.written} were)",)
        self.__exit__()
