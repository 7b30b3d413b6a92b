"""Which of NVML's values are plausible? Larger ones are its "no value" (0xFFFFFFFF, 2**64 - 1), or garbage."""

from __future__ import annotations

# Above what any card has.
BYTES, MILLIWATTS, MILLIJOULES, MHZ, CELSIUS, PERCENT, REASONS = 1 << 50, 10**8, 1 << 60, 10**5, 150, 100, (1 << 32) - 1


class Bounds:
    """Passes plausible values through; `dropped` counts the others."""

    def __init__(self) -> None:
        self.dropped = 0

    def within(self, value: int | None, most: int) -> int | None:
        """Return `value` if it is in 0..`most`, else None."""
        if value is None or 0 <= value <= most:
            return value
        self.dropped += 1
        return None

    def thousandths(self, value: int | None, most: int) -> float | None:
        """Convert mW to W, mJ to J."""
        return None if (known := self.within(value, most)) is None else known / 1000
