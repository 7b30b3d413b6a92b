"""How a run ended: its status, exit code and reason, according to its engine, its trainer and our own signals."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ngcdl.engines.values import Exit
from ngcdl.errors import GpuNotInside, NgcdlError, signal_exit_code
from ngcdl.record import Run
from ngcdl.report.measured.lines import Line, last_error, number, text

STOPPED = "ngcdl stop was typed."
_BY_STOP = "stopped by ngcdl stop"
TIME_IS_UP = "stopped when its time was up"
_SAVES_ON = (signal.SIGINT, signal.SIGTERM)  # on these the trainer saves a checkpoint, and exits with 128 + the number


@dataclass(frozen=True)
class Signals:
    """What this ngcdl did to end the run. `number`: the signal that it got, None if none; `is_late`: the run's time was
    up. `is_whole`: it watched the run throughout, so whatever else ended the run came from outside."""

    number: int | None = None
    is_late: bool = False
    is_whole: bool = True

    @property
    def why(self) -> str | None:
        """Say what stopped the run; None if ngcdl did not."""
        if self.number:
            return f"stopped by {signal.Signals(self.number).name}"
        return TIME_IS_UP if self.is_late else None


UNSEEN = Signals(is_whole=False)  # the run's own ngcdl was killed, or there was none


@dataclass(frozen=True)
class End:
    """What is known about an end: the engine's answer, and what went wrong here. `is_lost`: nobody can tell."""

    exit: Exit
    trouble: Exception | None = None
    is_lost: bool = False


def closed(run: Run, end: End, events: Sequence[Line], signals: Signals) -> Run:
    """Return the run as it ended: with status, code and reason."""
    status, code, reason = _judged(run, end, events, signals)
    done = replace(run, oom_killed=end.exit.oom_killed).closed(status, code, reason, end.exit.finished or time.time())
    return replace(done, owner=run.owner) if status == "lost" else done  # reconcile keeps looking for it


def closed_by_events(run: Run, events: Sequence[Line]) -> Run:
    """Return the run as its trainer says that it ended: nothing else is left to ask."""
    what = "ngcdl was killed" if run.owner else "it was killed"
    status, told = _told(events)
    reason = told or f"{what}, and nothing is left that could tell how the run ended"
    if status == "finished":
        reason = f"{what}; {told}"
    elif STOPPED in run.notes and status != "failed":
        status, reason = "interrupted", _BY_STOP
    when = number(events[-1].get("t")) if events else None
    return run.closed(status or "lost", run.exit_code, reason, when)


def gpu_not_met(events: Sequence[Line], ended: Exit) -> GpuNotInside | None:
    """Return the error if a training ended because its framework saw no GPU but had to compute on one."""
    error = last_error(events)
    if ended.code != 0 and error.get("kind") == "no_gpu":
        return GpuNotInside(str(error.get("message")))
    return None


def _judged(run: Run, end: End, events: Sequence[Line], signals: Signals) -> tuple[str, int | None, str | None]:
    """Return its status, code and reason. The first that is known decides: a signal of ours, a stop by others, trouble
    of ours, a training that says that it was interrupted; without a code the trainer's last event; the code."""
    code, why, trouble = end.exit.code, _why(end, events), end.trouble
    heard = {text(event.get("event")) for event in events}
    status, told = _told(events)
    if end.is_lost:
        return "lost", code, why
    has_finished = bool(run.workload) and code == 0 and "finish" in heard  # before the signal reached it
    if (signals.number and not has_finished) or (signals.is_late and code != 0):
        return "interrupted", signal_exit_code(signals.number) if signals.number else code, signals.why
    if end.exit.is_stopped or (STOPPED in run.notes and code != 0):
        return "interrupted", code, _stopped_by(run, end.exit)
    if trouble:
        return "failed", trouble.exit_code if isinstance(trouble, NgcdlError) else NgcdlError.exit_code, why
    if run.workload and status == "interrupted":
        return status, code, end.exit.reason or _from_outside(code, signals) or told
    if code is None:  # no program ended with a code: unless the trainer says more, something took it away
        return status or "interrupted", code, "; ".join(filter(None, (end.exit.reason, told))) or None
    if code != 0 or (end.exit.oom_killed and run.workload and "finish" not in heard):
        return "failed", code, why
    # the kernel killed only a trial in the search for the largest batch
    return "finished", code, None if "oom" in heard else why


def _told(events: Sequence[Line]) -> tuple[str | None, str | None]:
    """Return how the run ended according to the trainer's last event, and its words; None twice if it does not say."""
    last = events[-1] if events else {}
    if last.get("event") == "finish":
        return "finished", "the trainer reports that it finished"
    if last.get("event") == "error":
        status = "interrupted" if last.get("kind") == "interrupted" else "failed"
        return status, f"{last.get('kind')}: {last.get('message')}"
    return None, None


def _stopped_by(run: Run, ended: Exit) -> str | None:
    """Say what stopped a run that did not end by itself; None if unknown."""
    return _BY_STOP if STOPPED in run.notes else ended.reason


def _from_outside(code: int | None, signals: Signals) -> str | None:
    """Name the signal that a training saved its checkpoint on, if it is known that this ngcdl did not send it."""
    names = (number.name for number in _SAVES_ON if code == signal_exit_code(number))
    return next((f"stopped by {name} from outside" for name in names if signals.is_whole), None)


def _why(end: End, events: Sequence[Line]) -> str | None:
    """Return the first available: our own trouble, the engine's reason, the trainer's."""
    trouble, error = end.trouble, last_error(events)
    if trouble:
        return trouble.message if isinstance(trouble, NgcdlError) else f"{type(trouble).__name__}: {trouble}"
    if end.exit.reason or end.exit.code == 0 or not error:
        return end.exit.reason
    return f"{error.get('kind')}: {error.get('message')}"
