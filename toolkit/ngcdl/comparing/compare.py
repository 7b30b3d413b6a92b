"""A comparison, the same training or command with one thing varied: prepares its arms, and compares its runs' records.

All runs use one preparation; each is an ordinary recorded run (rounds.py). A comparison is stored as the ids of its
runs (comparisons.py).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from ngcdl import choice
from ngcdl.errors import (
    ON_CPU_ALONE,
    GpuError,
    ImagesRefused,
    ImageUnfit,
    NgcdlError,
    NoGpu,
    NothingToCompare,
    TooFewToCompare,
)
from ngcdl.folder import EVENTS, lines
from ngcdl.frozen import dataclass
from ngcdl.planning.asked import Asked
from ngcdl.pulling.fetch import FINAL
from ngcdl.record import Run
from ngcdl.report.compared.comparison import Arm, Comparison, comparison
from ngcdl.report.compared.unlike import MeasuredRun
from ngcdl.running import gpu_claims, prepare
from ngcdl.running.context import Context
from ngcdl.running.owner import has_runner
from ngcdl.running.prepare import Judged, Settled
from ngcdl.spec import GpuRequest, ImageRef
from ngcdl.storing.comparisons import StoredComparison
from ngcdl.storing.store import Store

if TYPE_CHECKING:
    from ngcdl.dataset import Dataset


@dataclass(frozen=True)
class Variant:
    """One arm as requested. `device`: what its runs must compute on to count, None for any."""

    name: str
    asked: Asked
    device: str | None = None


_OF_AN_IMAGE = (ImageUnfit, *FINAL)

# -- before ---------------------------------------------------------------------------------------------------------


Prepared: TypeAlias = tuple[list[tuple[Variant, Settled]], tuple[str, ...]]


@contextlib.contextmanager
def settled(variants: Sequence[Variant], context: Context) -> Iterator[Prepared]:
    """Prepare all arms as `settle` does. While the block lasts, no other ngcdl takes the free cards that were chosen:
    it records who holds them."""
    prepared = settle(variants, context)

    def choose_again() -> Prepared:
        fetched = [replace(one, asked=prepare.fetched(one.asked)) for one in variants]
        return settle(fetched, context, prepared[0][0][1].data)

    cards = {uuid for _, one in prepared[0] for uuid in prepare.taken_free(one)}
    with gpu_claims.still_free(cards, context.store, context.show.say, prepared, choose_again) as found:
        yield found


def settle(variants: Sequence[Variant], context: Context, data: Dataset | None = None) -> Prepared:
    """Prepare all arms; return those ready, and remarks on what can't be measured here.

    Raise NgcdlError, in which case nothing is recorded. The engine, the cards and the data are chosen once, for the arm
    with the most cards; if several have as many, for the last one. Of CPU and GPU, that is the arm that may be
    impossible here. Then a training's GPU arm is left out, with a remark; for a command, or if cards were asked for by
    --gpus, GpuError is raised. All images are judged before anything is fetched, and ImagesRefused names all that can't
    be run. `data` is the data set that an earlier call found.
    """
    context.store.ensure_writable()
    first, arms, remarks = _judged(variants, context)
    ready, common = list[tuple[Variant, Settled]](), None
    for variant, one in arms:
        settled = common if common and one is first else prepare.provided(one, context, data)
        common, data = settled if one is first else common, settled.data
        picked = choice.without_gpu_warnings(settled.picked, variant.asked.device)
        settled = replace(settled, asked=variant.asked, picked=picked)
        if doubt := prepare.doubt(settled, context.store):
            context.show.say(f"WARNING: {variant.name}: {doubt}")
        ready.append((variant, settled))
    return ready, remarks


def _judged(
    variants: Sequence[Variant], context: Context
) -> tuple[Judged, list[tuple[Variant, Judged]], tuple[str, ...]]:
    """Choose and judge for all arms. Return what was chosen first, the arms that are possible here, and remarks on the
    others. Raise as `settle` does."""
    hardest = max(reversed(variants), key=lambda variant: variant.asked.gpus.count or 0)
    # The GPU arm may find no GPU, which would end an ordinary run with --device gpu.
    asked = replace(hardest.asked, device=None) if hardest.device == "gpu" else hardest.asked
    first, refused = None, dict[ImageRef | None, NgcdlError]()
    try:
        first = prepare.judged(asked, context)
    except NoGpu as error:
        raise _lacking(variants, hardest, error.found) from error
    except _OF_AN_IMAGE as error:
        refused[asked.image] = error
    arms, remarks = [], []
    for variant in variants:
        if variant.asked.image in refused:
            continue
        if first and variant.device == "gpu" and first.picked.gpus.kind == "none":
            remarks.append(f"the GPU can't be measured here: {first.picked.way.why}")
            continue
        try:
            arms.append((variant, _judged_after(variant, first, context)))
        except _OF_AN_IMAGE as error:
            refused[variant.asked.image] = error
        except NgcdlError:  # what else is wrong may not be so with other images
            if not refused:
                raise
    if refused:
        has_others = len({variant.asked.image for variant in variants}) > 1
        raise ImagesRefused([*refused.values()]) if has_others else refused[asked.image]
    assert first
    if not arms and hardest.asked.gpus.demanded:
        raise _lacking(variants, hardest, first.picked.way.why)
    if not arms:
        raise NoGpu("gpu", first.picked.way.why, option="--device", command="compare")
    return first, arms, tuple(remarks)


def _judged_after(variant: Variant, first: Judged | None, context: Context) -> Judged:
    """Return what is chosen for an arm: what was chosen `first`, if all that decides it is alike."""
    asked = variant.asked
    if not first:  # its image can't be run: this one is only judged, too
        return prepare.judged(asked, context)
    if (asked.image, asked.gpus, asked.placement) == (first.asked.image, first.asked.gpus, first.asked.placement):
        return first
    if asked.image == first.asked.image:  # a name without a tag could mean another release for fewer cards
        asked = replace(asked, image=first.picked.image)
    if asked.gpus == first.asked.gpus and first.picked.uuids:
        asked = replace(asked, gpus=GpuRequest("devices", devices=first.picked.uuids))  # the same cards for all
    return prepare.judged(asked, context, after=(variant.name, first.picked))


def _lacking(variants: Sequence[Variant], hardest: Variant, found: str) -> GpuError:
    """Return the error for a comparison whose cards are missing, by what was typed. `found`: what there is instead."""
    asked = hardest.asked
    if asked.own and hardest.device == "gpu" and asked.gpus.kind == "all":  # "all" was not typed
        return NothingToCompare(found)
    is_of_devices = {variant.device for variant in variants} == {"cpu", "gpu"}
    if len({variant.asked.gpus for variant in variants}) > 1 and (asked.workload or not is_of_devices):
        training = asked.workload.name if asked.workload else None
        return TooFewToCompare(training, [one.name for one in variants], asked.gpus.count or 1, found)
    instead = None
    if is_of_devices:  # without a card nothing is left to compare
        instead = "Leave it out, and the CPU alone is measured." if asked.workload else ON_CPU_ALONE
    return NoGpu(str(asked.gpus), found, command="compare", instead=instead)


# -- afterwards -----------------------------------------------------------------------------------------------------


def compared(kept: StoredComparison, store: Store) -> Comparison:
    """Compare the records of a comparison's runs. A missing or broken record leaves a gap and a remark."""
    measured: dict[tuple[str, int], MeasuredRun] = {}
    remarks = list(kept.remarks)
    for trial in kept.trials:
        try:
            run = store.load(trial.run)
        except NgcdlError as error:
            remarks.append(f"{trial.arm}, round {trial.round}: {error.message}")
            continue
        measured[trial.arm, trial.round] = MeasuredRun.of(run, lines(store.folder(run.id) / EVENTS))
    remarks += _unfinished(store, kept, [one.run for one in measured.values()])
    rounds = range(1, max((trial.round for trial in kept.trials), default=0) + 1)
    arms = [Arm(name, tuple(measured.get((name, n)) for n in rounds), device) for name, device in kept.arms]
    return comparison(arms, kept.vary, remarks, kept.scaling)


def _unfinished(store: Store, kept: StoredComparison, runs: Sequence[Run]) -> Iterator[str]:
    """Yield a remark on the runs that have not ended, or were never started, if the comparison is not closed."""
    planned, going = kept.repeat * len(kept.arms), sum(run.status == "running" for run in runs)
    if kept.finished is None and (going or has_runner(store, kept)):
        yield f"it is still running: {len(kept.trials) - going} of {planned} runs have ended"
    elif kept.finished is None and len(kept.trials) < planned:
        yield f"it did not finish: {len(kept.trials)} of {planned} runs were started"
