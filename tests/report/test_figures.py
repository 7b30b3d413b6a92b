"""Figures from lines: medians after warm-up, means while it trained, None for what was not measured."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ngcdl.record import Run, Summary
from ngcdl.report.figures import summary

LEAF = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=3))
JSON = st.recursive(
    LEAF, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3))
)
GPU = st.dictionaries(st.sampled_from(["uuid", "index", "name", "gpu_percent", "memory_used_bytes", "watts"]), JSON)
EVENT = st.fixed_dictionaries(
    {"event": st.sampled_from(["start", "step", "eval", "finish", "error", "new"])},
    optional=dict.fromkeys(("t", "step", "loss", "examples_per_second", "precision_at_1"), JSON),
)
SAMPLE = st.fixed_dictionaries(
    {},
    optional={"gpus": st.one_of(JSON, st.lists(st.one_of(GPU, JSON), max_size=2))}
    | dict.fromkeys(("t", "host_cpu_percent", "memory_bytes", "gap"), JSON),
)


def step(number: int, t: float, loss: float | None = 4.0, rate: float | None = None) -> dict[str, Any]:
    seconds = None if rate is None else 128 / rate
    return {
        "event": "step", "step": number, "t": t, "loss": loss, "examples_per_second": rate, "seconds_per_batch": seconds
    }  # fmt: skip


def sample(t: float, cpu: float | None = None, **more: Any) -> dict[str, Any]:
    return {"t": t, "host_cpu_percent": cpu} | more


def card(uuid: str | None, percent: float | None = None, used: int | None = None) -> dict[str, Any]:
    return {"uuid": uuid, "name": "a card", "gpu_percent": percent, "memory_used_bytes": used}


def test_nothing_measured_is_unknown_and_never_zero() -> None:
    assert summary([], []) == Summary()


def test_rates_are_medians_without_the_start_up() -> None:
    found = summary([step(0, 0), step(10, 1, rate=64), step(20, 2, rate=128), step(30, 3, rate=256)], [])
    assert found.examples_per_second == 128
    assert found.seconds_per_batch == 1.0


def test_of_a_step_that_a_resumed_training_tells_again_the_later_counts() -> None:
    told = [step(0, 0), step(10, 1, rate=10), step(20, 2, rate=10), step(10, 3), step(20, 4, rate=70)]
    assert summary(told, []).examples_per_second == 70


def test_one_rate_alone_counts() -> None:
    assert summary([step(0, 0), step(10, 1, rate=64)], []).examples_per_second == 64


def test_the_steps_are_the_most_that_were_done_and_an_error_counts_none() -> None:
    events = [step(20, 1), {"event": "checkpoint", "step": 21}, {"event": "error", "step": 30}]
    assert summary(events, []).steps == 21


def test_losses_are_the_first_and_the_last_that_were_numbers() -> None:
    found = summary([step(0, 0, 4.68), step(10, 1, 4.0), step(20, 2, None)], [])
    assert (found.loss_first, found.loss_last) == (4.68, 4.0)


def test_precision_is_the_last_evaluation_s() -> None:
    events = [{"event": "eval", "step": 1, "precision_at_1": value} for value in (0.1, 0.2)]
    assert summary(events, []).precision_at_1 == 0.2


def test_means_are_of_the_time_between_the_first_and_the_last_step() -> None:
    samples = [sample(0, 100.0), sample(2, 10.0), sample(3, 20.0), sample(9, 100.0)]
    assert summary([step(0, 1), step(10, 4)], samples).cpu_percent_mean == 15


def test_a_run_without_steps_counts_whole() -> None:
    assert summary([], [sample(0, 10.0), sample(9, 30.0)]).cpu_percent_mean == 20


def test_memory_is_the_most_of_the_whole_run() -> None:
    samples = [sample(0, memory_bytes=5), sample(2, memory_bytes=3)]
    assert summary([step(0, 1), step(10, 4)], samples).memory_bytes_max == 5


def test_cards_are_summed_up_one_by_one_and_together() -> None:
    samples = [
        sample(1, gpus=[card("GPU-1", 50, 10), card("GPU-2", 10, 30)]),
        sample(2, gpus=[card("GPU-1", 100, 20), card("GPU-2", None, None)], gap="GPUs: lost"),
    ]
    found = summary([], samples)
    assert [(gpu.uuid, gpu.gpu_percent_mean, gpu.memory_bytes_max) for gpu in found.gpus] == [
        ("GPU-1", 75, 20),
        ("GPU-2", 10, 30),
    ]
    assert (found.gpu_percent_mean, found.gpu_memory_bytes_max) == (42.5, 30)
    assert (found.samples, found.gaps) == (2, 1)


def test_a_card_that_was_never_read_is_unknown() -> None:
    found = summary([], [sample(1, gpus=[card("GPU-1")])])
    assert (found.gpu_percent_mean, found.gpus[0].gpu_percent_mean) == (None, None)


@given(st.lists(EVENT, max_size=5), st.lists(SAMPLE, max_size=5))
def test_foreign_lines_give_a_summary_that_a_record_can_hold(events: list[Any], samples: list[Any]) -> None:
    run = Run("x", "lost", 1.0, summary=summary(events, samples))
    assert Run.from_json(json.loads(json.dumps(run.as_json(), allow_nan=False))) == run
