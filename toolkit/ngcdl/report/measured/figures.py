"""The figures of one run, from its events and samples. Pure: lines in, a Summary out; what was not measured is None."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise, takewhile
from math import ceil, isfinite
from statistics import median

from ngcdl.processes import RUN_UNREAD
from ngcdl.record import Summary
from ngcdl.report.measured import achieved
from ngcdl.report.measured.attempts import attempts, examples_per_second, sampled, stretch
from ngcdl.report.measured.cards import cards_in, with_cards
from ngcdl.report.measured.lines import Line, last_start, mean, most, number, numbers, numbers_in, weighted

FEWEST_LATENCIES = 20  # the smallest number of latencies of which one exceeds the p95


def summary(
    events: Iterable[Line], samples: Iterable[Line], cores: int | None = None, is_command: bool = False
) -> Summary:
    """Sum up a run on a machine with `cores` logical processors.

    Means are over the samples between the first and the last logged step of each attempt; over all samples if there are
    none in between. In that case a training has no energy, because most of its time was start-up. `is_command`: if
    there are no steps, the samples of the whole run count as those of the training."""
    told, samples = list(events), list(samples)
    events = _standing(told)
    steps = _steps(events)
    # For the first step the trainer leaves these null, because that step includes the framework's start-up.
    rates, batches = numbers(steps, "examples_per_second"), numbers(steps, "seconds_per_batch")
    losses = numbers(steps, "loss")
    taught = numbers([step for step in steps if step.get("seconds_per_batch")], "teacher_seconds_per_batch")
    latencies = sorted(seconds for step in steps for seconds in numbers_in(step.get("latency_seconds")))
    evaluations = numbers([event for event in events if event.get("event") == "eval"], "precision_at_1")
    raced = numbers([event for event in events if event.get("event") == "raced"], "precision_at_1")
    trained = attempts(told)
    stretches = sampled(trained, samples)
    during = [sample for one in stretches for sample in one.samples]
    start = last_start(events)
    summed = Summary(
        steps=_reached(events),
        examples_per_second=median(rates) if rates else None,
        seconds_per_batch=median(batches) if batches else None,
        loss_first=losses[0] if losses else None,
        loss_last=losses[-1] if losses and _diverged(steps) is None else None,
        precision_at_1=mean(raced or evaluations[-1:]),
        samples=len(samples) or None,
        gaps=_gaps(samples) if samples else None,
        training_samples=_counted(during, samples, bool(steps), is_command),
        teacher_seconds_per_batch=median(taught) if taught else None,
        latency_p50_seconds=_rank(latencies, 0.5),
        latency_p95_seconds=_rank(latencies, 0.95),
    )
    is_timed = bool(during) or not (start or steps)
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


def diverged(events: Iterable[Line]) -> int | None:
    """Return the step from which on no loss was finite; None if the last loss was."""
    return _diverged(_steps(_standing(list(events))))


def _diverged(steps: Iterable[Line]) -> int | None:
    since = None
    for step in steps:
        loss = step.get("loss")
        if isinstance(loss, float) and not isfinite(loss):
            since = step["step"] if since is None else since
        elif loss is not None:
            since = None
    return since


def _standing(events: list[Line]) -> list[Line]:
    """Leave out the events that a later attempt redid: each attempt continues from a checkpoint, or begins anew without
    one."""
    starts = [at for at, event in enumerate(events) if event.get("event") == "start"]
    kept = events[: starts[0]] if starts else events
    for at, to in pairwise([*starts, len(events)]):
        resumed = number(events[at].get("resumed_from_step"))
        kept = [] if resumed is None else [one for one in kept if _is_before(one, resumed)]
        kept += events[at:to]
    return kept


def _is_before(event: Line, step: float) -> bool:
    """Return whether `event` precedes `step`. A step event has its step's number, from 0; other events have the number
    of steps done."""
    at = number(event.get("step"))
    return at is None or (at < step if event.get("event") == "step" else at <= step)


def _steps(events: Iterable[Line]) -> list[Line]:
    """Return each step's event, the later one if there are two. Steps after a `raced` event are another training's."""
    found: dict[tuple[int, int], Line] = {}
    trainings = 0
    for event in events:
        trainings += event.get("event") == "raced"
        if event.get("event") == "step" and isinstance(number(event.get("step")), int):
            found[trainings, event["step"]] = event
    return list(found.values())


def _reached(events: Iterable[Line]) -> int | None:
    """Return how many steps were done, summed over several trainings from scratch."""
    most: dict[int, int] = {}
    trainings = 0
    for event in events:
        kind, step = event.get("event"), event.get("step")
        trainings += kind == "raced"
        if isinstance(step, int) and number(step) is not None and kind != "error":
            training = 0 if kind == "finish" else trainings  # it comes last, and has the steps of a single training
            most[training] = max(most.get(training, step), step)
    return sum(most.values()) if most else None


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
