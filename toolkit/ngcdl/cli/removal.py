"""`ngcdl runs rm`: removes runs that have ended, or all but their records, and says how much that frees."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ngcdl import console, figures
from ngcdl.cli import lookup, terminal
from ngcdl.errors import BadOption, NgcdlError, NotRemoved, RecordBroken, StateNotWritable
from ngcdl.folder import FILES, IMPORTED
from ngcdl.frozen import dataclass
from ngcdl.record import Run
from ngcdl.running.owner import has_runner
from ngcdl.running.reconcile import Obstacles, ended, reconcile, still_runs
from ngcdl.storing import comparisons
from ngcdl.storing.comparisons import StoredComparison
from ngcdl.storing.store import Store, delete
from ngcdl.terminal_text import table

NOTE = "{}its home and what its command wrote were removed (ngcdl runs rm --keep-record)"
_HOURS = {"h": 1, "d": 24, "w": 168}
_OLD_LOCK = ".reconcile.lock"  # an older ngcdl closed the record under this lock
_OF_A_RECORD = re.compile(
    rf"{'|'.join(map(re.escape, (*FILES, IMPORTED, _OLD_LOCK)))}|samples-.+\.jsonl|report(-of-\d+)?\.html"
)


@dataclass(frozen=True)
class Asked:
    """What was typed: names, or how long ago the runs ended."""

    names: tuple[str, ...]
    older_than: str | None
    keep_record: bool
    dry_run: bool
    yes: bool

    def again(self, option: str) -> str:
        """Return the same command with `option`."""
        which = ["--older-than", self.older_than] if self.older_than else self.names
        return "    " + shlex.join(["ngcdl", "runs", "rm", *which, *["--keep-record"] * self.keep_record, option])

    def before(self) -> float | None:
        """Return the time (s since the epoch) before which the runs must have ended; None if runs are named. Raise
        BadOption."""
        age = re.fullmatch(r"(\d{1,6})([hdw])", self.older_than or "")
        if bool(self.names) == bool(self.older_than) or (self.older_than and not age):
            told = f"--older-than {self.older_than}: not a number of hours, days or weeks."
            other = "Name runs, or say --older-than, and only one of the two."
            raise BadOption(told if not self.names and self.older_than else other, "    ngcdl runs rm --older-than 30d")
        return time.time() - int(age[1]) * _HOURS[age[2]] * 3600 if age else None


@dataclass(frozen=True)
class _Going:
    """What may be deleted of a run: its folder, or everything in the folder that is not part of the record."""

    run: Run
    paths: tuple[Path, ...]
    bytes: int


def remove(asked: Asked) -> int:
    """Remove runs and say what that freed; of a comparison that is named, all of its runs. A comparison goes with the
    last of its runs. Return 125 if anything that was to be removed is left, else 0.

    Raise BadOption, NoSuchRun or RecordBroken before anything is removed."""
    before = asked.before()
    store = lookup.open_store()
    named, compared = lookup.runs_and_comparisons(asked.names, store)
    ids = named if asked.names else store.ids()
    if not (asked.dry_run or asked.yes or terminal.is_here()):
        hint = f"What it would remove:\n{asked.again('--dry-run')}\nWithout a question:\n{asked.again('--yes')}"
        raise BadOption("Nothing was removed: there is no terminal to ask on.", hint)
    going, failed = _chosen(store, ids, asked, before)
    bare, more = _without_runs(store, compared, asked)
    failed += more
    for line in _listed(store, going, asked):
        console.result(line)
    for one in bare:
        console.result(f"the comparison {one.id}, of which no run is left" + ": nothing was removed" * asked.dry_run)
    if (going or bare) and not (asked.dry_run or asked.yes):
        what = _total(going) if going else "it" if len(bare) == 1 else "them"
        if not terminal.agreed(f"Remove {'all but the records of ' * asked.keep_record}{what}?"):
            console.say("nothing was removed")
            return 0
        # One of them may have been resumed meanwhile.
        going, more = _chosen(store, [one.run.id for one in going], asked, before)
        failed += more
    if not (going or failed or bare):
        console.say("there is nothing to remove")
    if not asked.dry_run:
        losing = [*bare, *(one for one, _ in _losing(store, going, asked))]
        failed += _carry_out(store, going, asked.keep_record)
        for one in {one.id: one for one in losing}.values():
            if not (comparisons.runs_left(one, store) or has_runner(store, one)):
                comparisons.remove(one, store)
                console.result(f"removed the comparison {one.id}")
    return NgcdlError.exit_code if failed else 0


def _without_runs(
    store: Store, compared: Iterable[StoredComparison], asked: Asked
) -> tuple[list[StoredComparison], int]:
    """Return which of these comparisons have no run and may go, and how many may not; report each of them."""
    bare = [one for one in compared if not (asked.keep_record or comparisons.runs_left(one, store))]
    going_on = [one for one in bare if has_runner(store, one)]
    for one in going_on:
        console.show_error(NotRemoved(one.id, "it has not ended", f"    ngcdl stop {one.id}"))
    return [one for one in bare if one not in going_on], len(going_on)


def _losing(store: Store, going: Sequence[_Going], asked: Asked) -> Iterator[tuple[StoredComparison, int]]:
    """Yield the comparisons that lose runs, each with how many."""
    ids = {one.run.id for one in going if not asked.keep_record}
    for comparison in comparisons.stored(store) if ids else ():
        if lost := len(ids.intersection(comparisons.runs_left(comparison, store))):
            yield comparison, lost


# -- what may go ----------------------------------------------------------------------------------------------------


def _chosen(store: Store, ids: Sequence[str], asked: Asked, before: float | None) -> tuple[list[_Going], int]:
    """Return what may be deleted of these runs, and how many runs may not be deleted; report each of them."""
    going: list[_Going] = []
    refused = 0
    with lookup.asking() as obstacles:
        unended = _unended(store, obstacles)
        compared = {} if asked.keep_record else _still_compared(store, unended)
        for run_id in ids:
            try:
                run = unended.get(run_id) or store.load(run_id)
                if before is None or (run.status != "running" and ended(store, run) < before):
                    _check(store, run, obstacles, unended)
                    if run_id in compared:
                        why = f"the comparison {compared[run_id]} has not ended"
                        raise NotRemoved(run_id, why, f"    ngcdl stop {compared[run_id]}")
                    going += _going(store, run, asked.keep_record)
            except RecordBroken as error:  # when it ended is unknown: --older-than does not select it
                refused += before is None
                console.show_error(NotRemoved(run_id, error.message, _by_hand(store.folder(run_id))))
            except NgcdlError as error:
                refused += 1
                console.show_error(error)
    return going, refused


def _unended(store: Store, obstacles: Obstacles) -> dict[str, Run]:
    """Return all runs that may not have ended, by id, each in the state that `reconcile` finds."""
    found = {}
    for run_id in store.ids():
        with contextlib.suppress(NgcdlError):  # _chosen reports it if it was asked for
            if not store.is_ended(run_id):
                found[run_id] = reconcile(store, store.load(run_id), obstacles)
    return found


def _still_compared(store: Store, unended: dict[str, Run]) -> dict[str, str]:
    """Return the runs of all comparisons that go on, or have a run that has not ended, each with the comparison's
    id."""
    left = {run.id for run in unended.values() if run.is_open}
    stored = comparisons.stored(store)
    going = [one for one in stored if has_runner(store, one) or left & {trial.run for trial in one.trials}]
    return {trial.run: one.id for one in going for trial in one.trials}


def _check(store: Store, run: Run, obstacles: Obstacles, unended: dict[str, Run]) -> None:
    """Raise NotRemoved if the run, or another that continues from it, may still need its folder, or if the folder is a
    link."""
    folder = store.folder(run.id)
    if run.engine not in obstacles.engines and still_runs(store, run):
        raise NotRemoved(run.id, "it has not ended", f"    ngcdl stop {run.id}")
    if run.is_open:
        raise NotRemoved(run.id, "what became of it is not known yet", f"    ngcdl show {run.id}\n{_by_hand(folder)}")
    for later in unended.values():
        if later.is_open and later.workload.get("resume") == run.id:
            raise NotRemoved(run.id, f"{later.id} continues from it, and has not ended", f"    ngcdl stop {later.id}")
    if folder.is_symlink():
        raise NotRemoved(run.id, f"{folder} is a link to {folder.resolve()}", f"    rm {_quoted(folder)}")


def _by_hand(folder: Path) -> str:
    sudo = "" if folder.lstat().st_uid == os.geteuid() else "sudo "
    return f"If nothing of it runs any more, wherever it was started:\n    {sudo}rm -rf {_quoted(folder)}"


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))


def _going(store: Store, run: Run, keep_record: bool) -> Iterator[_Going]:
    """Yield what may be deleted of the run, if anything. Raise NotRemoved if this user can't delete all of that."""
    folder, total = store.folder(run.id), 0
    try:
        paths = tuple(path for path in folder.iterdir() if not _is_of_record(path)) if keep_record else (folder,)
    except OSError as error:
        raise _stuck(run.id, folder, error) from error
    for path in paths:
        taken, trouble = store.taken(path)
        if trouble:
            raise _stuck(run.id, path, trouble)
        total += taken
    if paths:
        yield _Going(run, paths, total)


