"""Handles the signals that would end ngcdl: the first one stops the run, a second Ctrl-C kills it. A command that has
started gets the first Ctrl-C itself, and SIGUSR1 and SIGUSR2, which then stop nothing by themselves."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from ngcdl.engines.base import TRAINING_GRACE_SECONDS, Interruptible, Job
from ngcdl.errors import NgcdlError
from ngcdl.running.signals import PASSED_ON, Interrupted, OfSignal, heard

STOPPING = "stopping"
OR_KILL = f"{STOPPING}; press Ctrl-C again to kill"  # only after a Ctrl-C: on a raw terminal it is no signal
# How long to wait for confirmation of a kill; then the caller gets the prompt back anyway.
KILL_SECONDS = 5.0
# How long to wait after a failed stop before the job is asked to stop again. The failed stop may have reached the job
# all the same, and a training that gets a second SIGTERM ends at once, so its grace period must be over first.
RETRY_SECONDS = float(TRAINING_GRACE_SECONDS)
_WAKE_SECONDS = 0.1
_LOOK_SECONDS = 0.5  # between two looks for a signal during a start


class Unkillable(OfSignal):
    """The job was killed, but its end was not confirmed within KILL_SECONDS."""


class Stopper:
    """Turns signals into a stop of `job`. `signal` is the first signal that came, None if none came.

    `is_command`: the job is a command, and gets Ctrl-C as SIGINT, as without ngcdl, and SIGUSR1 and SIGUSR2; a training
    is asked to stop by SIGTERM. `before_stop` is called before the job is asked to stop. `is_late`: the job was stopped
    because its time was up, not by a signal."""

    def __init__(
        self,
        grace_seconds: float,
        say: Callable[[str], None],
        kill_seconds: float = KILL_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        *,
        is_command: bool = False,
        before_stop: Callable[[], object] = lambda: None,
    ) -> None:
        self.job: Job | None = None
        self.signal: int | None = None
        self.is_late = False
        self._grace_seconds = grace_seconds
        self._kill_seconds, self._retry_seconds = kill_seconds, retry_seconds
        self._is_command, self._before_stop = is_command, before_stop
        self._say = say
        self._is_over = False
        self.afterwards: int | None = None  # the first signal that came after the job had ended
        self._is_asked = False  # a stop is under way, or was accepted
        self._alarm: threading.Timer | None = None
        self._is_given_up = False  # the kill was not confirmed in time
        self._is_woken = False  # and the main thread knows it
        self._bell: threading.Timer | None = None

    @property
    def name(self) -> str:
        return signal.Signals(self.signal).name if self.signal else "no signal"

    def on_signal(self, number: int, _frame: FrameType | None = None) -> None:
        if self._is_over:
            self.afterwards = self.afterwards or number
            return
        if number in PASSED_ON and self._is_command and self.job and isinstance(self.job, Interruptible):
            # In a thread, as a stop: the signal may have come in the middle of a request to the engine.
            threading.Thread(target=self._pass_on, args=(number,), daemon=True).start()
            return
        first = self.signal is None
        if not first and number != signal.SIGINT:
            # A terminal that is closed sends SIGHUP twice (bash, the kernel), and logind SIGTERM besides; `ngcdl stop`
            # may be typed twice. Only a person's second Ctrl-C asks for a kill.
            return
        self.signal = self.signal or number
        if self.job is None:
            raise Interrupted(number, self._forget) if first else Interrupted(number)
        if not first and self._alarm is None:
            self._alarm = threading.Timer(self._kill_seconds, self._wake)
            self._alarm.daemon = True
            self._alarm.start()
        # In a thread: a stop waits for the job, which may save a checkpoint, and the job's output must be read
        # meanwhile.
        threading.Thread(target=self._stop_as_asked if first else self._kill, daemon=True).start()

    def _forget(self) -> None:
        self.signal = None

    def stop_at(self, until: float | None) -> None:
        """Stop the job, which has started by now, at `until` (s since the epoch); never if None."""
        if until is not None:
            self._set_bell(max(until - time.time(), 0.0), self._time_is_up)

    def _set_bell(self, seconds: float, ring: Callable[[], None]) -> None:
        if self._bell:
            self._bell.cancel()
        self._bell = threading.Timer(seconds, ring)
        self._bell.daemon = True
        self._bell.start()

    def _time_is_up(self) -> None:
        if self._is_over or self.signal:
            return
        self.is_late = True
        self._say("the time is up: stopping")
        self._stop()

    def _stop_as_asked(self) -> None:
        self._say(OR_KILL if self.signal == signal.SIGINT else STOPPING)
        self._stop()

    def _stop(self) -> None:
        """Ask the job to stop, unless it has been asked already. If asking fails, say why, and ask again later."""
        if self._is_over or self._is_asked:
            return
        self._is_asked = True
        self._before_stop()
        self._is_asked = self._tried(self._ask)
        if not self._is_asked and not self._is_over:
            self._set_bell(self._retry_seconds, self._stop)

    def _ask(self, job: Job) -> None:
        if self._is_command and self.signal == signal.SIGINT and isinstance(job, Interruptible):
            job.interrupt(self._grace_seconds)
        else:
            job.stop(self._grace_seconds)

    def _pass_on(self, number: int) -> None:
        self._tried(lambda job: job.pass_on(number) if isinstance(job, Interruptible) else None)

    def _kill(self) -> None:
        self._tried(lambda job: job.kill())

    def _tried(self, ask: Callable[[Job], None]) -> bool:
        try:
            if self.job:
                ask(self.job)
        except NgcdlError as error:
            self._say(error.message)
            return False
        return True

    def _wake(self) -> None:
        """Make the main thread raise Unkillable, even in the middle of an engine call; see `looking` for why it may
        take more than one signal."""
        self._is_given_up = True
        while not (self._is_over or self._is_woken):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            time.sleep(_WAKE_SECONDS)

    def _on_alarm(self, number: int, _frame: FrameType | None) -> None:
        if self._is_given_up and not self._is_over and not self._is_woken:
            self._is_woken = True
            raise Unkillable(number, self._wake_again)

    def _wake_again(self) -> None:
        self._is_woken = False

    @contextlib.contextmanager
    def looking(self) -> Iterator[None]:
        """Interrupt the system calls of the main thread twice a second while the block lasts. Python handles a signal
        that comes in the moment before a call only once the call has ended, and an engine may never answer.
        https://docs.python.org/3/library/signal.html#execution-of-python-signal-handlers"""
        signal.setitimer(signal.ITIMER_REAL, _LOOK_SECONDS, _LOOK_SECONDS)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def ended(self) -> None:
        """Ignore signals from now on: the job is over or given up, and what is left to do, mainly closing its record,
        is quick."""
        self._is_over = True
        if self._bell:
            self._bell.cancel()
        if self._alarm:
            self._alarm.cancel()
            self._alarm.join()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals while the block lasts. On a terminal in raw mode Ctrl-C is a byte for the container, not a
        signal."""
        before: dict[int, Any] = {number: signal.signal(number, self.on_signal) for number in heard()}
        before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._on_alarm)
        try:
            yield
        finally:
            self.ended()
            for number, handler in before.items():
                signal.signal(number, handler)
