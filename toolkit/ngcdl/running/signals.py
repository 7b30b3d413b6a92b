"""The signals that would end ngcdl: outside of a run they are exceptions, so that what is under way is cleaned up."""

from __future__ import annotations

import _thread
import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2)  # by which a batch system warns that the time is nearly up
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, *PASSED_ON)
_AGAIN_SECONDS = 0.01


class OfSignal(BaseException):
    """A signal's handler raised it. `except Exception` does not catch it."""

    def __init__(self, number: int, forget: Callable[[], object] = lambda: None) -> None:
        """`forget` is called if Python ignores this exception, before the signal comes once more."""
        super().__init__()
        self.number, self.forget = number, forget


class Interrupted(OfSignal):
    """A signal came while no job could be asked to stop."""


def signal_of(error: KeyboardInterrupt | OfSignal) -> int:
    return error.number if isinstance(error, OfSignal) else signal.SIGINT


def heard() -> list[signal.Signals]:
    """Return the signals to handle: those that are already ignored, as by nohup or a shell without job control, stay
    ignored."""
    return [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


def raise_on_signals() -> None:
    """Make Ctrl-C raise KeyboardInterrupt, and the first of the other signals Interrupted: `with` and `finally` clean
    up, which only Ctrl-C interrupts. A terminal that is closed sends SIGHUP twice, and logind SIGTERM besides."""
    came: list[int] = []

    def interrupted(number: int, _frame: FrameType | None) -> None:
        if not came:
            came.append(number)
            raise Interrupted(number, came.clear)

    for number in heard():
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else interrupted)
    sys.unraisablehook = come_again


def come_again(ignored: sys.UnraisableHookArgs) -> None:
    """Send a signal once more whose exception Python ignored, as it does in a destructor, or in the callback by which
    an import unlocks its module: one of a thousand signals during start-up was lost.
    https://docs.python.org/3/library/sys.html#sys.unraisablehook"""
    if not isinstance(ignored.exc_value, KeyboardInterrupt | OfSignal):
        sys.__unraisablehook__(ignored)
        return
    number = signal_of(ignored.exc_value)
    if isinstance(ignored.exc_value, OfSignal):
        ignored.exc_value.forget()

    def send() -> None:
        time.sleep(_AGAIN_SECONDS)  # until that code is left
        signal.pthread_kill(threading.main_thread().ident or 0, number)

    # not threading.Thread, which takes locks: the code that was interrupted may hold them
    _thread.start_new_thread(send, ())


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """Defer signals to the end of the block, for steps that must not be interrupted halfway."""
    came: list[int] = []
    all_heard = heard()
    before: dict[int, Any] = {one: signal.signal(one, lambda number, _: came.append(number)) for one in all_heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:  # also if the block failed: what would come next must not
            signal.raise_signal(came[0])
