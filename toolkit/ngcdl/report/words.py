"""What a figure of a summary is called, and how it is written: the words and units of `show` and of the report."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from ngcdl.console import measured, milliseconds, number, operations, size

Written = Callable[[float], str]
_PERCENT: Written = partial(number, unit=" %")
_MHZ: Written = partial(number, digits=0, unit=" MHz")
_JOULES: Written = partial(number, digits=0, unit=" J")

_FIGURES: Mapping[str, tuple[str, Written]] = {
    "steps": ("steps", partial(number, digits=0)),
    "examples_per_second": ("examples/s (median)", measured),
    "seconds_per_batch": ("s/batch (median)", partial(measured, digits=4)),
    "loss_first": ("loss, first", partial(number, digits=2)),
    "loss_last": ("loss, last", partial(number, digits=2)),
    "precision_at_1": ("precision @ 1", partial(number, digits=3)),
    "cpu_percent_mean": ("CPU use, all cores", _PERCENT),
    "container_cpu_percent_mean": ("CPU use of the run", lambda percent: number(percent / 100, 1, " cores")),
    "cpu_busiest_core_percent_mean": ("CPU use, busiest core", _PERCENT),
    "memory_bytes_max": ("memory at most", size),
    "memory_limit_bytes": ("memory limit", size),
    "memory_pressure_percent": ("memory pressure", _PERCENT),
    "memory_oom_kills": ("killed for memory", partial(number, digits=0)),
    "gpu_percent_mean": ("GPU use", _PERCENT),
    "gpu_memory_bytes_max": ("GPU memory at most", size),
    "sm_mhz_mean": ("GPU clock (mean)", _MHZ),
    "energy_joules": ("GPU energy", _JOULES),
    "examples_per_joule": ("examples/J", partial(measured, digits=2)),
    "teacher_seconds_per_batch": ("teacher's time a batch", milliseconds),
    "latency_p50_seconds": ("latency, p50", milliseconds),
    "latency_p95_seconds": ("latency, p95", milliseconds),
    "flops_per_second": ("computed", partial(operations, share=None)),
    "peak_share": ("of the card's peak", lambda share: _PERCENT(100 * share)),
}
_OF_A_CARD: Mapping[str, tuple[str, Written]] = {
    "gpu_percent_mean": ("use", _PERCENT),
    "memory_bytes_max": ("memory at most", size),
    "watts_mean": ("power (mean)", partial(number, unit=" W")),
    "joules": ("energy", _JOULES),
    "sm_mhz_mean": ("clock (mean)", _MHZ),
}
# How the figures came to be, or the same in other words: whoever wants them has --json.
_NOT_SAID = frozenset({
    "samples", "gaps", "training_samples", "cores_busy", "threads_running_mean", "energy_seconds", "energy_gap_seconds",
})  # fmt: skip
_CARD = re.compile(r"gpus\.(\d+)\.(.+)")
_HELD = "throttled_share."


def written(name: str) -> tuple[str, Written] | None:
    """Give what the field `name` of a summary is called and how its value is written; None where it is not said."""
    if name in _NOT_SAID:
        return None
    if card := _CARD.fullmatch(name):
        called, how = _held(card[2]) or _OF_A_CARD.get(card[2]) or (card[2], _plain)
        return f"GPU {card[1]} {called}", how
    return _held(name) or _FIGURES.get(name) or (name, _plain)


def _held(name: str) -> tuple[str, Written] | None:
    if not name.startswith(_HELD):
        return None
    return f"clocks held down ({name.removeprefix(_HELD)})", lambda share: _PERCENT(100 * share)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1e6 else f"{value:,.6g}"
