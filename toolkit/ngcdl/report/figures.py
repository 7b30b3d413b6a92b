"""Figures of one run from its events and samples. Pure: lines in, a Summary out; what was not measured is None."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from ngcdl.record import GpuSummary, Summary

Line = Mapping[str, Any]


def summary(events: Iterable[Line], samples: Iterable[Line]) -> Summary:
    """Sum up a run. Means are over the samples between the first and the last logged step, where there are any."""
    events, samples = list(events), list(samples)
    counted = [event for event in events if isinstance(number(event.get("step")), int)]
    # A resumed training tells again the steps after its checkpoint: the later telling counts.
    steps = list({event["step"]: event for event in counted if event.get("event") == "step"}.values())
    # The trainer leaves the first of these null: the framework's start hides in it.
    rates, batches = _numbers(steps, "examples_per_second"), _numbers(steps, "seconds_per_batch")
    losses = _numbers(steps, "loss")
    reached = [event["step"] for event in counted if event.get("event") != "error"]
    evaluations = _numbers([event for event in events if event.get("event") == "eval"], "precision_at_1")
    during = _while_training(steps, samples)
    gpus = _gpus(during)
    return Summary(
        steps=max(reached) if reached else None,
        examples_per_second=median(rates) if rates else None,
        seconds_per_batch=median(batches) if batches else None,
        loss_first=losses[0] if losses else None,
        loss_last=losses[-1] if losses else None,
        precision_at_1=evaluations[-1] if evaluations else None,
        cpu_percent_mean=_mean(_numbers(during, "host_cpu_percent")),
        container_cpu_percent_mean=_mean(_numbers(during, "container_cpu_percent")),
        memory_bytes_max=_most(_numbers(samples, "memory_bytes")),
        gpu_percent_mean=_mean([gpu.gpu_percent_mean for gpu in gpus if gpu.gpu_percent_mean is not None]),
        gpu_memory_bytes_max=_most([gpu.memory_bytes_max for gpu in gpus if gpu.memory_bytes_max is not None]),
        gpus=gpus,
        samples=len(samples) or None,
        gaps=sum(1 for sample in samples if sample.get("gap")) if samples else None,
    )


def _while_training(steps: Sequence[Line], samples: list[Line]) -> list[Line]:
    """Leave out start-up, evaluation and clean-up; a run without steps (somebody's own command) counts whole."""
    times = _numbers(steps, "t")
    if len(times) < 2:
        return samples
    inside = [sample for sample in samples if (t := number(sample.get("t"))) is not None and times[0] <= t <= times[-1]]
    return inside or samples


def _gpus(samples: Iterable[Line]) -> tuple[GpuSummary, ...]:
    by_card: dict[str, list[Line]] = {}
    for sample in samples:
        gpus = sample.get("gpus")
        for gpu in gpus if isinstance(gpus, list) else ():
            if not isinstance(gpu, Mapping):
                continue
            by_card.setdefault(str(gpu.get("uuid") or gpu.get("index")), []).append(gpu)
    return tuple(
        GpuSummary(
            index=_most(_numbers(readings[:1], "index")),
            uuid=text(readings[0].get("uuid")),
            name=text(readings[0].get("name")),
            gpu_percent_mean=_mean(_numbers(readings, "gpu_percent")),
            memory_bytes_max=_most(_numbers(readings, "memory_used_bytes")),
            watts_mean=_mean(_numbers(readings, "watts")),
        )
        for readings in by_card.values()
    )


def _numbers(lines: Iterable[Line], key: str) -> list[float]:
    return [value for line in lines if (value := number(line.get(key))) is not None]


def number(value: object) -> float | None:
    """Give `value` if it is a number that can be added up and recorded: no NaN, no infinity, nothing beyond floats."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -1e300 < value < 1e300 else None


def text(value: object) -> str | None:
    """Give `value` if it is text."""
    return value if isinstance(value, str) else None


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _most(values: Sequence[float]) -> int | None:
    return int(max(values)) if values else None
