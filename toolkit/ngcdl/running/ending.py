"""How a run ended: its status, exit code and reason, according to its engine, its trainer and our own signals."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from ngcdl.engines.values import Exit
from ngcdl.errors import GpuNotInside, NgcdlError, signal_exit_code
from ngcdl.frozen import dataclass
from ngcdl.record import Run
from ngcdl.report.measured.lines import Line, number

if TYPE_CHECKING:
    from ngcdl.report.measured.told import Told

STOPPED = "ngcdl stop was typed."
BY_STOP = "stopped by ngcdl stop"
TIME_IS_UP = "stopped when its time was up"
HANGUP = "Closing a terminal stops the run that it shows. With --detach a run goes on."
_SAVES_ON = (signal.SIGINT, signal.SIGTERM)  # on these the trainer saves a checkpoint and exits with 128 + number


@dataclass(frozen=True)
class Signals:
    """What this ngcdl process did to end the run. `number`: the signal that ngcdl received, None if none; `is_late`:
    ngcdl stopped the run because its time was up; `is_whole`: ngcdl watched the run throughout, so any other signal
    that ended the run came from outside."""

    number: int | None = None
    is_late: bool = False
    is_whole: bool = True


UNKNOWN_SIGNALS = Signals(is_whole=False)  # the run's own ngcdl was killed, or there was none


@dataclass(frozen=True)
class End:
    """What is known about how a run ended: the engine's answer, and `trouble`, the error in ngcdl or its engine.
    `is_lost`: it is not known whether or how the run ended."""

    exit: Exit
    trouble: Exception | None = None
    is_lost: bool = False


def closed(run: Run, end: End, told: Told, signals: Signals) -> Run:
    """Return `run` closed: with its status, exit code and reason."""
    status, code, reason = _judged(run, end, told, signals)
    if signals.number == signal.SIGHUP and status == "interrupted":
        run = run.noting(HANGUP)
    done = replace(run, oom_killed=end.exit.oom_killed).closed(status, code, reason, end.exit.finished or time.time())
    return replace(done, owner=run.owner) if status == "lost" else done  # with an owner, reconcile looks for it again


def before_start(run: Run, number: int) -> Run:
    """Return `run` closed because a signal came before it had started."""
    reason = f"{_by(run, Signals(number))} before it had started"
    return run.closed("interrupted", signal_exit_code(number), reason, time.time())


def closed_by_events(run: Run, told: Told) -> Run:
    """Return `run` closed with what its trainer's events tell about the end, if nothing else is left to ask."""
    what = "ngcdl was killed, or could not write the record" if run.owner else "it was killed"
    status, said = _said(told)
    if run.owner and run.reason and told.last is None:
        return run.closed("interrupted", None, "ngcdl was killed while the run waited for its GPUs", None)
    reason = said or f"{what}, and nothing is left that could tell how the run ended"
    if status == "finished":
        reason = f"{what}; {said}"
    elif STOPPED in run.notes and status != "failed":
        status, reason = "interrupted", BY_STOP
    when = number(told.last.get("t")) if told.last else None
    return run.closed(status or "lost", run.exit_code, reason, when)


def gpu_not_met(run: Run, told: Told, ended: Exit) -> GpuNotInside | None:
    """Return the error if a training ended because it had to compute on a GPU and its framework saw none; else None."""
    error = told.error
    if ended.code != 0 and error.get("kind") == "no_gpu":
        return GpuNotInside(str(error.get("message")), run.kind.no_gpu)
    return None


def _judged(run: Run, end: End, told: Told, signals: Signals) -> tuple[str, int | None, str | None]:
    """Return the run's status, exit code and reason. The first of these that is known decides: a signal to ngcdl, or
    the end of the run's time; a stop by others; an error in ngcdl; a training that reports that it was interrupted; if
    there is no exit code, the trainer's last event; the exit code, which says of a command whether a Ctrl-C that ngcdl
    can't have heard ended it."""
    code, why, trouble = end.exit.code, _why(end, told), end.trouble
    status, said = _said(told)
    if end.is_lost:
        return "lost", code, why
    has_finished = bool(run.workload) and code == 0 and told.has_finished  # before a signal reached it
    if (signals.number and not has_finished) or (signals.is_late and code != 0):
        if signals.number and (run.workload or code is None):  # a command that ended says by its own code how
            code = signal_exit_code(signals.number)
        return "interrupted", code, _by(run, signals)
    if end.exit.is_stopped or (STOPPED in run.notes and code != 0):
        return "interrupted", code, BY_STOP if STOPPED in run.notes else end.exit.reason
    if trouble:
        return "failed", trouble.exit_code if isinstance(trouble, NgcdlError) else NgcdlError.exit_code, why
    if run.workload and status == "interrupted":
        return status, code, end.exit.reason or _from_outside(code, signals) or said
    if code is None:  # no program exited by itself: if the trainer does not say how, it was interrupted
        return status or "interrupted", code, "; ".join(filter(None, (end.exit.reason, said))) or None
    is_unheard = not signals.is_whole or (run.spec or {}).get("tty")  # Ctrl-C on its own terminal is no signal to ngcdl
    if code == signal_exit_code(signal.SIGINT) and not run.workload and is_unheard:
        return "interrupted", code, why
    if code != 0 or (end.exit.oom_killed and run.workload and not told.has_finished):
        return "failed", code, why
    # after an `oom` event the kernel killed only a trial of the search for the largest batch: that is no reason
    return "finished", code, None if told.oom else why


def _said(told: Told) -> tuple[str | None, str | None]:
    """Return the status and the reason that the trainer's last event gives; None and None if it gives none."""
    last = told.last or {}
    if last.get("event") == "finish":
        return "finished", "the trainer reports that it finished"
    if last.get("event") == "error":
        return "interrupted" if last.get("kind") == "interrupted" else "failed", _in_words(last)
    return None, None


def _by(run: Run, signals: Signals) -> str | None:
    """Say why ngcdl stopped the run; None if it did not. `ngcdl stop` sends SIGTERM to the owner of a run."""
    if signals.number == signal.SIGTERM and run.owner is not None and STOPPED in run.notes:
        return BY_STOP
    if signals.number:
        return f"stopped by {signal.Signals(signals.number).name}"
    return TIME_IS_UP if signals.is_late else None


def _from_outside(code: int | None, signals: Signals) -> str | None:
    """Name the signal on which a training saved its checkpoint, if ngcdl is known not to have sent that signal; else
    None."""
    names = (number.name for number in _SAVES_ON if code == signal_exit_code(number))
    return next((f"stopped by {name} from outside" for name in names if signals.is_whole), None)


def _why(end: End, told: Told) -> str | None:
    """Return the first known reason: the error in ngcdl, the engine's reason, the trainer's error."""
    trouble, error = end.trouble, told.error
    if trouble:
        return trouble.message if isinstance(trouble, NgcdlError) else f"{type(trouble).__name__}: {trouble}"
    if end.exit.reason or end.exit.code == 0 or not error:
        return end.exit.reason
    return _in_words(error)


def _in_words(error: Line) -> str:
    return f"{error.get('kind')}: {error.get('message')}"
