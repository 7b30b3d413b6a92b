"""Takes samples that a driver call can't hold up: one thread takes them, another watches that thread and stands in for
it.

If a driver call does not return within PATIENCE_SECONDS (the first one: OPENING_SECONDS), its tick is written without
GPUs, with the reason, and so are all ticks due until the call returns. Only one thread wakes at each tick: no second
thread queries the driver for it.
"""

from __future__ import annotations

import threading
import time
from typing import Any, NoReturn

from ngcdl.telemetry.sampler import Sampler

OPENING_SECONDS, PATIENCE_SECONDS = 1.0, 0.5  # the driver's first call is slow if persistence mode is off


class WatchedSampler(Sampler):
    """A Sampler whose run() watches the sampling thread until the clock's wait() signals the end. The sampling thread
    is never joined: it ends with the process."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._patience = OPENING_SECONDS
        self._mutex = threading.Lock()
        self._asked: float | None = None  # since when the sampling thread waits for the driver, if the tick is its own
        self._tick: tuple[dict[str, Any], list[str]] = ({}, [])
        self._returned, self._turn = threading.Event(), threading.Semaphore(0)

    def run(self) -> None:
        """Take samples until the end, or until they can't be written."""
        with self._lines:
            self._due = self._clock.monotonic()
            threading.Thread(target=self._work, name="ngcdl-samples", daemon=True).start()
            while self._lines.are_open and not self._clock.wait(self._stop, PATIENCE_SECONDS):
                if (asked := self._overdue()) is not None:
                    self._stand_in(asked)
            self._mutex.acquire()  # forever: nothing is written from here on

    def _work(self) -> NoReturn:
        while True:
            if self._in_time():
                time.sleep(self._next())
            else:
                self._returned.set()
                self._turn.acquire()  # a tick is due then

    def _in_time(self) -> bool:
        """Take a sample. Return False if the watching thread has taken over the tick meanwhile."""
        values, gaps = self._tick = self._begun()
        with self._mutex:
            asked = self._asked = self._clock.monotonic()
        gpus = self._gpus(values, gaps)
        with self._mutex:
            if self._asked != asked:
                return False
            self._asked, self._patience = None, PATIENCE_SECONDS
            self._finish(values, gaps, gpus)
            return True

    def _overdue(self) -> float | None:
        """Take over the sampling thread's tick if its driver call is overdue, and return when that call began; else
        None."""
        with self._mutex:
            asked = self._asked
            if asked is None or self._clock.monotonic() - asked < self._patience:
                return None
            self._asked = None
            return asked

    def _stand_in(self, asked: float) -> None:
        values, gaps = self._tick
        while True:
            why = f"GPUs: NVML gave no answer for {self._clock.monotonic() - asked:.1f} s"
            self._finish(values, [*gaps, why], [])
            if self._clock.wait(self._stop, self._next()):
                return
            if self._returned.is_set():
                self._returned.clear()
                self._turn.release()
                return
            values, gaps = self._begun()
