"""One line of samples.jsonl: what a run and its machine used at one moment.

    {"t": s since the epoch, "seconds": since the sampler started (monotonic), "host_cpu_percent": 0..100,
     "host_memory_bytes", "container_cpu_percent": 100 = one core, "memory_bytes": of the container or process tree,
     "gpus": [{"index", "uuid", "name", "gpu_percent", "memory_percent", "memory_used_bytes", "memory_total_bytes",
               "watts", "celsius", "sm_mhz", "foreign_processes", "error"}],
     "gap": null or why something is missing here, or before}

null is unknown, never 0. Unknown fields are ignored, missing ones are null, so that old and new files load.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Self

from ngcdl.telemetry.card import GpuReading


@dataclass(frozen=True)
class GpuSample:
    """`foreign_processes`: how many processes compute on this card that are not the run's; None: can't be told."""

    index: int | None = None
    uuid: str | None = None
    name: str | None = None
    gpu_percent: float | None = None
    memory_percent: float | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    watts: float | None = None
    celsius: float | None = None
    sm_mhz: int | None = None
    foreign_processes: int | None = None
    error: str | None = None

    @classmethod
    def of(cls, reading: GpuReading, foreign_processes: int | None = None) -> Self:
        taken = {one.name: getattr(reading, one.name) for one in fields(cls) if one.name != "foreign_processes"}
        return cls(**taken, foreign_processes=foreign_processes)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(**{one.name: data.get(one.name) for one in fields(cls)})


@dataclass(frozen=True)
class Sample:
    t: float
    seconds: float
    host_cpu_percent: float | None = None
    host_memory_bytes: int | None = None
    container_cpu_percent: float | None = None
    memory_bytes: int | None = None
    gpus: tuple[GpuSample, ...] = ()
    gap: str | None = None

    def as_json(self) -> str:
        """Give the line, without its end."""
        return json.dumps(asdict(self), separators=(",", ":"), allow_nan=False)

    @classmethod
    def from_json(cls, line: str | bytes) -> Self:
        """Read a line. Raises ValueError where it is none, as the last one of a file that was cut."""
        data = json.loads(line)
        if not isinstance(data, dict) or not isinstance(data.get("t"), int | float):
            raise ValueError("this is not a sample")
        known = {one.name: data[one.name] for one in fields(cls) if data.get(one.name) is not None}
        gpus = tuple(GpuSample.from_json(gpu) for gpu in known.get("gpus", ()) if isinstance(gpu, dict))
        return cls(**({"seconds": 0.0} | known | {"gpus": gpus}))
