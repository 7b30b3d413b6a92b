"""How long one is willing to wait for a download, and whether it is fast enough."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ngcdl.errors import BadOption

MINUTES = "NGCDL_DOWNLOAD_MINUTES"
_SHOW_SECONDS = 0.2
_RATE_SECONDS = 1.0  # a rate over less says nothing

Progress = Callable[[int, int | None, float | None], None]


@dataclass(frozen=True)
class Patience:
    """There is no limit on the whole: a download goes on as long as it is fast.

    The official host sends 55-85 kB/s since June 2026, 40 to 57 minutes for the whole:
    https://github.com/pytorch/vision/issues/9536
    """

    connect_seconds: float = 5
    stall_seconds: float = 20  # without a single byte
    probation_seconds: float = 15  # after so long, and every so long, the remaining time is estimated
    limit_seconds: float = 600  # that estimate may be
    tries: int = 4  # at one address, without progress in between
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def from_environment(patience: Patience, environ: Mapping[str, str]) -> Patience:
    """Take the limit from NGCDL_DOWNLOAD_MINUTES; `inf` waits for ever."""
    text = environ.get(MINUTES, "").strip()
    if not text:
        return patience
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not minutes > 0:
        raise BadOption(f"{MINUTES}={text} is not a number of minutes.", f"    {MINUTES}=60\n    {MINUTES}=inf")
    return replace(patience, limit_seconds=60 * minutes)


class Pace:
    """Watches one address: how much came, how fast, and how long the rest would take."""

    def __init__(self, total: int, have: int, patience: Patience, progress: Progress | None) -> None:
        self.total = total
        self.rate: float | None = None  # bytes/s
        self.begun = False  # something has come
        self._patience = patience
        self._progress = progress
        self._shown = -math.inf
        self._start, self._base = patience.now(), have

    def left_seconds(self, have: int) -> float:
        """Estimate the time the rest takes."""
        if self.rate is None:
            return 0.0
        return (self.total - have) / self.rate if self.rate > 0 else math.inf

    def too_slow(self, have: int) -> bool:
        """Take note of what has come so far, show it, and judge it when a window is over."""
        now = self._patience.now()
        self.begun = True
        if have < self._base:  # the server began again from zero
            self._start, self._base = now, have
        elapsed = now - self._start
        over = elapsed >= self._patience.probation_seconds
        if over or elapsed >= _RATE_SECONDS:
            self.rate = (have - self._base) / elapsed if elapsed > 0 else None
        self._show(now, have)
        if not over:
            return False
        self._start, self._base = now, have
        return self.left_seconds(have) > self._patience.limit_seconds

    def _show(self, now: float, have: int) -> None:
        if self._progress is not None and (now - self._shown >= _SHOW_SECONDS or have == self.total):
            self._shown = now
            self._progress(have, self.total, self.rate)
