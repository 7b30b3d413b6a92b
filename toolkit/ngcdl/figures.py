"""How figures are written for people: with their unit, with digits that mean something, and n/a where there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

NOT_AVAILABLE = "n/a"


def size(value: float | None) -> str:
    """1536 -> 1.5 KiB; None -> n/a."""
    if value is None:
        return NOT_AVAILABLE
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def operations(flops: float, share: float | None, source: str | None = None, recalled: bool | None = None) -> str:
    """2.4e12, 0.31 -> 2.40 TFLOP/s, 31 % of the card's peak [the source of that peak]."""
    size, unit = (1e12, "T") if flops >= 1e12 else (1e9, "G")
    text = f"{flops / size:.2f} {unit}FLOP/s"
    if share is None:
        return text
    mark = "from memory: no source" if recalled else source
    percent = measured(100 * share, 0)  # a small network on a large card reaches 0.15 %, which is not 0
    return f"{text}, {percent} % of the card's peak{f' [{mark}]' if mark else ''}"


def activity(of: Mapping[str, Any], suffix: str = "") -> str:
    """Say how much of a card worked, from its fields, each with the `suffix`: SMs active 12 %, occupancy 5.0 %, ...

    "" if none of them is known."""
    percents = {said: of[name + suffix] for name, said in _ACTIVITY.items()}
    if all(percent is None for percent in percents.values()):
        return ""
    return ", ".join(f"{said} {measured(percent, 0, ' %')}" for said, percent in percents.items())


_ACTIVITY = {
    "sm_active_percent": "SMs active",
    "sm_occupancy_percent": "occupancy",
    "tensor_active_percent": "tensor cores",
    "dram_bandwidth_percent": "DRAM",
}


def number(value: float | None, digits: int = 1, unit: str = "") -> str:
    """Format a figure with its unit; None -> n/a."""
    return NOT_AVAILABLE if value is None else f"{value:,.{digits}f}{unit}"


def measured(value: float | None, digits: int = 1, unit: str = "") -> str:
    """Format a figure as `number` does, but with at least two significant digits: 0.93 and not 0.9; 0.0 only for 0."""
    if value and math.isfinite(value):
        digits = max(digits, 1 - math.floor(math.log10(abs(value))))
    return number(value, digits, unit)


def milliseconds(seconds: float | None) -> str:
    """0.0412 -> 41.2 ms; None -> n/a."""
    return measured(None if seconds is None else 1e3 * seconds, 1, " ms")
