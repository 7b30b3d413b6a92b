"""The figures of one run, from its events and samples. Pure: lines in, a Summary out; what was not measured is None."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from math import ceil

from ngcdl.record import Summary
from ngcdl.report.measured import achieved
from ngcdl.report.measured.attempts import examples_per_second, joined, sampled, stretch
from ngcdl.report.measured.cards import with_cards
from ngcdl.report.measured.lines import Line, mean, most, number, weighted
from ngcdl.report.measured.spread import middle
from ngcdl.report.measured.taken import Taken
from ngcdl.report.measured.told import Told

FEWEST_LATENCIES = 20  # the smallest number of latencies of which one exceeds the p95


def summary(told: Told, samples: Iterable[Line], cores: int | None = None, is_command: bool = False) -> Summary:
    """Sum up a run on a machine with `cores` logical processors.

    Means are over the samples between the first and the last logged step of each attempt; over all samples if there are
    none in between. In that case a training has no energy, because most of its time was start-up. `is_command`: if
    there are no steps, the samples of the whole run count as those of the training."""
    taken = Taken(samples)
    latencies, losses = sorted(told.latencies), told.numbers("loss")
    trained = told.attempts
    stretches = sampled(trained, taken)
    during = joined(stretches)
    start, has_steps = told.start, told.has_steps
    summed = Summary(
        steps=told.reached,
        examples_per_second=middle(told.numbers("examples_per_second")),
        seconds_per_batch=middle(told.numbers("seconds_per_batch")),
        loss_first=losses[0] if losses else None,
        loss_last=losses[-1] if losses and told.diverged is None else None,
        precision_at_1=mean(told.precisions),
        samples=taken.size or None,
        gaps=taken.gaps if taken.size else None,
        gap_reason=taken.gap_reason,
        training_samples=_counted(taken, during, has_steps, is_command),
        teacher_seconds_per_batch=middle(told.numbers("teacher_seconds_per_batch")),
        latency_p50_seconds=_rank(latencies, 0.5),
        latency_p95_seconds=_rank(latencies, 0.95),
    )
    is_timed = bool(during) or not (start or has_steps)
    measured = stretches or [stretch(taken, taken.rows)]
    weights = array("d", chain.from_iterable(one.weights for one in measured))
    rows = during or taken.rows
    summed = _with_memory(_with_cpu(summed, taken, rows, weights, cores), taken, rows)
    summed = with_cards(summed, taken, measured, start, is_timed, partial(examples_per_second, trained, stretches))
    return achieved.with_peak(summed, start) if start else summed


def _rank(values: Sequence[float], share: float) -> float | None:
    """Return the least of the sorted `values` that `share` of them do not exceed; None if too few for a p95."""
    return values[ceil(share * len(values)) - 1] if len(values) >= FEWEST_LATENCIES else None


def _counted(taken: Taken, during: Sequence[int], has_steps: bool, is_command: bool) -> int | None:
    if not taken.size or not (has_steps or is_command):
        return None
    return sum(taken.are_read(during)) if has_steps else taken.complete


def _with_cpu(summed: Summary, taken: Taken, rows: Sequence[int], weights: array[float], cores: int | None) -> Summary:
    """Add the use of the processors. A sample has it for the time since the one before, which is longer where the
    machine was so busy that samples are missing."""
    percent = weighted(taken.figures["host_cpu_percent"].at(rows), weights)
    return replace(
        summed,
        cpu_percent_mean=percent,
        container_cpu_percent_mean=weighted(taken.figures["container_cpu_percent"].at(rows), weights),
        cores_busy=None if percent is None or cores is None else number(percent / 100 * cores),
        cpu_busiest_core_percent_mean=weighted(taken.busiest.at(rows), weights),
        threads_running_mean=mean(taken.figures["threads_running"].floats(rows)),
    )


def _with_memory(summed: Summary, taken: Taken, rows: Sequence[int]) -> Summary:
    """Add the memory figures: the maximum is over the whole run, pressure over the time it trained (`rows`)."""
    used, limits = (taken.figures[name].floats(taken.rows) for name in ("memory_bytes", "memory_limit_bytes"))
    kills = taken.figures["memory_oom_kills"].floats(taken.rows)
    return replace(
        summed,
        memory_bytes_max=most(used) if len(used) > 1 else None,  # the first is of the run's first milliseconds
        memory_limit_bytes=int(min(limits)) if limits else None,
        memory_pressure_percent=max(taken.figures["memory_pressure_percent"].numbers(rows), default=None),
        # the cgroup may be older than the run; with several nodes, the one with the kill may not report in the end
        memory_oom_kills=int(max(kills) - kills[0]) if kills else None,
    )
