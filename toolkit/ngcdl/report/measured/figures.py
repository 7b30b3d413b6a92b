"""The figures of one run, from its events and samples. Pure: lines in, a Summary out; what was not measured is None."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from math import ceil
from statistics import median

from ngcdl.processes import RUN_UNREAD
from ngcdl.record import Summary
from ngcdl.report.measured import achieved
from ngcdl.report.measured.attempts import examples_per_second, sampled, stretch
from ngcdl.report.measured.cards import cards_in, with_cards
from ngcdl.report.measured.lines import Line, mean, most, number, numbers, numbers_in, weighted
from ngcdl.report.measured.told import Told

FEWEST_LATENCIES = 20  # the smallest number of latencies of which one exceeds the p95


def summary(told: Told, samples: Iterable[Line], cores: int | None = None, is_command: bool = False) -> Summary:
    """Sum up a run on a machine with `cores` logical processors.

    Means are over the samples between the first and the last logged step of each attempt; over all samples if there are
    none in between. In that case a training has no energy, because most of its time was start-up. `is_command`: if
    there are no steps, the samples of the whole run count as those of the training."""
    samples = list(samples)
    latencies, losses = sorted(told.latencies), told.numbers("loss")
    trained = told.attempts
    stretches = sampled(trained, samples)
    during = [sample for one in stretches for sample in one.samples]
    start, has_steps = told.start, told.has_steps
    summed = Summary(
        steps=told.reached,
        examples_per_second=_median(told.numbers("examples_per_second")),
        seconds_per_batch=_median(told.numbers("seconds_per_batch")),
        loss_first=losses[0] if losses else None,
        loss_last=losses[-1] if losses and told.diverged is None else None,
        precision_at_1=mean(told.precisions),
        samples=len(samples) or None,
        gaps=_gaps(samples) if samples else None,
        training_samples=_counted(during, samples, has_steps, is_command),
        teacher_seconds_per_batch=_median(told.numbers("teacher_seconds_per_batch")),
        latency_p50_seconds=_rank(latencies, 0.5),
        latency_p95_seconds=_rank(latencies, 0.95),
    )
    is_timed = bool(during) or not (start or has_steps)
    measured = stretches or [stretch(samples)]
    weights = [weight for one in measured for weight in one.weights]
    summed = _with_memory(_with_cpu(summed, during or samples, weights, cores), during or samples, samples)
    summed = with_cards(summed, measured, start, is_timed, partial(examples_per_second, trained, stretches))
    return achieved.with_peak(summed, start) if start else summed


def _gaps(samples: Sequence[Line]) -> int:
    """Count the samples with a gap, without the last ones if they came only after the run's end."""
    gaps = [sample.get("gap") for sample in samples]
    ended = len(list(takewhile(lambda gap: gap == RUN_UNREAD, reversed(gaps))))
    after = ended if ended < len(gaps) else min(ended, 1)  # a run that could never be read has more than one
    return sum(1 for gap in gaps[: len(gaps) - after] if gap)


def _median(values: Sequence[float]) -> float | None:
    return median(values) if values else None


def _rank(values: Sequence[float], share: float) -> float | None:
    """Return the least of the sorted `values` that `share` of them do not exceed; None if too few for a p95."""
    return values[ceil(share * len(values)) - 1] if len(values) >= FEWEST_LATENCIES else None


def _counted(during: list[Line], samples: list[Line], has_steps: bool, is_command: bool) -> int | None:
    if not samples or not (has_steps or is_command):
        return None
    return sum("host_cpu_percent" in sample for sample in during) if has_steps else _complete(samples)


def _complete(samples: Iterable[Line]) -> int:
    """Count the samples in which the host was read, and every card whose use was read at all."""
    read = [
        ({str(card.get("uuid") or card.get("index")) for card in cards_in(one) if _has(card, "gpu_percent")}, one)
        for one in samples
    ]
    ever = frozenset().union(*(cards for cards, _ in read))
    return sum(cards == ever and _has(one, "host_cpu_percent") for cards, one in read)


def _has(line: Line, key: str) -> bool:
    return number(line.get(key)) is not None


def _with_cpu(summed: Summary, samples: Sequence[Line], weights: Sequence[float], cores: int | None) -> Summary:
    """Add the use of the processors. A sample has it for the time since the one before, which is longer where the
    machine was so busy that samples are missing."""
    percent = weighted((number(sample.get("host_cpu_percent")) for sample in samples), weights)
    own = weighted((number(sample.get("container_cpu_percent")) for sample in samples), weights)
    busiest = (max(numbers_in(sample.get("cpu_percents")), default=None) for sample in samples)
    return replace(
        summed,
        cpu_percent_mean=percent,
        container_cpu_percent_mean=own,
        cores_busy=None if percent is None or cores is None else number(percent / 100 * cores),
        cpu_busiest_core_percent_mean=weighted(busiest, weights),
        threads_running_mean=mean(numbers(samples, "threads_running")),
    )


def _with_memory(summed: Summary, measured: Sequence[Line], samples: Sequence[Line]) -> Summary:
    """Add the memory figures: the maximum is over the whole run, pressure over the time it trained."""
    used = numbers(samples, "memory_bytes")
    limits, kills = numbers(samples, "memory_limit_bytes"), numbers(samples, "memory_oom_kills")
    return replace(
        summed,
        memory_bytes_max=most(used) if len(used) > 1 else None,  # the first is of the run's first milliseconds
        memory_limit_bytes=int(min(limits)) if limits else None,
        memory_pressure_percent=max(numbers(measured, "memory_pressure_percent"), default=None),
        # the cgroup may be older than the run; with several nodes, the one with the kill may not report in the end
        memory_oom_kills=int(max(kills) - kills[0]) if kills else None,
    )
