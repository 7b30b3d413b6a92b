"""The same training with one thing varied: its arms prepared, its runs kept, and compared by their records.

All runs begin from one preparation; each is an ordinary recorded run (rounds.py). What is kept of a comparison is the
ids of its runs (comparisons.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from ngcdl import choice, meanwhile, prepare
from ngcdl.asked import Asked
from ngcdl.asked import Show as Preparing
from ngcdl.comparisons import Kept
from ngcdl.errors import NgcdlError, NoGpu
from ngcdl.folder import EVENTS, lines
from ngcdl.prepare import Settled
from ngcdl.record import Run
from ngcdl.report.comparison import Arm, Comparison, comparison
from ngcdl.report.unlike import Measured
from ngcdl.settings import Settings
from ngcdl.spec import GpuRequest
from ngcdl.store import Store


class Show(Preparing, meanwhile.Show, Protocol):
    """Where a preparation and a run tell what they do."""


@dataclass(frozen=True)
class Variant:
    """One arm as it is asked for. `device`: what its runs must compute on to count, None where any will do."""

    name: str
    asked: Asked
    device: str | None = None


# -- before ---------------------------------------------------------------------------------------------------------


def settle(
    variants: Sequence[Variant], settings: Settings, shelf: Store, show: Show
) -> tuple[list[tuple[Variant, Settled]], tuple[str, ...]]:
    """Prepare all arms, and say what can't be measured here. Raises NgcdlError; then nothing was recorded.

    The engine, the cards and the data are chosen once, for the arm with the most cards, else the last one: of CPU and
    GPU that is the one that may not be possible. Where it isn't, it is left out with its reason.
    """
    hardest = max(reversed(variants), key=lambda variant: variant.asked.gpus.count or 0)
    # A GPU arm alone may find no GPU, which ends a run.
    asked = replace(hardest.asked, device=None) if hardest.device == "gpu" else hardest.asked
    first = prepare.settle(asked, settings, shelf, show)
    ready, remarks = [], []
    for variant in variants:
        if variant.device == "gpu" and first.picked.gpus.kind == "none":
            remarks.append(f"the GPU can't be measured here: {first.picked.way.why}")
            continue
        settled = _settled(variant, first, settings, shelf, show)
        if doubt := prepare.doubt(settled, shelf):
            show.say(f"WARNING: {variant.name}: {doubt}")
        ready.append((variant, settled))
    if not ready and hardest.asked.gpus.demanded:
        raise NoGpu(str(hardest.asked.gpus), first.picked.way.why)
    if not ready:
        raise NoGpu("gpu", first.picked.way.why, option="--device")
    return ready, tuple(remarks)


def _settled(variant: Variant, first: Settled, settings: Settings, shelf: Store, show: Show) -> Settled:
    asked = variant.asked
    if (asked.image, asked.gpus, asked.placement) == (first.asked.image, first.asked.gpus, first.asked.placement):
        return replace(first, asked=asked, picked=choice.heard(first.picked, asked.device))
    if asked.gpus == first.asked.gpus and first.picked.uuids:
        asked = replace(asked, gpus=GpuRequest("devices", devices=first.picked.uuids))  # the same cards for all
    return replace(prepare.settle(asked, settings, shelf, show, first.data), asked=asked)


# -- afterwards -----------------------------------------------------------------------------------------------------


def compared(kept: Kept, shelf: Store) -> Comparison:
    """Compare what the records of its runs say. A record that is gone or broken leaves a gap, and is said."""
    measured: dict[tuple[str, int], Measured] = {}
    remarks = list(kept.remarks)
    for trial in kept.trials:
        try:
            run = shelf.load(trial.run)
        except NgcdlError as error:
            remarks.append(f"{trial.arm}, round {trial.round}: {error.message}")
            continue
        measured[trial.arm, trial.round] = Measured.of(run, lines(shelf.folder(run.id) / EVENTS))
    remarks += _unfinished(kept, [one.run for one in measured.values()])
    rounds = range(1, max((trial.round for trial in kept.trials), default=0) + 1)
    arms = [Arm(name, tuple(measured.get((name, n)) for n in rounds), device) for name, device in kept.arms]
    return comparison(arms, kept.vary, remarks, kept.scaling)


def _unfinished(kept: Kept, runs: Sequence[Run]) -> Iterator[str]:
    """Say what is still to come, or never came, of a comparison that nobody saw reach its end."""
    planned, going = kept.repeat * len(kept.arms), sum(run.status == "running" for run in runs)
    if kept.finished is None and going:
        yield f"it goes on: {len(kept.trials) - going} of {planned} runs have ended"
    elif kept.finished is None and len(kept.trials) < planned:
        yield f"it did not reach its end: {len(kept.trials)} of {planned} runs were begun"
