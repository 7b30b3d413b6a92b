"""One line of samples.jsonl: what a run and its machine used at one moment.

    {"t": s since the epoch, "seconds": since the sampler started (monotonic), "host_cpu_percent": 0..100,
     "cpu_percents": [0..100 of each logical processor of the host, in its order, at most 512],
     "threads_running": threads on the host, without the sampler's, that run or wait for a processor at this moment,
     "host_memory_bytes", "container_cpu_percent": 100 = one core, "memory_bytes": of the container or process tree,
     "memory_limit_bytes": the most it can get, "memory_pressure_percent": 0..100, the share of the last 10 s in which
     at least one of its threads waited for memory, "memory_oom_kills": how many of its processes the kernel has killed,
     "gpus": [{"index", "uuid", "name", "gpu_percent", "memory_percent", "watts", "memory_used_bytes",
               "memory_total_bytes", "energy_joules": a counter since the driver was loaded, "celsius", "sm_mhz",
               "memory_mhz", "throttle_reasons": [why its clocks are limited now, in NVIDIA's terms: card.REASONS],
               "foreign_processes", "error"}],
     "gap": null, or why something is missing in this sample or before it}

null means unknown, never 0. Unknown fields are ignored and missing ones read as null, so that old and new files load.
If the interval is shorter than 0.5 s, full samples are 0.5 s apart, and those in between have only the GPUs'
utilization and power: the fields from host_cpu_percent to memory_oom_kills, and a GPU's from memory_used_bytes to
foreign_processes, are omitted because they were not read.
History: cpu_percents, threads_running, memory_limit_bytes, memory_pressure_percent, memory_oom_kills and the GPUs'
energy_joules, memory_mhz and throttle_reasons were added later in format 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Self, TypeVar

import orjson

T = TypeVar("T", "GpuSample", "Sample")


@dataclass(frozen=True)
class GpuSample:
    """`foreign_processes`: the number of processes, other than the run's, that compute on this card; None: unknown."""

    index: int | None = None
    uuid: str | None = None
    name: str | None = None
    gpu_percent: float | None = None
    memory_percent: float | None = None
    watts: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    energy_joules: float | None = None
    celsius: float | None = None
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    throttle_reasons: tuple[str, ...] | None = None
    foreign_processes: int | None = None
    error: str | None = None

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{name: _tupled(data.get(name)) for name in _OF_A_GPU})


# Computed once, because they are used for every line of a long run.
_OF_A_GPU = tuple(one.name for one in fields(GpuSample))
# What the driver reports about a GPU; the other two come from the sampler.
MEASURED = tuple(name for name in _OF_A_GPU if name not in ("foreign_processes", "error"))


@dataclass(frozen=True)
class Sample:
    t: float
    seconds: float
    host_cpu_percent: float | None = None
    cpu_percents: tuple[float, ...] | None = None
    threads_running: int | None = None
    host_memory_bytes: int | None = None
    container_cpu_percent: float | None = None
    memory_bytes: int | None = None
    memory_limit_bytes: int | None = None
    memory_pressure_percent: float | None = None
    memory_oom_kills: int | None = None
    gpus: tuple[GpuSample, ...] = ()
    gap: str | None = None

    def as_json(self) -> str:
        """Return the line, without the newline."""
        return orjson.dumps(self).decode()

    @classmethod
    def from_json(cls, line: str | bytes) -> Self:
        """Parse a line. Raise ValueError if it is not a sample, such as the last line of a truncated file."""
        data = orjson.loads(line)
        if not isinstance(data, dict) or not isinstance(data.get("t"), int | float):
            raise ValueError("this is not a sample")
        known = {one.name: _tupled(data[one.name]) for one in fields(cls) if data.get(one.name) is not None}
        gpus = tuple(GpuSample.from_json(gpu) for gpu in known.get("gpus", ()) if isinstance(gpu, dict))
        return cls(**({"seconds": 0.0} | known | {"gpus": gpus}))


def whole(kind: type[T], values: dict[str, Any]) -> T:
    """Return a Sample or GpuSample with `values` (every field, in order), which it takes over. Each tick makes nine,
    and the constructor of a frozen dataclass is slow, as it sets each field separately."""
    made = kind.__new__(kind)
    object.__setattr__(made, "__dict__", values)
    return made


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
