"""What the rules look at that say what held a training back: the run, and what follows at once from its figures."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from ngcdl.record import Finding, GpuSummary, Run, Summary
from ngcdl.report.lines import Line, last_start, number, numbers

# A desktop on the same card uses as much.
IDLE_PERCENT = 5.0
# NVML counts as busy any time in which some kernel ran, however small; the rest is waiting between two steps.
COMPUTE_BOUND_PERCENT = 90.0
FULL_CPU_PERCENT = 90.0
# Cores that others kept busy, of all: a quarter is more than a desktop and its browser.
OTHERS_SHARE = 0.25


@dataclass(frozen=True)
class Case:
    """What the rules look at."""

    run: Run
    summary: Summary
    events: tuple[Line, ...]

    @cached_property
    def start(self) -> Line:
        return last_start(self.events)

    @cached_property
    def on_cpu(self) -> bool:
        """Was it to compute on the CPU, by what was asked or for want of a card? (A card that it did not use: no.)"""
        return self.run.workload.get("device") == "cpu" or (not self.summary.gpus and self.run.device != "gpu")

    @cached_property
    def card(self) -> GpuSummary | None:
        """The busiest of its cards; None where it has none, does not compute there, or their use is unknown."""
        known = [gpu for gpu in self.summary.gpus if gpu.gpu_percent_mean is not None]
        return None if self.on_cpu or not known else max(known, key=lambda gpu: gpu.gpu_percent_mean or 0.0)

    @property
    def busy(self) -> float | None:
        """How busy that card was, 0..100, if the framework used it."""
        return self.card.gpu_percent_mean if self.card and self.run.device != "cpu" else None

    def waits(self, percent: float) -> bool:
        """Was the card less busy than that, and did it compute there? An idle card that nobody vouches for did not."""
        busy = self.busy
        return busy is not None and busy < percent and (busy >= IDLE_PERCENT or self.run.device == "gpu")

    @cached_property
    def waits_for_the_cpu(self) -> bool:
        """Is it the CPU that it can wait for? Not where a card sets the pace."""
        return self.busy is None or self.busy < COMPUTE_BOUND_PERCENT

    @cached_property
    def others_cores(self) -> float | None:
        """How many cores something else kept busy on a CPU that was full; None: it was not, or that is unknown."""
        own, all_busy = self.summary.container_cpu_percent_mean, self.summary.cores_busy
        if own is None or all_busy is None or (self.summary.cpu_percent_mean or 0.0) < FULL_CPU_PERCENT:
            return None
        return all_busy - own / 100

    @cached_property
    def is_crowded(self) -> bool:
        """Did others keep so many of the cores busy that the CPU was theirs rather than the run's?"""
        cores, others = self.run.machine.cores, self.others_cores
        return bool(cores) and others is not None and others >= OTHERS_SHARE * (cores or 0) and self.waits_for_the_cpu

    @cached_property
    def waited_share(self) -> float | None:
        """Of the steps' time, in how much the training waited for its batches, 0..1. None of somebody's own command."""
        told = [(number(step.get("input_seconds_per_batch")), number(step.get("seconds_per_batch")))
                for step in self.events if step.get("event") == "step"]  # fmt: skip
        known = [(waited, whole) for waited, whole in told if waited is not None and whole is not None]
        whole = sum(one for _, one in known)
        return sum(one for one, _ in known) / whole if whole > 0 else None

    def told(self, name: str) -> object:
        """Give what the trainer says in its last start, or what was asked for; None of somebody's own command."""
        return self.start.get(name, self.run.workload.get(name))

    def asked(self, name: str) -> float | None:
        """Give a number that the trainer says in its last start, or that was asked for."""
        told = numbers((event for event in self.events if event.get("event") == "start"), name)
        return told[-1] if told else next(iter(numbers([self.run.workload], name)), None)


def finding(rule: str, text: str, advice: str | None, **figures: float | None) -> Finding:
    return Finding(rule, text, {name: value for name, value in figures.items() if value is not None}, advice)
