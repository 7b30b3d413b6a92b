"""Finds the runs and comparisons that a command names, with their figures, and closes those that nobody watches."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ngcdl import console, settings
from ngcdl.cli import resumed
from ngcdl.errors import NgcdlError, NoSuchComparison, NoSuchRun, at_once
from ngcdl.folder import EVENTS, has_checkpoint, lines, size
from ngcdl.record import Run
from ngcdl.running.reconcile import Obstacles, reconcile
from ngcdl.storing.nodesamples import sample_files, samples
from ngcdl.storing.store import Store

if TYPE_CHECKING:
    from ngcdl.storing.comparisons import StoredComparison

T = TypeVar("T")

RECENT_BYTES = 8 << 20  # hours of samples of one card
RECENT = (
    "it is still running: its figures are those of its first steps and of the last 8 MiB of events.jsonl and "
    "samples.jsonl; its record will have those of the whole run"
)
_FIRST_BYTES = 65_536
_NO_STEP = re.compile(rb'"event": ?"(?!step")')


def open_store() -> Store:
    return Store(settings.load().runs)


def loaded(store: Store, name: str) -> Run:
    """Return the run that `name` means. Raise NoSuchRun or RecordBroken."""
    return with_figures(store, reconcile(store, store.load(id_of(name, store))))


def id_of(name: str, store: Store) -> str:
    """Return the id of the run that `name` means. Raise NoSuchRun, also if it means a comparison."""
    from ngcdl.storing import comparisons

    if comparisons.is_named(name, store):
        with contextlib.suppress(NoSuchComparison):
            raise NoSuchRun(name, store.root, comparison=comparisons.find(name, store))
    return store.find(name)


def each(names: Iterable[str], find: Callable[[str], T]) -> list[T]:
    """Return what `find` returns for each name. Raise an error about all for which it raises that there is no such run,
    or comparison."""
    found, missing = list[T](), list[NgcdlError]()
    for name in names:
        try:
            found.append(find(name))
        except (NoSuchRun, NoSuchComparison) as error:
            missing.append(error)
    if missing:
        raise at_once(missing)
    return found


def runs_and_comparisons(names: Iterable[str], store: Store) -> tuple[list[str], list[StoredComparison]]:
    """Return the ids of the runs that `names` mean, and the comparisons among them, with whose runs: those that still
    exist. Each is there once. Raise as `each`, or RecordBroken."""
    from ngcdl.storing import comparisons

    compared: dict[str, StoredComparison] = {}

    def find(name: str) -> list[str]:
        if not comparisons.is_named(name, store):
            return [id_of(name, store)]
        kept = comparisons.load(name, store)
        compared[kept.id] = kept
        return comparisons.runs_left(kept, store)

    runs = chain.from_iterable(each(names, find))
    return list(dict.fromkeys(runs)), list(compared.values())


def with_figures(store: Store, run: Run) -> Run:
    """Return `run` with its figures. If the record has none, because the run is still running or only the trainer
    recorded it, they are computed from the run's files. Of a run that is still running and has long files, only the
    first steps and the last RECENT_BYTES are read, and a note says so: reading the files of a week takes 10 s."""
    if run.summary.steps is not None or run.summary.samples is not None:
        return run
    from ngcdl.report.measured.filled import filled
    from ngcdl.report.measured.told import Told

    folder = store.folder(run.id)
    if run.status != "running":
        return filled(run, Told(lines(folder / EVENTS)), samples(folder))
    if size(folder / EVENTS) > RECENT_BYTES or any(size(file) > RECENT_BYTES for file in sample_files(folder)):
        run = replace(run, notes=(*run.notes, RECENT))
    return filled(run, Told(_recent(folder / EVENTS)), samples(folder, RECENT_BYTES))


def _recent(events: Path) -> Iterator[dict[str, Any]]:
    """Yield all events; but of a long run's steps only the first, which show how the run began, and those in the last
    RECENT_BYTES."""
    end = size(events)
    recent = max(end - RECENT_BYTES, 0)
    first = min(_FIRST_BYTES, recent)
    yield from lines(events, (0, first))
    yield from lines(events, (first, recent), _NO_STEP)
    yield from lines(events, (recent, end))


def say_how_to_go_on(store: Store, run: Run) -> None:
    """Say the next command after an unfinished training that has a checkpoint."""
    if run.status in ("finished", "running") or not _can_go_on(store.folder(run.id), run):
        return
    if run.is_open:  # its engine may come back, and its container may have gone on
        console.say(f"what became of it is not known yet: ngcdl show {run.id}")
    elif line := resumed.line(store.folder(run.id), run):
        console.say(f"a checkpoint was saved; continue from it with:\n    {line}")


def _can_go_on(folder: Path, run: Run) -> bool:
    """Return whether `run` saved a checkpoint that another run can read."""
    if run.kind.shares_files:
        return has_checkpoint(folder)
    return bool(resumed.words_for_claim(run)) and resumed.reports_checkpoint(folder)


def comparison(store: Store, name: str) -> StoredComparison:
    """Return the comparison that `name` means. Raise NoSuchComparison or RecordBroken."""
    from ngcdl.storing import comparisons

    kept = comparisons.load(name, store)
    close(store, (trial.run for trial in kept.trials))
    return kept


def close(store: Store, ids: Iterable[str]) -> None:
    """Find out what became of these runs. Broken and missing records are skipped: other commands report them."""
    with asking() as obstacles:
        for run_id in ids:
            with contextlib.suppress(NgcdlError):
                reconcile(store, store.load(run_id), obstacles)


@contextlib.contextmanager
def asking() -> Iterator[Obstacles]:
    """Yield what `reconcile` is to remember obstacles in, and report each of them at the end."""
    obstacles = Obstacles()
    yield obstacles
    for error in obstacles.engines.values():
        console.say(f"{error.message} What became of the runs there is not known yet.")
    if obstacles.records:
        console.say(f"{obstacles.records.message} How runs ended is not recorded yet.")


def unheard(error: NgcdlError) -> str:
    """Say that `error` keeps ngcdl from knowing how a run goes on."""
    return f"{error.message} What became of the run is not known yet."


def running(store: Store, ids: Iterable[str]) -> list[Run]:
    """Return which of these runs have not ended, as far as that is known. Broken records are reported."""
    found = []
    with asking() as obstacles:
        for run_id in ids:
            try:
                if not store.is_ended(run_id):
                    found.append(reconcile(store, store.load(run_id), obstacles))
            except NgcdlError as error:
                console.show_error(error)
    return [run for run in found if run.status == "running"]
