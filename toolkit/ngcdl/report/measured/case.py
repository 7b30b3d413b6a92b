"""The facts that the bottleneck rules examine: the run, and what follows directly from its figures."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from ngcdl.catalog.chips import ON_ARM_CHIPS
from ngcdl.frozen import dataclass
from ngcdl.record import Finding, GpuSummary, Run, Summary
from ngcdl.report.measured.lines import Line, number
from ngcdl.spec import samples_to_full

if TYPE_CHECKING:
    from ngcdl.report.measured.told import Told

# A desktop on the same card uses up to this much.
IDLE_PERCENT = 5.0
# NVML counts any time in which some kernel ran, however small, as busy; the rest is waiting between steps.
COMPUTE_BOUND_PERCENT = 90.0
FULL_CPU_PERCENT = 90.0
# A training that waited for its batches for this share of the time explains a waiting card.
WAITED_SHARE = 0.3
# The share of all cores that others kept busy: a quarter is more than a desktop and its browser use.
OTHERS_SHARE = 0.25
# If a command reports no steps, all its samples count, with those of its start-up, which may be most of a shorter run.
COMMAND_SAMPLES, COMMAND_SECONDS = 20, 30.0
# This share of the full samples must be there and complete, because the others may be the ones that matter. There are
# none after a full disk, a killed ngcdl or detaching, and while ngcdl is suspended.
COMMAND_SHARE = 0.9
# At a terminal these wait for somebody to type, unless they are given a file or a module. A name may end in a version.
_SHELLS = frozenset({"bash", "dash", "fish", "ipython", "python", "sh", "tmux", "zsh"})
# These always wait for somebody.
_SERVERS = frozenset({"jupyter", "jupyter-lab", "jupyter-notebook"})


def is_command(run: Run) -> bool:
    """Return whether the run was a user's own command; False for a record that does not say what was asked for."""
    return bool(run.spec) and not run.workload


def can_judge(run: Run) -> bool:
    """Return whether the samples of the whole run say something about a command that reported no steps, and did not
    wait for somebody to type. If the command still runs, the samples so far are judged."""
    taken, due = run.summary.training_samples or 0, float(run.summary.samples or 0)
    if run.status != "running":
        if run.seconds is None or run.seconds < COMMAND_SECONDS:
            return False
        due = max(due, run.seconds / run.sample_seconds)
    due /= samples_to_full(run.sample_seconds)
    is_whole = taken >= COMMAND_SAMPLES and taken >= COMMAND_SHARE * due
    return is_command(run) and run.summary.steps is None and is_whole and not is_interactive(run)


def is_interactive(run: Run) -> bool:
    """Return whether the run waits for somebody to type, as a shell or a notebook does."""
    spec = run.spec or {}
    words = spec.get("command")
    words = [str(word) for word in words] if isinstance(words, list) else []
    program = PurePosixPath(words[0]).name.rstrip("0123456789.") if words else "sh"
    asks = program in _SHELLS and (all(word.startswith("-") for word in words[1:]) or "-i" in words)
    return program in _SERVERS or (bool(spec.get("tty")) and asks)


def shares_memory(run: Run) -> bool:
    """Return whether a GPU of the run's machine uses the machine's memory and has none of its own."""
    return any(gpu.compute_capability in ON_ARM_CHIPS for gpu in run.machine.gpus or ())


def is_idle(gpu: GpuSummary) -> bool:
    """Return whether a card is known to have done nothing."""
    return gpu.gpu_percent_mean is not None and gpu.gpu_percent_mean < IDLE_PERCENT


def computing(gpus: Sequence[GpuSummary], start: Line) -> tuple[GpuSummary, ...]:
    """Return the cards that computed and whose utilization is known, the busiest first: at most one for each replica,
    by the trainer's start event."""
    known = [gpu for gpu in gpus if (gpu.gpu_percent_mean or 0.0) >= IDLE_PERCENT and gpu.is_used is not False]
    replicas = number(start.get("replicas"))
    busiest = sorted(known, key=lambda gpu: -(gpu.gpu_percent_mean or 0.0))
    return tuple(busiest if replicas is None else busiest[: max(int(replicas), 1)])


def computed_on(gpus: Sequence[GpuSummary], start: Line) -> tuple[GpuSummary, ...]:
    """Return the cards that a training computed on; () if it is not known which those are, or if there are none."""
    is_known = bool(start) and start.get("device") != "cpu" and all(gpu.gpu_percent_mean is not None for gpu in gpus)
    return computing(gpus, start) if is_known else ()


