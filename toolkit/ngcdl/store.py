"""All runs of a user: create, save, load, list. What lies in a run's folder is in folder.py.

One broken record never hides the others. Nothing here deletes anything.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ngcdl import whole
from ngcdl.errors import NoSuchRun, RecordBroken, StateNotWritable
from ngcdl.folder import HOME, RECORD, opened
from ngcdl.record import Run


class NameTaken(Exception):
    """Another run has that id. Not for users: there are more."""


@dataclass(frozen=True)
class Store:
    """All runs of one user, under `root`."""

    root: Path

    def new_id(self, what: str) -> str:
        """Give an id that most likely nobody has: of two in one 1/4096 s one in 4,096 is told twice."""
        now = time.time()
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
        return f"{stamp}-{what}-{int(now % 1 * 4096):03x}{os.urandom(2).hex()[:3]}"

    def folder(self, run_id: str) -> Path:
        return self.root / run_id

    def ensure_writable(self) -> None:
        """Make the root and prove that it takes a file. Raises StateNotWritable."""
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            probe = self.root / f".probe.{os.getpid()}"
            try:
                probe.write_bytes(b"x" * 4096)
            finally:
                probe.unlink(missing_ok=True)
        except OSError as error:
            raise StateNotWritable(self.root, error.strerror or str(error)) from error

    def create(self, run: Run) -> Path:
        """Make the folder of a new run and write its first record. Raises StateNotWritable, or NameTaken."""
        folder = self.folder(run.id)
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                folder.mkdir(mode=0o700)
            except FileExistsError as error:
                raise NameTaken(run.id) from error
            (folder / HOME).mkdir(mode=0o700)
        except OSError as error:
            raise StateNotWritable(folder, error.strerror or str(error)) from error
        self.save(run)
        return folder

    def save(self, run: Run) -> None:
        """Write run.json whole or not at all; the one before stays on failure. Raises StateNotWritable."""
        write_whole(self.folder(run.id) / RECORD, json.dumps(run.as_json(), indent=1, allow_nan=False) + "\n")

    def load(self, run_id: str) -> Run:
        """Raises NoSuchRun or RecordBroken."""
        path = self.folder(run_id) / RECORD
        try:
            with opened(path) as file:
                data = json.load(file)
        except FileNotFoundError as error:
            raise NoSuchRun(run_id, self.root) from error
        except (OSError, ValueError, RecursionError) as error:
            raise RecordBroken(path, str(error)) from error
        try:
            run = Run.from_json(data)
        except ValueError as error:
            raise RecordBroken(path, str(error)) from error
        if run.id != run_id:
            why = f"it is that of {run.id}, in a folder of another name"
            raise RecordBroken(path, why, f"Give the folder that name, or move it out of {self.root}.")
        return run

    def ids(self) -> list[str]:
        """All runs' ids, newest first: by the second in which an id begins, then by the part of it in which it ends."""
        try:
            found = [entry.name for entry in os.scandir(self.root) if self.has(entry.name)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise StateNotWritable(self.root, error.strerror or str(error)) from error
        return sorted(found, key=age, reverse=True)

    def is_ended(self, run_id: str) -> bool:
        """Does its record say so? Nothing else of it is looked at; False also where it can't be read, and of one that
        lost its engine and still has its owner: what became of it is not known yet."""
        import orjson

        try:
            with opened(self.folder(run_id) / RECORD) as file:
                data = orjson.loads(file.read())
        except (OSError, ValueError):
            return False
        if not isinstance(data, dict) or data.get("status") in (None, "running"):
            return False
        return data["status"] != "lost" or data.get("owner") is None

    def has(self, run_id: str) -> bool:
        """Is it a run's? A folder that may not be entered counts as one: who asks for this one is told so by `load`."""
        try:
            (self.folder(run_id) / RECORD).stat()
        except PermissionError:
            return True
        except OSError:
            return False
        return True

    def find(self, name: str) -> str:
        """Give the id that `name` means, as `named` reads it. Raises NoSuchRun."""
        found = named(name, self.ids())
        if found is None:
            raise NoSuchRun(name, self.root)
        return found


def age(run_id: str) -> tuple[str, str]:
    """Give what ids are in the order of time by."""
    return run_id[:15], run_id.rpartition("-")[2]


def named(name: str, ids: Sequence[str]) -> str | None:
    """Give the one of `ids`, the newest first, that `name` means: last, last-1 (the one before), an id, or the
    beginning or end of just one; None where it means none, or several."""
    if name == "last" or name.startswith("last-"):
        back = name.removeprefix("last").removeprefix("-") or "0"
        return next((one for number, one in enumerate(ids) if str(number) == back), None)
    found = [one for one in ids if one == name]
    found = found or [one for one in ids if name and (one.startswith(name) or one.endswith(name))]
    return found[0] if len(found) == 1 else None


def write_whole(path: Path, text: str) -> None:
    """Write `path` whole or not at all; the one before stays on failure. Raises StateNotWritable."""
    try:
        with whole.written(path) as file:
            file.write(text.encode())
        whole.sync_folder(path.parent)
    except OSError as error:
        raise StateNotWritable(path, error.strerror or str(error)) from error