def _is_of_record(path: Path) -> bool:
    return bool(_OF_A_RECORD.fullmatch(path.name)) and path.is_file() and not path.is_symlink()


def _stuck(run_id: str, top: Path, error: OSError, is_begun: bool = False) -> NotRemoved:
    """Return the error that says what keeps `top` from being deleted, and what to type."""
    path = Path(str(error.filename or top))
    path = path if path.is_absolute() else top  # shutil.rmtree may give only the last part of a path
    why = f"{path}: {error.strerror or error}"
    if error.errno not in (errno.EACCES, errno.EPERM):
        return NotRemoved(run_id, why, f"What is there:\n    ls -lA {_quoted(path)}", is_begun=is_begun)
    with contextlib.suppress(OSError, KeyError):
        if path.stat().st_uid != os.geteuid():
            why += f" (it belongs to {path.owner()})"
    return NotRemoved(run_id, why, f"    sudo rm -rf {_quoted(top)}", is_begun=is_begun)


# -- what is said ---------------------------------------------------------------------------------------------------


def _listed(store: Store, going: Sequence[_Going], asked: Asked) -> Iterator[str]:
    """Yield a line for each run, and for each stored comparison that loses runs."""
    if not going:
        return
    rows = [("RUN", "STATUS", "SIZE"), *((one.run.id, one.run.status, figures.size(one.bytes)) for one in going)]
    yield from table(rows, console.columns(sys.stdout), right=(2,))
    for comparison, lost in _losing(store, going, asked):
        count = len({*comparisons.runs_left(comparison, store)})
        what = "goes, too" if lost == count else f"loses {lost} of its {_runs(count)}"
        yield f"the comparison {comparison.id} {what}"
    for one in going:
        if claim := _claim(one.run):
            yield f"what {one.run.id} saved on the claim {claim} stays there, in ngcdl-runs/{one.run.id}"
        if not asked.keep_record and (container := _left_container(one.run)):
            yield f"the container of {one.run.id} stays, if it is still there:  docker rm -f {container}"
    if asked.dry_run:
        yield f"{_total(going)}: nothing was removed"


