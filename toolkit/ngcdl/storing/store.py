"""All runs of a user: create, save, load, list, remove. For the content of a run's folder see folder.py.

One broken record never hides the others. Before a run's folder, or a part of it, is deleted, it is renamed into
.removed/, where no ngcdl looks for runs: an interrupted deletion leaves no half of a folder among the runs.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shlex
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ngcdl import whole
from ngcdl.errors import NoSuchRun, RecordBroken, StateNotWritable
from ngcdl.folder import EVENTS, HOME, LOG, RECORD, SAMPLES, content, opened, unlinked
from ngcdl.frozen import dataclass
from ngcdl.record import Run
from ngcdl.storing import marks, vouched
from ngcdl.there import exists

REMOVED, LOCKS = ".removed", ".locks"


class NameTaken(Exception):
    """Another run has that id. Users never see this error: the caller tries another id."""


@dataclass(frozen=True)
class Store:
    """All runs of one user, under `root`."""

    root: Path

    def new_id(self, what: str) -> str:
        """Return an id that is most likely unique: two ids of the same 1/4096 s collide once in 4,096 times."""
        now = time.time()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
        return f"{stamp}-{what}-{int(now % 1 * 4096):03x}{os.urandom(2).hex()[:3]}"

    def folder(self, run_id: str) -> Path:
        return self.root / run_id

    def ensure_writable(self) -> None:
        """Create the root and prove that a file can be written there. Raise StateNotWritable."""
        with StateNotWritable.at(self.root):
            make_private(self.root)
            probe = self.root / f".probe.{os.urandom(8).hex()}"
            try:
                with probe.open("xb") as file:
                    file.write(b"x" * 4096)
            finally:
                probe.unlink(missing_ok=True)

    def create(self, run: Run) -> Path:
        """Create the folder of a new run and write its first record. Raise StateNotWritable or NameTaken. On failure,
        and if a signal interrupts it, nothing of the run is left."""
        folder = self.folder(run.id)
        with StateNotWritable.at(folder):
            make_private(self.root)
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError as error:
                raise NameTaken(run.id) from error
        try:
            with StateNotWritable.at(folder):
                (folder / HOME).mkdir(mode=0o700)
            self.save(run)
        except BaseException:
            with contextlib.suppress(OSError):
                delete(folder)
            marks.drop(self.root, run.id)
            vouched.drop(self.root, run.id)
            raise
        return folder

    def save(self, run: Run, known: bool = True) -> None:
        """Write run.json atomically; on failure the old one stays. Raise StateNotWritable. Before a record that is
        known says that its run has ended, what the run wrote is on the disk.

        `known`: ngcdl knows by itself what it saves, or by a record for which `is_known` said so. An import, which
        knows nothing, brings all that it takes in to the disk at once."""
        record, has_ended = run.as_json(), run.status != "running"
        if known:
            if has_ended:
                self._sync(run.id)
            vouched.put(self.root, run.id, record, is_last=has_ended)
        write_whole(self.folder(run.id) / RECORD, json.dumps(record, indent=1, allow_nan=False) + "\n")
        if run.owner:
            marks.put(self.root, run.id)
        else:
            marks.drop(self.root, run.id)

    def _sync(self, run_id: str) -> None:
        """Bring the files that grow during a run to the disk. Raise StateNotWritable."""
        for path in (self.folder(run_id) / name for name in (EVENTS, SAMPLES, LOG)):
            try:
                file = opened(path)
            except OSError:  # it is missing, or nothing that ngcdl would read
                continue
            with StateNotWritable.at(path), file:
                whole.sync(file.fileno())

    def is_known(self, run: Run) -> bool:
        """Return whether `run`, as it was loaded, is what ngcdl saved. False if anything else changed the record, which
        the run itself can do, or made it: another machine, or docker compose."""
        return vouched.has(self.root, run.id, run.as_json())

    def owned(self) -> Iterator[Run]:
        """Yield the runs that a process watches, or that lost their engine and are not closed yet, newest first. Only
        their records are read, however many runs there are; a broken one is left out. Raise StateNotWritable."""
        for run_id in sorted(marks.names(self.root), key=age, reverse=True):
            try:
                run = self.load(run_id)
            except RecordBroken:  # `ngcdl runs` reports it
                continue
            except NoSuchRun:  # it was removed
                run = None
            if run and run.owner:
                yield run
            else:
                marks.drop(self.root, run_id)

    def load(self, run_id: str) -> Run:
        """Load a run's record. Raise NoSuchRun or RecordBroken."""
        path = self.folder(run_id) / RECORD
        try:
            data = json.loads(content(path))
        except FileNotFoundError as error:
            raise NoSuchRun(run_id, self.root) from error
        except PermissionError as error:
            back = f"If it was written under sudo:\n    sudo chown -R $USER {shlex.quote(str(self.root.parent))}"
            raise RecordBroken(path, error.strerror or str(error), back) from error
        except (OSError, ValueError, RecursionError) as error:
            raise RecordBroken(path, str(error)) from error
        try:
            run = Run.from_json(data)
        except ValueError as error:
            raise RecordBroken(path, str(error)) from error
        if run.id != run_id:
            why = f"it belongs to {run.id}, but its folder has another name"
            raise RecordBroken(path, why, f"Rename the folder to that id, or move it out of {self.root}.")
        return run

    def ids(self) -> list[str]:
        """Return all runs' ids, newest first: by the second at the start of an id, then by the fraction at its end."""
        with StateNotWritable.at(self.root), contextlib.suppress(FileNotFoundError):
            found = [entry.name for entry in os.scandir(self.root) if self.has(entry.name)]
            return sorted(found, key=age, reverse=True)
        return []

    def lock_of(self, run_id: str) -> Path:
        """Return the file that a command locks while it closes the run's record, and that has a line if `ngcdl stop`
        was typed. It is not in the run's folder, where the run could put something else in its place. Raise OSError."""
        folder = unlinked(self.root / LOCKS)
        folder.mkdir(exist_ok=True, mode=0o700)
        return folder / run_id

    def tell_stop(self, run_id: str) -> None:
        """Leave word for the run's watcher, which itself only gets a signal: `ngcdl stop` was typed."""
        with contextlib.suppress(OSError), opened(self.lock_of(run_id), to_extend=True) as file:
            file.write(b"stop\n")

    def is_told_stop(self, run_id: str) -> bool:
        """Return whether `tell_stop` was called for the run."""
        with contextlib.suppress(OSError):
            return bool(content(self.lock_of(run_id)))
        return False

    def is_ended(self, run_id: str) -> bool:
        """Return whether the run's record says that the run has ended; only the record is read. False also if the
        record can't be read, and if it still names an owner: what became of the run, or of its container, is not known
        yet."""
        import orjson

        try:
            data = orjson.loads(content(self.folder(run_id) / RECORD))
        except (OSError, ValueError):
            return False
        if not isinstance(data, dict) or data.get("status") in (None, "running"):
            return False
        return data.get("owner") is None

    def has(self, run_id: str) -> bool:
        """Return whether there is a run with that id. One whose folder this user may not enter, or whose disk or server
        fails, counts as a run: `load` then reports why it can't be read."""
        try:
            return exists(self.folder(run_id) / RECORD)
        except OSError as error:
            return error.errno != errno.ENAMETOOLONG

    def find(self, name: str) -> str:
        """Return the id that `name` means, as `fitting` reads it, or that is in the name of a container, as `docker ps`
        shows it. Raise NoSuchRun if it fits none, or several."""
        ids = self.ids()
        found = fitting(name.removeprefix("ngcdl-"), ids)
        if len(found) != 1:
            raise NoSuchRun(name, self.root, fitting=found, is_empty=not ids)
        return found[0]

    def set_aside(self, run_id: str, path: Path) -> Path:
        """Move a run's folder, or a part of it, out of the store, atomically, and return the new path, which the caller
        deletes. Raise OSError."""
        aside = self.root / REMOVED / f"{run_id}.{os.urandom(4).hex()}"
        unlinked(aside.parent).mkdir(exist_ok=True, mode=0o700)
        path.rename(aside)
        whole.sync_folder(path.parent)
        if path == self.folder(run_id):
            vouched.drop(self.root, run_id)
            with contextlib.suppress(OSError):
                (unlinked(self.root / LOCKS) / run_id).unlink()
        return aside

    def left_over(self) -> list[Path]:
        """Return the folders that were set aside and are still there: a deletion was cut short, or is going on."""
        with contextlib.suppress(OSError):
            return sorted(unlinked(self.root / REMOVED).iterdir())
        return []

    def taken(self, top: Path) -> tuple[int, OSError | None]:
        """Return how many bytes `top` takes on the disk, and the error that keeps this user from deleting it, or None.

        No link is followed. A file that vanishes meanwhile counts 0 bytes, as does one with too long a path."""
        device, total, trouble = self.root.stat().st_dev, 0, None
        seen, ahead = set[int](), [str(top)]
        while ahead:
            path = ahead.pop()
            try:
                state = os.lstat(path)
                if state.st_dev != device:
                    raise OSError(errno.EBUSY, "another file system is mounted there", path)
                if state.st_ino in seen:  # another name of the same file
                    continue
                seen.add(state.st_ino)
                total += state.st_blocks * 512
                if stat.S_ISDIR(state.st_mode):
                    with os.scandir(path) as entries:
                        inside = [entry.path for entry in entries]
                    if inside and not os.access(path, os.W_OK | os.X_OK, effective_ids=True):
                        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
                    ahead += inside
            except FileNotFoundError:
                continue
            except OSError as error:
                if error.errno != errno.ENAMETOOLONG:  # so deep that it has no path; `delete` needs none
                    trouble = trouble or error
        return total, trouble


