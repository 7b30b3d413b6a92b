"""The runs and comparisons that a command names: found, with their figures, closed where nobody watches them."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from ngcdl import console, settings
from ngcdl.errors import NgcdlError
from ngcdl.folder import EVENTS, has_checkpoint, lines
from ngcdl.nodesamples import samples
from ngcdl.reconcile import reconcile
from ngcdl.record import Run
from ngcdl.store import Store

if TYPE_CHECKING:
    from ngcdl.comparisons import Kept

SILENT_SECONDS = 300.0  # a compilation, or an evaluation, takes minutes
SILENT_STEPS = 20  # of what was between the last two that were told


def shelf() -> Store:
    return Store(settings.load().runs)


def loaded(store: Store, name: str) -> Run:
    """Give the run that `name` means. Raises NoSuchRun or RecordBroken."""
    return with_figures(store, reconcile(store, store.load(store.find(name))))


def with_figures(store: Store, run: Run) -> Run:
    """A record that the trainer wrote by itself, and a run that still runs, have their figures in their files."""
    if run.summary.steps is not None or run.summary.samples is not None:
        return run
    from ngcdl.report.filled import filled

    folder = store.folder(run.id)
    return filled(run, list(lines(folder / EVENTS)), samples(folder))


def silence(store: Store, run: Run, clock: Callable[[], float] = time.time) -> float | None:
    """Give for how many seconds a training that runs has told nothing, where that is long for it.

    None also where nobody can tell: what waits in a cluster's queue has a reason, and a pod's events come last."""
    if run.status != "running" or run.reason or run.engine == "kubernetes":
        return None
    path = store.folder(run.id) / EVENTS
    try:
        seconds = clock() - path.stat().st_mtime
    except OSError:
        return None
    if seconds <= SILENT_SECONDS:
        return None
    from ngcdl.report.lines import number

    steps = (number(event.get("t")) for event in lines(path) if event.get("event") == "step")
    last = deque((t for t in steps if t is not None), maxlen=2)
    return seconds if seconds > SILENT_STEPS * (last[-1] - last[0] if last else 0.0) else None


def in_words(silent_seconds: float) -> str:
    """Say a `silence`: no step for 12 min."""
    minutes = silent_seconds / 60
    return f"no step for {minutes:.0f} min" if minutes < 120 else f"no step for {minutes / 60:.0f} h"


def say_silence(run: Run, silent_seconds: float) -> None:
    """Tell of a training that stands still, or is in a long evaluation or compilation, how to find out which."""
    look = f"look with: ngcdl gpu or ngcdl logs {run.id}, end it with: ngcdl stop {run.id}"
    console.say(f"{run.id}: {in_words(silent_seconds)}; {look}")


def say_how_to_go_on(store: Store, run: Run) -> None:
    """Tell the next command after an unfinished training that has a checkpoint."""
    if run.status in ("finished", "running") or not has_checkpoint(store.folder(run.id)):
        return
    if run.is_open:  # its engine may come back, and its container have gone on
        console.say(f"what became of it is not known yet: ngcdl show {run.id}")
    else:
        console.say(f"a checkpoint was saved; go on from it with: ngcdl run ... --resume {run.id}")


def comparison(store: Store, name: str) -> Kept:
    """Give the comparison that `name` means. Raises NoSuchComparison or RecordBroken."""
    from ngcdl import comparisons

    kept = comparisons.load(name, store)
    close(store, (trial.run for trial in kept.trials))
    return kept


def close(store: Store, ids: Iterable[str]) -> None:
    """Find out what became of these runs. Of a broken record, or one that is gone, others tell."""
    with asking() as away:
        for run_id in ids:
            with contextlib.suppress(NgcdlError):
                reconcile(store, store.load(run_id), away)


@contextlib.contextmanager
def asking() -> Iterator[dict[str, NgcdlError]]:
    """Give what `reconcile` is to remember of engines that do not answer, and say of each that it did not."""
    away: dict[str, NgcdlError] = {}
    yield away
    for error in away.values():
        console.say(f"{error.message} What became of the runs there is not known yet.")
