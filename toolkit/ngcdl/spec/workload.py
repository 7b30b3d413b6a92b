"""A bundled training as it is asked for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """A bundled training. `steps` is the number to reach, `batch` examples a step, `data` auto, synthetic or a folder.

    `device` is auto, gpu or cpu: what the framework must compute on, whatever cards it is shown. `resume` is the id of
    the run whose last checkpoint it goes on from. `threads` processor threads compute, None: as many as there are.
    """

    name: str
    steps: int = 1000
    batch: int = 128
    seed: int = 0
    data: str = "auto"
    device: str = "auto"
    evaluate: bool = True
    resume: str | None = None
    threads: int | None = None
