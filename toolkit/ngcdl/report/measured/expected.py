"""How long a comparison will probably take on this machine, from its operations and earlier trainings here. Pure.

Present it as an estimate: a network unlike those that trained here may take several times as long.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from statistics import median

from ngcdl.frozen import dataclass
from ngcdl.record import Run

# If nothing has trained here yet: a few desktop cores, and a small card. Recalled, not measured.
ASSUMED_FLOPS: Mapping[str, float] = {"cpu": 100e9, "gpu": 2e12}
# A run's time besides its steps if no run is known: container, framework, network, data. And the least assumed for a
# workload that never ran here: importing TensorFlow 2.21 and building a network took 5 to 9 s on two cores.
ASSUMED_SECONDS, LEAST_SECONDS = 15.0, 9.0


@dataclass(frozen=True)
class Pace:
    """Operations per second by workload and device, and by device alone; a run's seconds besides its steps by
    workload, and for an unknown one."""

    of_workload: Mapping[tuple[str, str], float] = field(default_factory=dict)
    of_device: Mapping[str, float] = field(default_factory=dict)
    beside_of: Mapping[str, float] = field(default_factory=dict)
    beside: float = ASSUMED_SECONDS

    @property
    def is_measured(self) -> bool:
        """Whether anything has trained here; else all of it is assumed."""
        return bool(self.of_device)

    def start(self, workload: str) -> float:
        return self.beside_of.get(workload, self.beside)

    def flops(self, workload: str, device: str) -> float:
        known = self.of_workload.get((workload, device)) or self.of_device.get(device)
        return known or ASSUMED_FLOPS.get(device, ASSUMED_FLOPS["cpu"])


@dataclass(frozen=True)
class Work:
    """One comparison: each of `arms` has the device it computes on and the operations of one of its runs."""

    workload: str
    arms: Sequence[tuple[str, float]]
    rounds: int


def pace(runs: Iterable[Run], flops_per_example: Mapping[str, float]) -> Pace:
    """Derive this machine's speed from its finished runs."""
    found: dict[tuple[str, str], list[float]] = {}
    beside: dict[str, list[float]] = {}
    for run in runs:
        name, figures = run.workload.get("name"), run.summary
        rate, each = figures.examples_per_second, figures.seconds_per_batch
        if run.status != "finished" or name not in flops_per_example or not (run.device and rate):
            continue
        if run.kind.is_cluster:
            continue  # a cluster computes on other machines, and waiting in its queue is not start-up
        found.setdefault((str(name), run.device), []).append(rate * flops_per_example[str(name)])
        is_whole = not run.workload.get("resume")  # else its steps include those of the run before
        if is_whole and run.seconds is not None and figures.steps and each:
            beside.setdefault(str(name), []).append(max(run.seconds - figures.steps * each, 0.0))
    of_workload = {key: median(values) for key, values in found.items()}
    devices = {device for _, device in of_workload}
    of_device = {one: median([value for (_, there), value in of_workload.items() if there == one]) for one in devices}
    beside_of = {name: median(values) for name, values in beside.items()}
    other = max(median(beside_of.values()), LEAST_SECONDS) if beside_of else ASSUMED_SECONDS
    return Pace(of_workload, of_device, beside_of, other)


def seconds(work: Work, at: Pace) -> float:
    """Estimate how long all rounds of `work` take."""
    return work.rounds * sum(
        at.start(work.workload) + flops / at.flops(work.workload, device) for device, flops in work.arms
    )
