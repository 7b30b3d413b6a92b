"""The runs and comparisons that a command names: found, with their figures, closed where nobody watches them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ngcdl import console, settings
from ngcdl.errors import NgcdlError
from ngcdl.reconcile import reconcile
from ngcdl.record import Run
from ngcdl.store import EVENTS, Store, lines, samples

if TYPE_CHECKING:
    from ngcdl.compare import Kept


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


def comparison(store: Store, name: str) -> Kept:
    """Give the comparison that `name` means. Raises NoSuchComparison or RecordBroken."""
    from ngcdl import compare

    kept = compare.load(name, store)
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
