"""The runs that a command names: found, closed where nobody watches them any more, with their figures."""

from __future__ import annotations

from ngcdl import settings
from ngcdl.reconcile import reconcile
from ngcdl.record import Run
from ngcdl.store import EVENTS, SAMPLES, Store, lines


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
    return filled(run, list(lines(folder / EVENTS)), lines(folder / SAMPLES))
