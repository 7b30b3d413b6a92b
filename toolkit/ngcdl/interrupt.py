"""Ctrl-C and SIGTERM: once to stop and record, twice to kill."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from ngcdl.engines.base import Job
from ngcdl.errors import NgcdlError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """A signal came while nothing ran that could be asked to stop. No `except Exception` has it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _heard() -> list[signal.Signals]:
    """Which signals are for us: nohup and shells without job control have some ignored, and mean it."""
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


def raise_on_signals() -> None:
    """Let SIGTERM and SIGHUP raise Interrupted, as Ctrl-C raises KeyboardInterrupt: `with` and `finally` clean up."""

    def interrupted(number: int, frame: FrameType | None) -> None:
        del frame
        raise Interrupted(number)

    for number in _heard():
        if number != signal.SIGINT:
            signal.signal(number, interrupted)


class Stopper:
    """Turns signals into a stop of `job`. `signal` is the first that came, None if none did."""

    def __init__(self, grace_seconds: float) -> None:
        self.job: Job | None = None
        self.signal: int | None = None
        self._grace_seconds = grace_seconds

    @property
    def name(self) -> str:
        return signal.Signals(self.signal).name if self.signal else "no signal"

    def on_signal(self, number: int, frame: FrameType | None = None) -> None:
        del frame
        first = self.signal is None
        self.signal = self.signal or number
        if self.job is None:
            raise Interrupted(number)
        # The stop waits for the job, which may save a checkpoint: its output is read on meanwhile.
        threading.Thread(target=self._stop if first else self.job.kill, daemon=True).start()

    def _stop(self) -> None:
        with contextlib.suppress(NgcdlError):
            if self.job:
                self.job.stop(self._grace_seconds)

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Take the signals over. On a raw terminal Ctrl-C is a byte for the container and comes not as a signal."""
        before = {number: signal.signal(number, self.on_signal) for number in _heard()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
