"""A run's folder, or what is made from it, can't be read or written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ngcdl.errors.base import NgcdlError

# The commands that show why there is no space, by the system's words for that. A disk with too many files has no inodes
# left, which only df -i shows.
_LOOK_AT_SPACE = {
    os.strerror(errno.ENOSPC): "    df -h\n    df -i\n",
    os.strerror(errno.EDQUOT): "    quota -s\n",
}


class RecordError(NgcdlError):
    """A run's folder, or what is made from it, can't be read or written."""


class StateNotWritable(RecordError):
    def __init__(self, path: object, why: str, what: str = "Runs are recorded") -> None:
        look = _LOOK_AT_SPACE.get(why, "")
        first = f"Free some space there:\n{look}Or" if look else "Make it writable, or"
        super().__init__(
            f"{what} in {path}, which can't be written: {why}.",
            f"{first} name another place:\n    export XDG_STATE_HOME=DIR",
        )

    @classmethod
    @contextmanager
    def at(cls, path: object) -> Iterator[None]:
        """Raise this error for an OSError of the block, which writes to `path`, or lists what is there."""
        try:
            yield
        except OSError as error:
            raise cls(path, error.strerror or str(error)) from error


class RecordBroken(RecordError):
    def __init__(self, path: object, why: str, hint: str = "") -> None:
        super().__init__(f"{path} is not a record that ngcdl can read: {why}.", f"It was left as it is. {hint}".strip())


class NoSuchRun(RecordError):
    def __init__(
        self, name: str, where: object, *, fitting: Sequence[str] = (), is_empty: bool = False, comparison: str = ""
    ) -> None:
        """`fitting`: the runs that `name` may mean, if several, the newest first. `is_empty`: there are no runs at all.
        `comparison`: the id of the comparison that `name` means instead."""
        if comparison:
            text = f"There is no run {name!r}: that is a comparison."
            hint = f"    ngcdl compare --show {comparison}\n    ngcdl report {comparison}"
        elif fitting:
            text = f"The name {name!r} fits {len(fitting)} runs; the newest is {fitting[0]}."
            hint = "Type more of it:\n    ngcdl runs"
        elif is_empty:
            text, hint = f"There is no run {name!r}: there are none in {where} yet.", "    ngcdl run --train cifar10"
        else:
            text, hint = f"There is no run {name!r} in {where}.", "    ngcdl runs"
        super().__init__(text, hint)


class NoLog(RecordError):
    def __init__(self, run_id: str) -> None:
        super().__init__(f"{run_id} has no log: it wrote nothing.", f"What is known about it:\n    ngcdl show {run_id}")


class RunElsewhere(RecordError):
    def __init__(self, run_id: str, engine: str, its: str, here: str | None, choose: str, command: str) -> None:
        """`choose`: how to select the run's engine here, before `command` is typed again."""
        super().__init__(
            f"{run_id} was started on another engine ({engine.capitalize()}: {its}); the one selected here is "
            f"{here or 'unknown'}.",
            f"{'Nothing was stopped. ' if command == 'stop' else ''}{choose}\n    ngcdl {command} {run_id}",
        )


class RunOnHost(RecordError):
    def __init__(self, run_id: str, host: str, here: str, command: str) -> None:
        where, there = f"on {host}; this is {here}", f"On {host}"
        if host == here:
            where, there = "in another sandbox or container, whose processes can't be seen from here", "There"
        super().__init__(
            f"{run_id} runs {where}.",
            f"{'Nothing was stopped. ' if command == 'stop' else ''}{there}:\n    ngcdl {command} {run_id}",
        )


class NotEntered(RecordError):
    def __init__(self, run_id: str, why: str, hint: str = "") -> None:
        super().__init__(f"{run_id} can't be entered: {why}", hint or f"    ngcdl show {run_id}")


class RunOfOthers(RecordError):
    def __init__(self, run_id: str, engine: str) -> None:
        super().__init__(
            f"{run_id} was started by {engine}, not by ngcdl, which can't stop it.",
            "Stop it where it was started; with Docker Compose:\n    docker compose stop",
        )


class NoSuchComparison(RecordError):
    def __init__(self, name: str, where: object, ids: Sequence[str] = ()) -> None:
        """`ids`: the comparisons that exist, the oldest first. The message names the five newest."""
        there = "".join(f"    ngcdl compare --show {one}\n" for one in ids[-5:])
        super().__init__(
            f"There is no comparison {name!r} in {where}.",
            f"The newest there:\n{there.rstrip()}" if there else "There is none yet:\n    ngcdl compare --help",
        )


class NotRepeatable(RecordError):
    def __init__(self, run_id: str, why: str, hint: str = "") -> None:
        super().__init__(
            f"{run_id} can't be repeated: {why}", hint or f"What is known about it:\n    ngcdl show {run_id}"
        )


class NotRemoved(RecordError):
    def __init__(self, run_id: str, why: str, hint: str = "", *, is_begun: bool = False) -> None:
        """`is_begun`: a part of the run may be gone already."""
        super().__init__(f"{run_id} was {'removed only in part' if is_begun else 'not removed'}: {why}", hint)


class NotWritten(RecordError):
    def __init__(self, path: object, why: str, hint: str = "Name another place for it.") -> None:
        super().__init__(f"{path} can't be written: {why}.", hint)


class ArchiveBroken(RecordError):
    def __init__(self, path: object, why: str) -> None:
        super().__init__(
            f"{path} is not an archive of runs that can be imported: {why}.",
            "Nothing from it was kept. On the machine with the runs:\n    ngcdl runs export RUN... FILE.tar",
        )


class NoBrowser(RecordError):
    def __init__(self, why: str) -> None:
        super().__init__(
            f"An image of the page needs Chromium or Chrome, run headless: {why}.",
            "Install one, or name one in NGCDL_BROWSER; the page itself needs none:\n"
            "    sudo apt-get install chromium\n    ngcdl report ... --html report.html  # without --png FILE",
        )
