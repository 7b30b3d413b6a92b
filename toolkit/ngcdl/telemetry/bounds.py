"""Which of NVML's values can be true. What lies above is its "no value" (0xFFFFFFFF, 2**64 - 1), or nonsense."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

# More than any card has.
BYTES, MILLIWATTS, MILLIJOULES, MHZ, CELSIUS, PERCENT, REASONS = 1 << 50, 10**8, 1 << 60, 10**5, 150, 100, (1 << 32) - 1


class Bounds:
    """Lets values through that can be true; `dropped` counts the others."""

    def __init__(self) -> None:
        self.dropped = 0

    def within(self, value: int | None, most: int) -> int | None:
        """Give `value` if it is 0..`most`."""
        if value is None or 0 <= value <= most:
            return value
        self.dropped += 1
        log.debug("NVML gave %s where at most %s is possible", value, most)
        return None

    def thousandths(self, value: int | None, most: int) -> float | None:
        """Give W of mW, J of mJ."""
        return None if (known := self.within(value, most)) is None else known / 1000
