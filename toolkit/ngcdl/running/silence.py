"""Detects a training that has reported nothing for a long time, and says so to whoever follows it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from ngcdl import waiting
from ngcdl.folder import EVENTS, last_lines
from ngcdl.record import Run
from ngcdl.report.measured.lines import number

SILENT_SECONDS = 300.0  # a compilation or an evaluation takes minutes
SILENT_STEPS = 20  # times the interval between the last two reported steps
LOOK_SECONDS = 30.0
_END_BYTES = 8 << 20  # of the events, read from the end: enough for the last two steps


def silent_seconds(run: Run, folder: Path, clock: Callable[[], float] = time.time) -> float | None:
    """Return for how many seconds a running training has reported nothing; None if that is not long for this training.

    Also return None if silence says nothing: for a run in a cluster's queue, which has a `reason`, and for a pod, whose
    events arrive at its end."""
    if run.status != "running" or run.is_waiting or not run.kind.shares_files:
        return None
    last = _last_report(folder)
    seconds = clock() - last if last is not None else 0.0
    if seconds <= SILENT_SECONDS:
        return None
    recent = last_lines(folder / EVENTS, _END_BYTES)
    steps = (number(event.get("t")) for event in recent if event.get("event") == "step")
    two = deque((t for t in steps if t is not None), maxlen=2)
    return seconds if seconds > SILENT_STEPS * (two[-1] - two[0] if two else 0.0) else None


def in_words(seconds: float) -> str:
    """Put `silent_seconds` into words, such as "no step for 12 min"."""
    minutes = seconds / 60
    return f"no step for {minutes:.0f} min" if minutes < 120 else f"no step for {minutes / 60:.0f} h"


def with_advice(run: Run, seconds: float) -> str:
    """Say how to find out whether a silent training hangs, or is in a long evaluation or compilation."""
    look = f"check with: ngcdl gpu or ngcdl logs {run.id}, stop it with: ngcdl stop {run.id}"
    return f"{run.id}: {in_words(seconds)}; {look}"


class Teller:
    """Says once that a run is silent, and again only after the run has reported something more. Says nothing while
    `waiting` returns a reason: the cluster has put the run's job back into its queue."""

    def __init__(self, say: Callable[[str], None], run: Run, folder: Path, waiting: Callable[[], str | None]) -> None:
        self._say, self._run, self._folder, self._waiting = say, run, folder, waiting
        self._told: float | None = None  # when the run last reported before the silence that was told

    def look(self) -> None:
        last = _last_report(self._folder)
        if last == self._told:
            return
        seconds = silent_seconds(self._run, self._folder)
        if seconds and not self._waiting():
            self._say(with_advice(self._run, seconds))
            self._told = last

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Look every LOOK_SECONDS while the block lasts."""

        def look_on(over: threading.Event) -> None:
            while not over.wait(LOOK_SECONDS):
                self.look()

        with waiting.alongside(look_on, "ngcdl-silence"):
            yield


def _last_report(folder: Path) -> float | None:
    """Return when the run reported its last event, in s since the epoch; None if it reported none."""
    with contextlib.suppress(OSError):
        return (folder / EVENTS).stat().st_mtime
    return None
