"""The folders of runs, and what is made of them."""

from __future__ import annotations

from collections.abc import Sequence

from ngcdl.errors.base import NgcdlError


class RecordError(NgcdlError):
    """The folder of a run."""


class StateNotWritable(RecordError):
    def __init__(self, path: object, why: str, what: str = "Runs are recorded") -> None:
        super().__init__(
            f"{what} in {path}, which can't be written: {why}.",
            "Make it writable, or name another place:\n    XDG_STATE_HOME=DIR ngcdl ...",
        )


class RecordBroken(RecordError):
    def __init__(self, path: object, why: str, hint: str = "") -> None:
        super().__init__(f"{path} is not a record that ngcdl can read: {why}.", f"It was left as it is. {hint}".strip())


class NoSuchRun(RecordError):
    def __init__(self, name: str, where: object) -> None:
        super().__init__(f"There is no run {name!r} in {where}.", "    ngcdl runs")


class NoLog(RecordError):
    def __init__(self, run_id: str) -> None:
        super().__init__(f"{run_id} has no log: it wrote nothing.", f"What is known of it:\n    ngcdl show {run_id}")


class RunElsewhere(RecordError):
    def __init__(self, run_id: str, engine: str, its: str, here: str | None) -> None:
        choose = {
            "kubernetes": f"Choose it:\n    kubectl config use-context {its}",
            "slurm": f"Type it where sbatch speaks to {its}:",
        }.get(engine, "Choose the engine that it was started on (DOCKER_HOST, docker context):")
        super().__init__(
            f"{run_id} is on another {engine} ({its}) than the one that is asked here ({here or 'none'}).",
            f"Nothing was stopped. {choose}\n    ngcdl stop {run_id}",
        )


class NoSuchComparison(RecordError):
    def __init__(self, name: str, where: object, ids: Sequence[str] = ()) -> None:
        """`ids`: of those that are there, the oldest first; the newest are named."""
        there = "".join(f"    ngcdl compare --show {one}\n" for one in ids[-5:])
        super().__init__(
            f"There is no comparison {name!r} in {where}.",
            f"The newest there:\n{there.rstrip()}" if there else "There is none yet:\n    ngcdl compare --help",
        )


class NotRepeatable(RecordError):
    def __init__(self, run_id: str, why: str, hint: str = "") -> None:
        super().__init__(f"{run_id} can't be repeated: {why}", hint or f"What is known of it:\n    ngcdl show {run_id}")


class NotWritten(RecordError):
    def __init__(self, path: object, why: str) -> None:
        super().__init__(f"{path} can't be written: {why}.", "Name another place for it.")


class ArchiveBroken(RecordError):
    def __init__(self, path: object, why: str) -> None:
        super().__init__(
            f"{path} is not an archive of runs that can be taken in: {why}.",
            "Nothing of it was kept. Where the runs are:\n    ngcdl runs export RUN... FILE.tar",
        )


class NoBrowser(RecordError):
    def __init__(self, why: str) -> None:
        super().__init__(
            f"A picture of the page is drawn by Chromium or Chrome without a window: {why}.",
            "Install one, or name one in NGCDL_BROWSER; the page itself needs none:\n"
            "    sudo apt-get install chromium\n    ngcdl report RUN --html FILE",
        )
