"""How long to wait for a download, and whether it is fast enough."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from ngcdl.errors import BadOption
from ngcdl.frozen import dataclass

MINUTES = "NGCDL_DOWNLOAD_MINUTES"
_SHOW_SECONDS = 0.2
_RATE_SECONDS = 1.0  # a rate over less time means nothing

Progress = Callable[[int, int | None, float | None], None]


@dataclass(frozen=True)
class Patience:
    """How long to wait. The whole download has no time limit: it continues as long as it is fast enough.

    Since June 2026 the official host sends 55-85 kB/s, 40 to 57 minutes for the whole archive:
    https://github.com/pytorch/vision/issues/9536
    """

    connect_seconds: float = 5
    # Two dead name servers cost 5 s each: https://man7.org/linux/man-pages/man5/resolv.conf.5.html
    lookup_seconds: float = 12
    stall_seconds: float = 20  # without a single byte
    probation_seconds: float = 15  # the remaining time is estimated at this interval
    limit_seconds: float = 600  # the most that this estimate may be
    tries: int = 4  # per address, without progress in between
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


def from_environment(patience: Patience, environ: Mapping[str, str]) -> Patience:
    """Read the limit from NGCDL_DOWNLOAD_MINUTES; `inf` waits forever."""
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
    """Watches one address: how much has arrived, how fast, and how long the rest would take."""

    def __init__(self, total: int, have: int, patience: Patience, progress: Progress | None) -> None:
        self.total = total
        self.rate: float | None = None  # bytes/s
        self.begun = False  # something has arrived
        self._patience = patience
        self._progress = progress
        self._shown = -math.inf
        self._start, self._base = patience.now(), have

    def left_seconds(self, have: int) -> float:
        """Estimate how long the rest will take."""
        if self.rate is None:
            return 0.0
        return (self.total - have) / self.rate if self.rate > 0 else math.inf

    def too_slow(self, have: int) -> bool:
        """Record and show what has arrived so far. Return whether that is too slow, judged every probation_seconds."""
        now = self._patience.now()
        self.begun = True
        if have < self._base:  # the server started over
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