def _claim(run: Run) -> str | None:
    """Return the claim that has the checkpoints of a pod; None if checkpoints are in the run's folder, or nowhere."""
    claim = None if run.kind.shares_files else run.placement.get("data_pvc")
    return str(claim) if claim else None


def _left_container(run: Run) -> str | None:
    """Return the container that a note of the record names, because it has output that log.txt lacks, or could not be
    removed; else None."""
    container = (run.container or "")[:12]
    ends = (f":  docker logs {container}", f":  docker rm -f {container}")
    return container if any(note.endswith(ends) for note in run.notes) else None


def _runs(count: int) -> str:
    return f"{count} run{'' if count == 1 else 's'}"


def _total(going: Sequence[_Going]) -> str:
    return f"{_runs(len(going))}, {figures.size(sum(one.bytes for one in going))}"


# -- the removal ----------------------------------------------------------------------------------------------------


def _carry_out(store: Store, going: Sequence[_Going], keep_record: bool) -> int:
    """Remove `going`, and what interrupted removals have left behind. Return how many of these were not removed
    completely."""
    done, freed, failed = 0, 0, 0
    for path in store.left_over():
        size, is_gone = _deleted(store, path.name.rpartition(".")[0], (path,))
        freed, failed = freed + size, failed + (not is_gone)
    for one in going:
        is_gone = False
        try:
            paths = tuple(store.set_aside(one.run.id, path) for path in one.paths)
            if keep_record:  # a full disk has room for the note afterwards
                with contextlib.suppress(StateNotWritable):
                    _note(store, one.run)
            size, is_gone = _deleted(store, one.run.id, paths)
            freed += size
            if keep_record:
                _note(store, one.run)
        except NgcdlError as error:
            console.show_error(error)
        except OSError as error:
            console.show_error(_stuck(one.run.id, one.paths[0], error))
        done, failed = done + is_gone, failed + (not is_gone)
    if done or freed:
        what = "kept the record of" if keep_record else "removed"
        console.result(f"{what} {_runs(done)}, {figures.size(freed)} freed")
    return failed


def _note(store: Store, before: Run) -> None:
    """Note in the record what was removed. Raise NoSuchRun, RecordBroken or StateNotWritable."""
    run = store.load(before.id)
    noted = run.noting(NOTE.format("" if _claim(before) else "its checkpoints, "))
    if noted != run:
        store.save(noted, store.is_known(run))


def _deleted(store: Store, run_id: str, paths: Sequence[Path]) -> tuple[int, bool]:
    """Delete `paths`. Return how many bytes that freed, and whether all of them are gone; report what is not."""
    freed, is_gone = 0, True
    for path in paths:
        size = store.taken(path)[0]
        try:
            delete(path)
        except OSError as error:
            is_gone = False
            console.show_error(_stuck(run_id, path, error, is_begun=True))
        freed += size - store.taken(path)[0]
    return freed, is_gone