def delete(path: Path) -> None:
    """Delete a file, a link or a folder with all that is in it; no link is followed. Raise OSError.

    Another ngcdl may be deleting it at the same time."""
    while os.path.lexists(path):
        try:
            if path.is_symlink() or not path.is_dir():
                path.unlink()
            else:
                shutil.rmtree(path)
        except FileNotFoundError:
            continue
        except (RecursionError, OSError) as error:  # rmtree has a call, and an open file, for each folder on the way
            if isinstance(error, OSError) and error.errno != errno.EMFILE:
                raise
            _flatten(path)


def _flatten(top: Path) -> None:
    """Move each folder within the folders in `top` up into `top`; of those that are in it then, and so on, until none
    has folders. A run can nest thousands, which rmtree can't delete. No link is followed. Raise OSError."""
    way = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    ahead = [entry.name for entry in os.scandir(top) if entry.is_dir(follow_symlinks=False)]
    at_top = os.open(top, way)
    try:
        while ahead:
            folder = os.open(ahead.pop(), way, dir_fd=at_top)
            try:
                with os.scandir(folder) as entries:
                    inside = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
                for name in inside:
                    ahead.append(f".ngcdl-{os.urandom(8).hex()}")
                    os.rename(name, ahead[-1], src_dir_fd=folder, dst_dir_fd=at_top)
            finally:
                os.close(folder)
    finally:
        os.close(at_top)