@dataclass(frozen=True)
class Case:
    """One run as the rules see it."""

    run: Run
    told: Told

    @property
    def summary(self) -> Summary:
        return self.run.summary

    @property
    def start(self) -> Line:
        return self.told.start

    @property
    def is_command(self) -> bool:
        """Whether this is a user's own command, which does not have the options of the bundled trainings, such as
        --batch."""
        return is_command(self.run)

    @property
    def what(self) -> str:
        return "run" if self.is_command else "training"

    @cached_property
    def on_cpu(self) -> bool:
        """Whether the run was meant to compute on the CPU, by request or for lack of a card; False if it ignored its
        card."""
        if self.is_command and self.run.gpus != ():
            return False  # a card that was not read may compute all the same
        return self.run.workload.get("device") == "cpu" or (not self.summary.gpus and self.run.device != "gpu")

    @cached_property
    def card(self) -> GpuSummary | None:
        """The busiest of the run's cards; None if it has none, computes on the CPU, or their utilization is unknown."""
        known = [gpu for gpu in self.summary.used_gpus if gpu.gpu_percent_mean is not None]
        return None if self.on_cpu or not known else max(known, key=lambda gpu: gpu.gpu_percent_mean or 0.0)

    @cached_property
    def computing(self) -> tuple[GpuSummary, ...]:
        return computing(self.summary.gpus, self.start)

    @cached_property
    def sets_the_pace(self) -> bool:
        """Whether the cards set the pace: each card that computed is busy. A card that waits for another one in NCCL
        counts as busy, so several cards do not set the pace if the training waited for its batches."""
        if self.busy is None or any((gpu.gpu_percent_mean or 0.0) < COMPUTE_BOUND_PERCENT for gpu in self.computing):
            return False
        is_known = not self.is_command or self.waited_share is not None
        return self.busy >= COMPUTE_BOUND_PERCENT and (len(self.computing) < 2 or (is_known and not self.waited))

    @cached_property
    def active_share(self) -> float | None:
        """The share (0..1) of their busy time in which the SMs of the cards that computed were active, on average over
        a card's SMs: that of the card with most. None if it is unknown of one of them."""
        known = [(gpu.sm_active_percent_mean, gpu.gpu_percent_mean or 0.0) for gpu in self.computing]
        shares = [active / busy for active, busy in known if active is not None]
        return max(shares) if shares and len(shares) == len(known) else None

    @property
    def waited(self) -> bool:
        """Whether the run is known to have waited for its batches for a good part of the time."""
        return (self.waited_share or 0.0) >= WAITED_SHARE

    @property
    def busy(self) -> float | None:
        """The utilization of `card`, 0..100; None if the framework did not use it."""
        return self.card.gpu_percent_mean if self.card and self.run.device != "cpu" else None

    def waits(self, percent: float) -> bool:
        """Return whether `card` was less than `percent` busy, and computed at all.

        An idle card counts as computing only if the framework reported that it did."""
        busy = self.busy
        return busy is not None and busy < percent and (busy >= IDLE_PERCENT or self.run.device == "gpu")

    @cached_property
    def others_cores(self) -> float | None:
        """The number of cores that others kept busy on a full CPU. None if the CPU was not full, if that is unknown, or
        if others may have cores of their own, because the run was not allowed to use all cores."""
        own, all_busy = self.summary.container_cpu_percent_mean, self.summary.cores_busy
        if own is None or all_busy is None or (self.summary.cpu_percent_mean or 0.0) < FULL_CPU_PERCENT:
            return None
        if self.run.allowed_cores is not None:
            return None
        return all_busy - own / 100

    @cached_property
    def is_crowded(self) -> bool:
        """Whether others kept enough cores busy to slow down a run whose pace its cards do not set."""
        cores, others = self.run.machine.cores, self.others_cores
        return bool(cores) and others is not None and others >= OTHERS_SHARE * (cores or 0) and not self.sets_the_pace

    @property
    def waited_share(self) -> float | None:
        """The share (0..1) of the steps' time spent waiting for batches. None for the user's own command."""
        return self.told.waited_share

    @property
    def feed(self) -> object:
        """What the trainer's last start event says, or what was requested; None for the user's own command."""
        return self.start.get("feed", self.run.workload.get("feed"))

    def asked(self, name: str) -> float | None:
        """Return a number from the trainer's last start event, or as requested."""
        return self.told.asked.get(name, number(self.run.workload.get(name)))


def finding(rule: str, text: str, advice: str | None, **figures: float | None) -> Finding:
    return Finding(rule, text, {name: value for name, value in figures.items() if value is not None}, advice)
