"""The largest plausible values of NVML. Larger values are its "no value" (0xFFFFFFFF, 2**64 - 1), or garbage."""

from __future__ import annotations

# Above what any card has.
BYTES, MILLIWATTS, MILLIJOULES, MHZ, CELSIUS, PERCENT, REASONS = 1 << 50, 10**8, 1 << 60, 10**5, 150, 100, (1 << 32) - 1


def within(value: int | None, most: int) -> int | None:
    """Return `value` if it is in 0..`most`, else None."""
    return value if value is not None and 0 <= value <= most else None


def thousandths(value: int | None) -> float | None:
    """Convert mW to W, mJ to J."""
    return None if value is None else value / 1000
