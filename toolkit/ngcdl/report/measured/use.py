"""Whether the runs of a command used their GPUs, by NVML's readings. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from ngcdl.figures import number
from ngcdl.frozen import dataclass
from ngcdl.record import Run
from ngcdl.report.measured.case import COMMAND_SAMPLES, COMMAND_SECONDS, IDLE_PERCENT, can_judge
from ngcdl.report.measured.lines import known_values


@dataclass(frozen=True)
class Use:
    """How many of the `cards` did something (`used`); `percent`, 0..100, is the utilization of the busiest card. Both
    are medians over the runs. None is unknown, for the reason `why`."""

    cards: int | None = None
    used: int | None = None
    percent: float | None = None
    why: str | None = None

    def __str__(self) -> str:
        """The GPU is used (87 % busy), 1 of 8 GPUs is used (at most 96 % busy), ..."""
        if self.why:
            return f"Whether the GPU is used is not known ({self.why})"
        busy = f"{number(self.percent, 0)} % busy"
        if self.cards == 1:
            return f"The GPU is {'' if self.used else 'hardly '}used ({busy})"
        if not self.used:
            return f"None of the {self.cards} GPUs is used much (at most {busy})"
        return f"{self.used} of {self.cards} GPUs {'is' if self.used == 1 else 'are'} used (at most {busy})"


def use(runs: Sequence[Run]) -> Use:
    """Combine the readings of an arm's runs: those of each run over its steps, or over the whole run if it reported
    none."""
    cards = [[0.0 if gpu.is_used is False else gpu.gpu_percent_mean for gpu in run.summary.gpus] for run in runs]
    if not all(cards) or not cards:
        return Use(why="it was not measured")
    if why := next(filter(None, map(_lacking, runs)), None):
        return Use(why=why)
    if not all(None not in one for one in cards):
        return Use(why="the driver gives no figure")
    percents = [known_values(one) for one in cards]
    used = median(sum(percent >= IDLE_PERCENT for percent in one) for one in percents)
    return Use(max(map(len, cards)), int(used), median(map(max, percents)))


def _lacking(run: Run) -> str | None:
    """Say why the run's readings don't show how busy its cards were; None if they do."""
    if (run.summary.training_samples or 0) < COMMAND_SAMPLES:
        return "too few samples"
    if run.summary.steps is not None or can_judge(run):
        return None
    return "the run was too short" if (run.seconds or 0) < COMMAND_SECONDS else "it was not measured throughout"
