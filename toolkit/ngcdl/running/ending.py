"""How a run ended: its status, exit code and reason, according to its engine, its trainer and our own signals."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ngcdl.engines.values import Exit
from ngcdl.errors import GpuNotInside, NgcdlError
from ngcdl.record import Run
from ngcdl.report.measured.lines import Line, last_error, text
from ngcdl.running.interrupt import Stopper

STOPPED = "ngcdl stop was typed."


@dataclass(frozen=True)
class End:
    """What is known about an end: the engine's answer, and what went wrong here. `is_lost`: nobody can tell."""

    exit: Exit
    trouble: Exception | None = None
    is_lost: bool = False


def closed(run: Run, end: End, events: Sequence[Line], stopper: Stopper) -> Run:
    """Return the run as it ended: with status, code and reason."""
    status, code, reason = _judged(run, end, events, stopper)
    done = replace(run, oom_killed=end.exit.oom_killed).closed(status, code, reason, end.exit.finished or time.time())
    return replace(done, owner=run.owner) if status == "lost" else done  # reconcile keeps looking for it


def stopped_by(run: Run, ended: Exit) -> str | None:
    """Say what stopped a run that did not end by itself; None if unknown."""
    return "stopped by ngcdl stop" if STOPPED in run.notes else ended.reason


def gpu_not_met(events: Sequence[Line], ended: Exit) -> GpuNotInside | None:
    """Return the error if a training ended because its framework saw no GPU but had to compute on one."""
    error = last_error(events)
    if ended.code != 0 and error.get("kind") == "no_gpu":
        return GpuNotInside(str(error.get("message")))
    return None


def _judged(run: Run, end: End, events: Sequence[Line], stopper: Stopper) -> tuple[str, int | None, str | None]:
    code, why, trouble = end.exit.code, _why(end, events), end.trouble
    told = {text(event.get("event")) for event in events}
    if end.is_lost:
        return "lost", code, why
    has_finished = bool(run.workload) and code == 0 and "finish" in told  # before the signal reached it
    if (stopper.signal and not has_finished) or (stopper.is_late and code != 0):
        return "interrupted", stopper.exit_code or code, stopper.why
    if end.exit.is_stopped or (STOPPED in run.notes and code != 0):
        return "interrupted", code, stopped_by(run, end.exit)
    if trouble:
        return "failed", trouble.exit_code if isinstance(trouble, NgcdlError) else NgcdlError.exit_code, why
    if code != 0 or (end.exit.oom_killed and run.workload and "finish" not in told):
        return "failed", code, why
    # the kernel killed only a trial in the search for the largest batch
    return "finished", code, None if "oom" in told else why


def _why(end: End, events: Sequence[Line]) -> str | None:
    """Return the first available: our own trouble, the engine's reason, the trainer's."""
    trouble, error = end.trouble, last_error(events)
    if trouble:
        return trouble.message if isinstance(trouble, NgcdlError) else f"{type(trouble).__name__}: {trouble}"
    if end.exit.reason or end.exit.code == 0 or not error:
        return end.exit.reason
    return f"{error.get('kind')}: {error.get('message')}"
