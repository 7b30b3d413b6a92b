"""What a run's events and samples tell is known from one look at each, and takes little memory."""

from __future__ import annotations

import math
import random
import tracemalloc
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ngcdl.report.measured.taken import Taken
from ngcdl.report.measured.told import Told

T = TypeVar("T")


def event(noise: random.Random) -> dict[str, Any]:
    kind = noise.choice([*["step"] * 12, "eval", "finish", "raced", "start"])
    it: dict[str, Any] = {"event": kind, "step": noise.randrange(9)}
    if kind == "step":
        it |= {
            "loss": noise.choice([None, 1, 2.5, 3.0, math.nan]),
            "latency_seconds": [noise.random()] * noise.randrange(3),
        }
    if kind in ("start", "raced"):
        del it["step"]
        it["resumed_from_step"] = noise.choice([None, 0, 3, 6, 6, 8])
    return it


def test_what_counts_is_the_last_report_of_each_step_that_no_attempt_redid() -> None:
    noise = random.Random(1)
    for _ in range(50):
        is_told([event(noise) for _ in range(60)])


def is_told(events: list[dict[str, Any]]) -> None:
    standing: list[dict[str, Any]] = []
    for it in events:
        if it["event"] == "start":
            to = -1 if it["resumed_from_step"] is None else it["resumed_from_step"]
            kept = [one for one in standing if one.get("step", 0) < to + (one["event"] != "step")]
            standing = [] if to < 0 else kept
        standing.append(it)
    steps: dict[Any, dict[str, Any]] = {}
    done: dict[int, int] = {}
    trainings = 0
    for it in standing:
        trainings += it["event"] == "raced"
        if it["event"] == "step":
            steps[trainings, it["step"]] = it
        if "step" in it:
            training = 0 if it["event"] == "finish" else trainings
            done[training] = max(it["step"], done.get(training, 0))
    told = Told(events)
    losses = [step["loss"] for step in steps.values() if step["loss"] is not None and abs(step["loss"]) < 1e300]
    assert [*map(repr, told.numbers("loss"))] == [*map(repr, losses)], "integers, too"
    assert [*told.latencies] == [one for step in steps.values() for one in step["latency_seconds"]]
    assert told.reached == (sum(done.values()) if done else None)


def test_neither_steps_nor_foreign_lines_are_kept_as_they_came() -> None:
    figures = {"loss": 4.0, "examples_per_second": 64.0, "seconds_per_batch": 2.0, "input_seconds_per_batch": 1.0}
    steps = ({"event": "step", "step": at, "t": 1.0 * at, **figures, "more": str(at)} for at in range(5_000))
    foreign = ({"step": at, "more": str(at)} for at in range(5_000))
    for events in (steps, foreign):
        told, peak_bytes = measured(Told, events)
        assert told.reached == 4_999
        assert peak_bytes < 100 * 5_000


def test_samples_are_not_kept_as_they_came_but_integers_stay_integers() -> None:
    card = {"uuid": "GPU-1", "gpu_percent": 99, "watts": 300.0, "throttle_reasons": ["sw_power_cap"]}
    samples = ({"t": at, "memory_bytes": at, "cpu_percents": [1.0] * 64, "gpus": [{**card}]} for at in range(2_000))
    taken, peak_bytes = measured(Taken, samples)
    assert repr(taken.figures["memory_bytes"].at([3, 0])) == "[3, 0]"
    assert peak_bytes < 400 * 2_000


def measured(read: Callable[[Iterable[Any]], T], lines: Iterable[Any]) -> tuple[T, int]:
    """Return what is read of lines, and how much memory that took at most."""
    tracemalloc.start()
    try:
        return read(lines), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
