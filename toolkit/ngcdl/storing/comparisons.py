"""Stored comparisons: save, find, load. A comparison is stored as the ids of its runs, in a file beside their folders.

$XDG_STATE_HOME/ngcdl/comparisons/<id>.json     written whole after each change, FORMAT 1
    format, id, vary, repeat, started, finished (null: nobody saw it finish), remarks [],
    arms [{name, device}], trials [{arm, round, run}] in chronological order,
    scaling (strong | weak, if nodes or GPUs are varied; null or missing otherwise),
    owner {pid, ticks, boot, namespace} (the process that runs it, as in run.json; null once that has left it),
    gpus [uuid] (the cards that it holds while its owner lives); both are missing in files of older ngcdl
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ngcdl import waiting
from ngcdl.errors import NoSuchComparison, RecordBroken, StateNotWritable
from ngcdl.folder import content
from ngcdl.frozen import dataclass
from ngcdl.record import Owner
from ngcdl.record.shape import make
from ngcdl.storing import marks
from ngcdl.storing.store import Store, age, called, fitting, make_private, named, write_whole

FORMAT = 1
FOLDER = "comparisons"
KIND = "compare"  # the word in a comparison's id where a run's id has the training
STOPPED = "it was stopped: not all of its runs were finished"
LOCK_SECONDS = 30.0
# What `from_json`, and the reading of its JSON, raise if a file is not a comparison.
BROKEN = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError)
MOST_RUNS = 100_000  # of one comparison: a file from another machine must not exhaust the memory of this one


@dataclass(frozen=True)
class Trial:
    arm: str
    round: int
    run: str


@dataclass(frozen=True)
class StoredComparison:
    id: str
    vary: str
    repeat: int
    arms: tuple[tuple[str, str | None], ...]
    started: float
    finished: float | None = None
    remarks: tuple[str, ...] = ()
    trials: tuple[Trial, ...] = ()
    scaling: str | None = None
    owner: Owner | None = None
    gpus: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        arms = [{"name": name, "device": device} for name, device in self.arms]
        return {"format": FORMAT, **asdict(self), "arms": arms}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> StoredComparison:
        """Read `data`. Raise one of BROKEN if it is not a comparison."""
        if data["format"] > FORMAT:
            raise ValueError(f"it has format {data['format']}, this ngcdl reads up to {FORMAT}: update ngcdl")
        made = cls(
            id=str(data["id"]),
            vary=str(data["vary"]),
            repeat=int(data["repeat"]),
            arms=tuple((str(arm["name"]), arm["device"]) for arm in data["arms"]),
            started=float(data["started"]),
            finished=data["finished"],
            remarks=tuple(str(remark) for remark in data["remarks"]),
            trials=tuple(Trial(str(one["arm"]), int(one["round"]), str(one["run"])) for one in data["trials"]),
            scaling=data.get("scaling"),
            owner=make(Owner, data["owner"]) if data.get("owner") else None,
            gpus=tuple(str(uuid) for uuid in data.get("gpus") or ()),
        )
        if not 1 <= made.repeat * max(len(made.arms), 1) <= MOST_RUNS:
            raise ValueError(f"it has no rounds, or more than {MOST_RUNS:,} runs")
        if not all(1 <= trial.round <= made.repeat for trial in made.trials):
            raise ValueError("a run of it is in a round that it does not have")
        return made


def new_id(name: str | None, store: Store) -> str:
    """Return an id with `name`, what --name was, in it."""
    return store.new_id(_word(name) if name else KIND)


def _word(name: str) -> str:
    return f"{KIND}-{name}"


def _folder(store: Store) -> Path:
    return store.root.with_name(FOLDER)


def path(comparison_id: str, store: Store) -> Path:
    return _folder(store) / f"{comparison_id}.json"


def has(comparison_id: str, store: Store) -> bool:
    return path(comparison_id, store).exists()


def save(kept: StoredComparison, store: Store) -> None:
    """Save `kept`. Raise StateNotWritable."""
    folder = _made(store)
    write_whole(path(kept.id, store), json.dumps(kept.as_json(), indent=1, allow_nan=False) + "\n")
    if kept.owner:
        marks.put(folder, kept.id)
    else:
        marks.drop(folder, kept.id)


def _made(store: Store) -> Path:
    """Return the folder of the comparisons, created if it is missing. Raise StateNotWritable."""
    folder = _folder(store)
    with StateNotWritable.at(folder):
        make_private(folder)
    return folder


def alone(store: Store) -> AbstractContextManager[None]:
    """Hold the lock on all comparisons for a block that loads, changes and saves one.

    The block is entered without the lock if the file system has none, or if another ngcdl holds it for LOCK_SECONDS.
    Raise StateNotWritable."""
    lock = _made(store) / ".lock"
    return waiting.if_possible(lambda: waiting.locked_within(lock, LOCK_SECONDS))


def stop(kept: StoredComparison, store: Store) -> StoredComparison:
    """Close a comparison, so that the ngcdl that runs it starts no more runs. Return it with all the runs it started.

    Raise StateNotWritable, NoSuchComparison or RecordBroken."""
    with alone(store):
        now = load(kept.id, store)
        if now.finished is None:
            now = replace(now, finished=time.time(), remarks=(*now.remarks, STOPPED))
            save(now, store)
    return now


def leave(kept: StoredComparison, store: Store) -> None:
    """Note that the process that runs a comparison does so no longer. Raise StateNotWritable, NoSuchComparison or
    RecordBroken."""
    with alone(store):
        save(replace(load(kept.id, store), owner=None), store)  # what `stop` has changed meanwhile stays


def remove(kept: StoredComparison, store: Store) -> None:
    """Remove a comparison; its runs stay. Raise StateNotWritable."""
    file = path(kept.id, store)
    with StateNotWritable.at(file):
        file.unlink(missing_ok=True)
    marks.drop(file.parent, kept.id)


def is_named(name: str, store: Store) -> bool:
    """Return whether `name` is a comparison's id, a part of one, or its --name, rather than a run's. The runs are
    looked up, too: the id of a run of an image such as compare-x also has the word."""
    known = ids(store)
    is_word = any(called(one) == _word(name) for one in known)
    is_part = not name.startswith("last") and named(name, known) is not None
    if not (is_word or is_part or KIND in name):
        return False
    runs = store.ids()
    return not any(called(one) == name for one in runs) and (is_word or not fitting(name, runs))


def find(name: str, store: Store) -> str:
    """Return the id that `name` means, as store.named reads it; `name` alone is what --name was. Raise
    NoSuchComparison."""
    known = ids(store)
    newest = known[::-1]
    found = next((one for one in newest if called(one) == _word(name)), None) or named(name, newest)
    if found is None:
        raise NoSuchComparison(name, _folder(store), known)
    return found


def ids(store: Store) -> list[str]:
    """Return the ids of all comparisons, the oldest first. Raise StateNotWritable."""
    with StateNotWritable.at(_folder(store)), contextlib.suppress(FileNotFoundError):
        files = [file for file in _folder(store).iterdir() if file.suffix == ".json" and file.name[0] != "."]
        return sorted((file.stem for file in files), key=age)
    return []


def stored(store: Store) -> Iterator[StoredComparison]:
    """Yield all comparisons that can be read, the oldest first."""
    for one in ids(store):
        with contextlib.suppress(RecordBroken):
            yield _read(path(one, store))


def owned(store: Store) -> Iterator[StoredComparison]:
    """Yield the comparisons whose file names an owner, the oldest first; a broken one is left out. Only their files are
    read, however many comparisons there are. Raise StateNotWritable."""
    for name in sorted(marks.names(_folder(store)), key=age):
        with contextlib.suppress(RecordBroken):
            yield _read(path(name, store))


def runs_left(kept: StoredComparison, store: Store) -> list[str]:
    """Return the ids of a comparison's runs that still exist."""
    return [trial.run for trial in kept.trials if store.has(trial.run)]


def load(name: str, store: Store) -> StoredComparison:
    """Load the comparison that `name` means. Raise NoSuchComparison or RecordBroken."""
    return _read(path(find(name, store), store))


def _read(file: Path) -> StoredComparison:
    try:
        return StoredComparison.from_json(json.loads(content(file)))
    except (OSError, *BROKEN) as error:
        raise RecordBroken(file, str(error)) from error
