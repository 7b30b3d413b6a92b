"""Looks again and again which cards are free, for days if need be: a look that fails is not the last one.

Between two looks idle cards are kept awake where they would fall asleep: without persistence mode a card sleeps once
nobody is connected to the driver, and waking it takes 1 to 3 s at each look, beside runs that somebody times
(https://docs.nvidia.com/deploy/driver-persistence/overview.html). That needs an open connection, with which nobody can
unload the driver or reset a card. Who wants to do that has to stop the waiting runs in any case: they start on the
cards that were freed for it. But where all cards have persistence mode no connection is kept; neither is one while a
card is out of order, so that it can be reset, nor after a failed look: an old connection never sees the card, or the
driver, that comes back.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Mapping

from ngcdl.errors import NvmlUnavailable
from ngcdl.telemetry import driver, free_cards
from ngcdl.telemetry.free_cards import Look
from ngcdl.telemetry.gpu import Nvml, connect

GIVE_UP_SECONDS = 300.0  # of failures in a row; a reload of the driver takes less than a minute
_CLOSE_SECONDS = 3.0


class Looks:
    """The looks of one who waits. `close()` ends them."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._say, self._clock = say, clock
        self._told: set[str] = set()
        self._failing_since: float | None = None
        self._kept: Nvml | None = None
        self._may_keep, self._has_asked = True, False

    def look(
        self, among: Collection[str], held: Mapping[str, str], sleep: Callable[[float], None] = time.sleep
    ) -> Look:
        """Return what free_cards.look() returns; if that fails, say so once, and return that nothing is free. Raise
        NvmlUnavailable once it has failed for GIVE_UP_SECONDS."""
        try:
            self._keep_awake()
            found = free_cards.look(among, held, sleep)
        except NvmlUnavailable as error:
            return self._failed(error)
        self._failing_since, self._may_keep = None, not found.has_lost
        if found.has_lost:
            self.close()
        return found

    def close(self) -> None:
        """Let idle cards sleep."""
        kept, self._kept, self._has_asked = self._kept, None, False
        if kept:
            with contextlib.suppress(NvmlUnavailable):
                driver.within(kept.close, _CLOSE_SECONDS)

    def _keep_awake(self) -> None:
        if self._may_keep and not self._has_asked:
            self._kept, self._has_asked = driver.within(_awake), True

    def _failed(self, error: NvmlUnavailable) -> Look:
        self._may_keep = False
        self.close()
        now = self._clock()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= GIVE_UP_SECONDS:
            raise error
        if error.message not in self._told:
            self._told.add(error.message)
            self._say(f"{error.message} Looking again, for {GIVE_UP_SECONDS / 60:.0f} min")
        return Look((), "the driver gives no answer")


def _awake() -> Nvml | None:
    """Return a connection that keeps this host's cards awake, None if they need none. Raise NvmlUnavailable."""
    with contextlib.ExitStack() as stack:
        nvml = connect()
        stack.callback(nvml.close)
        if any(card.persistence is False for card in nvml.inventory()):
            stack.pop_all()
            return nvml
    return None
