"""The name and format of each figure of a summary, and how a run ended: the words of `show`, the report and `runs
diff`, each of which chooses what it shows."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial

from ngcdl.figures import NOT_AVAILABLE, measured, milliseconds, number, operations, size
from ngcdl.record import ACTIVITY, GpuSummary, Run, Summary

Written = Callable[..., str]  # formats a known value, with `digits` if it allows a choice
_PERCENT: Written = partial(number, unit=" %")
_MHZ: Written = partial(number, digits=0, unit=" MHz")
_JOULES: Written = partial(measured, digits=0, unit=" J")
HELD_DOWN = "clocks held down"
_ACTIVITY = dict(
    zip(ACTIVITY, ("SMs active", "occupancy of the SMs", "tensor cores active", "DRAM bandwidth used"), strict=True)
)

_FIGURES: Mapping[str, tuple[str, Written]] = {
    "seconds": ("time from start to end", partial(measured, unit=" s")),
    "steps": ("steps", partial(number, digits=0)),
    "examples_per_second": ("examples/s (median)", measured),
    "seconds_per_batch": ("s/batch (median)", partial(measured, digits=4)),
    "loss_first": ("loss, first", partial(measured, digits=2)),
    "loss_last": ("loss, last", partial(measured, digits=2)),
    "precision_at_1": ("precision @ 1", partial(measured, digits=3)),
    "cpu_percent_mean": ("CPU use, all cores", _PERCENT),
    "container_cpu_percent_mean": ("CPU use of the run", lambda percent: number(percent / 100, 1, " cores")),
    "cpu_busiest_core_percent_mean": ("CPU use, busiest core", _PERCENT),
    "memory_bytes_max": ("peak memory", size),
    "memory_limit_bytes": ("usable memory", size),
    "memory_pressure_percent": ("memory pressure", _PERCENT),
    "memory_oom_kills": ("OOM kills", partial(number, digits=0)),
    "gpu_percent_mean": ("GPU use", _PERCENT),
    **{f"{name}_mean": (f"GPU: {said}", _PERCENT) for name, said in _ACTIVITY.items()},
    "gpu_memory_bytes_max": ("peak GPU memory", size),
    "sm_mhz_mean": ("GPU clock (mean)", _MHZ),
    "energy_joules": ("GPU energy", _JOULES),
    "examples_per_joule": ("examples/J", partial(measured, digits=2)),
    "teacher_seconds_per_batch": ("teacher's time per batch (median)", milliseconds),
    "latency_p50_seconds": ("batch latency, p50", milliseconds),
    "latency_p95_seconds": ("batch latency, p95", milliseconds),
    "flops_per_second": ("compute throughput (convolutions and matrix products)", partial(operations, share=None)),
    "peak_share": ("share of the card's peak", lambda share: _PERCENT(100 * share)),
}
_OF_A_CARD: Mapping[str, tuple[str, Written]] = {
    "gpu_percent_mean": ("use", _PERCENT),
    **{f"{name}_mean": (said, _PERCENT) for name, said in _ACTIVITY.items()},
    "memory_bytes_max": ("peak memory", size),
    "watts_mean": ("power (mean)", partial(number, unit=" W")),
    "joules": ("energy", _JOULES),
    "sm_mhz_mean": ("clock (mean)", _MHZ),
}
# Fields that only --json shows: how the figures were obtained, or the same figures in other units.
_NOT_SAID = frozenset({
    "samples", "gaps", "training_samples", "cores_busy", "threads_running_mean", "energy_seconds", "energy_gap_seconds",
})  # fmt: skip
_CARD = re.compile(r"gpus\.([\d:/]+)\.(.+)")
_HELD = "throttled_share."


def called(name: str) -> str:
    """Return the name of the summary's field `name`, as shown."""
    return _FIGURES[name][0]


def formatted(of: Summary | GpuSummary, name: str, **digits: int) -> str:
    """Format the field `name` of a summary, or of a card's; n/a if unknown."""
    value = getattr(of, name)
    _, how = (_OF_A_CARD if isinstance(of, GpuSummary) else _FIGURES)[name]
    return NOT_AVAILABLE if value is None else how(value, **digits)


def card_memory(run: Run, card: GpuSummary) -> str:
    """Say how much of a card's memory was in use at most, and how much it has, if that is known: 1.8 GiB of 3.9 GiB."""
    whole = next((gpu.memory_bytes for gpu in run.machine.gpus or () if gpu.uuid and gpu.uuid == card.uuid), None)
    most = formatted(card, "memory_bytes_max")
    return most if whole is None or card.memory_bytes_max is None else f"{most} of {size(whole)}"


def computed(summary: Summary) -> str:
    """Say how fast a run computed, and what share of the card's peak that is."""
    if summary.flops_per_second is None:
        return NOT_AVAILABLE
    return operations(summary.flops_per_second, summary.peak_share, summary.peak_source, summary.peak_recalled)


_OOM = "out of memory"


def outcome(run: Run, why: str | None = None) -> str:
    """Say in a few words how a run ended, with `why`: finished, 96 s.

    An OOM kill is left out if the run finished, because the run did without the killed process, or this was one of its
    own trials. The run's reason and its findings report the kill."""
    words = ["waiting" if run.is_waiting and not why else run.status]
    words += [f"exit code {run.exit_code}"] if run.exit_code else []
    is_told = run.status == "finished" or (why or "").startswith(_OOM)
    words += [_OOM] if run.oom_killed and not is_told else []
    words += [why] if why else []
    words += [duration(run.seconds)] if run.seconds is not None else []
    return ", ".join(words)


def duration(seconds: float | None) -> str:
    """Format seconds: 96.4 -> 96 s; 4000 -> 1 h 6 min."""
    if seconds is None:
        return NOT_AVAILABLE
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    return f"{minutes // 60} h {minutes % 60} min"


def written(name: str) -> tuple[str, Written] | None:
    """Return the name and the format of the summary's field `name`; None if it is not shown."""
    if name in _NOT_SAID:
        return None
    if card := _CARD.fullmatch(name):
        called, how = _held(card[2]) or _OF_A_CARD.get(card[2]) or (card[2], _plain)
        return f"GPU {card[1]} {called}", how
    return _held(name) or _FIGURES.get(name) or (name, _plain)


def _held(name: str) -> tuple[str, Written] | None:
    if not name.startswith(_HELD):
        return None
    return f"{HELD_DOWN} ({name.removeprefix(_HELD)})", lambda share: _PERCENT(100 * share)


def _plain(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1e6 else f"{value:,.6g}"
