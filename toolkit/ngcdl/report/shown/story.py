"""All that a report draws of a run: its curves, and the few texts beside them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from itertools import product
from string import ascii_uppercase

from ngcdl.frozen import dataclass
from ngcdl.record import Run
from ngcdl.report.measured.lines import Line
from ngcdl.report.shown.curves import Curve

# Of the runs of a report: A, B, ..., Z, AA, AB, ..., ZZ.
LETTERS = (*ascii_uppercase, *map("".join, product(ascii_uppercase, repeat=2)))
_CARD = ("gpu_percent", "memory_used_bytes", "watts", "sm_mhz")


@dataclass
class Training:
    """What the trainer reported. `start` is the last start event. `rates` are over seconds since the run's start; on a
    cluster since the run's first report, as a run starts when it is submitted, and may wait for hours."""

    rates: Curve = field(default_factory=Curve)
    losses: Curve = field(default_factory=Curve)  # over steps
    epoch_losses: Curve = field(default_factory=Curve)  # over steps: means of whole epochs, while it learned
    accuracies: Curve = field(default_factory=Curve)  # over steps, 0..1, on held-out images
    training_accuracies: Curve = field(default_factory=Curve)
    start: Mapping[str, object] = field(default_factory=dict)
    stages: Mapping[str, object] = field(default_factory=dict)  # speeds of the pipeline's stages
    raced: list[Line] = field(default_factory=list)  # the events of trainings from scratch (raced.py)
    error: str | None = None  # the kind of the error that ended it, after its last start
    begun: list[int] = field(default_factory=list)  # how many rates each attempt's start event follows
    spans: list[tuple[float, float]] = field(default_factory=list)  # when each attempt logged steps, s as in rates


@dataclass
class Throttled:
    """Periods in which a card held its clocks down, in s as in Training, and the reasons it gave."""

    spans: list[tuple[float, float]] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)


@dataclass
class CardCurves:
    """`place` names the card as --gpus does (naming.place); None: unknown."""

    name: str | None
    place: str | None
    curves: dict[str, Curve] = field(default_factory=lambda: {one: Curve() for one in _CARD})
    throttled: Throttled = field(default_factory=Throttled)


@dataclass
class SampledCurves:
    """What was sampled. `cores` has the mean of each logical processor during training, 0..100."""

    host: Curve = field(default_factory=Curve)
    least: Curve = field(default_factory=Curve)  # the least busy core, and the busiest
    most: Curve = field(default_factory=Curve)
    cards: dict[str, CardCurves] = field(default_factory=dict)
    cores: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Story:
    """A run with everything to draw. `letter` names the run among others: A, B, ... `arm` is its arm in a comparison.
    The runs of an arm share one `colour`; None: each run has a colour of its own."""

    run: Run
    training: Training
    measured: SampledCurves
    letter: str = "A"
    arm: str | None = None
    colour: int | None = None

    @property
    def is_training(self) -> bool:
        """Whether the run is a bundled training, or a command that reported a start event as trainers do."""
        return bool(self.training.start or self.run.workload)