def make_private(folder: Path) -> None:
    """Create `folder`, and what is missing above it, for this user alone, whatever the umask: who may rename one of
    them could put another in its place. Raise OSError. https://specifications.freedesktop.org/basedir-spec/latest/"""
    missing = [one for one in folder.parents if not one.exists()]  # parents=True would leave them to the umask
    for one in (*reversed(missing), folder):
        one.mkdir(exist_ok=True, mode=0o700)


def age(run_id: str) -> tuple[str, str]:
    """Return the key that sorts ids chronologically."""
    return run_id[:15], short(run_id)


def named(name: str, ids: Sequence[str]) -> str | None:
    """Return the id that `name` fits; None if it fits none of `ids`, or several."""
    found = fitting(name, ids)
    return found[0] if len(found) == 1 else None


def fitting(name: str, ids: Sequence[str]) -> list[str]:
    """Return which of `ids`, newest first, `name` may mean: last, last-1 (the one before), an id, or the newest run of
    that name, also if another id happens to end with it, as with b8. Else it is the beginning or end of several ids. In
    a narrow terminal only an id's last word is shown, which may be shortened, too."""
    if name == "last" or name.startswith("last-"):
        back = name.removeprefix("last").removeprefix("-") or "0"
        return [one for number, one in enumerate(ids) if str(number) == back]
    if not name:
        return []
    found = [one for one in ids if one == name] or [one for one in ids if called(one) == name][:1]
    return found or [one for one in ids if one.startswith(name) or one.endswith(name) or short(one).startswith(name)]


def called(run_id: str) -> str:
    """Return the word of an id that says what was run: the training, the image, or what --name was."""
    return run_id[16:-7]  # as new_id makes it


def short(run_id: str) -> str:
    """Return the last word of an id, which differs from run to run."""
    return run_id.rpartition("-")[2]


def write_whole(path: Path, text: str) -> None:
    """Write `path` atomically; on failure the old file stays. Raise StateNotWritable."""
    with StateNotWritable.at(path):
        with whole.written(path) as file:
            file.write(text.encode())
        whole.sync_folder(path.parent)
