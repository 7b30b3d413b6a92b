"""GPU readings that can't hold anyone up: they are made in a thread of their own, and only waited for so long."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ngcdl.errors import NvmlUnavailable
from ngcdl.telemetry.sample import GpuSample

Cards = tuple[GpuSample, ...]


class Gap(Exception):
    """There is no reading now; the text says why."""


class GpuReader:
    """Reads GPUs by what `connect` gives, which opens the driver. A call that never returns is left behind with its
    thread, and with the process: sampling.py."""

    def __init__(self, connect: Callable[[], Callable[[], Cards]], patience_seconds: float = 0.5) -> None:
        self._connect = connect
        self._patience = patience_seconds
        self._thread: threading.Thread | None = None
        self._asked: float | None = None  # since when an answer is due
        self._answer: Cards | Gap | None = None  # None: the driver is open
        self._question, self._answered = threading.Lock(), threading.Lock()  # held: there is none
        self._question.acquire()
        self._answered.acquire()

    def start(self) -> None:
        """Open the driver; harmless twice."""
        if self._thread is None:
            self._asked = time.monotonic()
            self._thread = threading.Thread(target=self._run, name="ngcdl-gpus", daemon=True)
            self._thread.start()

    def ready(self, seconds: float) -> bool:
        """Wait until the driver is open, but not for ever."""
        self.start()
        try:
            return self._asked is None or self._wait(seconds) is None
        except Gap:
            return False

    def read(self) -> Cards:
        """Read the cards. Raises Gap where no answer comes within the patience, or none will."""
        self.start()
        answer = None if self._asked is None else self._late(self._asked)
        if answer is None:
            self._asked = time.monotonic()
            self._question.release()
            answer = self._wait(self._patience)
        if answer is None or isinstance(answer, Gap):
            raise Gap(str(answer))
        return answer

    def _late(self, asked: float) -> Cards | Gap | None:
        """Give what was asked for in an earlier read(), unless it is older than two patiences. Raises Gap."""
        is_fresh = asked >= time.monotonic() - 2 * self._patience
        answer = self._wait(self._patience if is_fresh else 0)
        return answer if is_fresh else None

    def _wait(self, seconds: float) -> Cards | Gap | None:
        """Wait for the answer that is due. Raises Gap, and leaves it due, where it does not come."""
        if not self._answered.acquire(timeout=seconds):
            raise Gap(f"NVML gave no answer for {time.monotonic() - (self._asked or 0):.1f} s")
        self._asked = None
        return self._answer

    def _run(self) -> None:
        read: Callable[[], Cards] | None = None
        while True:
            try:
                if read is None:
                    read, self._answer = self._connect(), None
                else:
                    self._answer = read()
            except NvmlUnavailable as error:
                self._answer = Gap(error.message)
            except Exception as error:  # the others' readings go on
                self._answer = Gap(f"{type(error).__name__}: {error}")
            self._answered.release()
            self._question.acquire()
