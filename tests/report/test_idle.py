"""A run's card counts as idle only if every sample has a reading of it, and as shared by its last one that tells."""

from __future__ import annotations

from typing import Any

import pytest

from ngcdl.report.measured.idle import are_idle, are_shared

MIB = 1 << 20


def sample(**card: Any) -> dict[str, Any]:
    return {"gpus": [{"uuid": "GPU-1", "gpu_percent": 0, "memory_used_bytes": 4 * MIB, **card}]}


def test_a_card_at_0_percent_whose_memory_nothing_takes_is_idle() -> None:
    assert are_idle([sample()] * 60, ("GPU-1",), 60)
    assert are_idle([sample(), sample(gpu_percent=1, memory_used_bytes=20 * MIB)] * 30, ("GPU-1",), 60)


def test_between_close_samples_memory_is_not_looked_for_and_far_ones_are_too_few() -> None:
    brief = {"gpus": [{"uuid": "GPU-1", "gpu_percent": 0}]}
    assert are_idle([sample(), brief, brief, brief, brief] * 120, ("GPU-1",), 600)
    assert not are_idle([sample(), brief, {"gpus": [{"uuid": "GPU-1", "gpu_percent": 9}]}] * 200, ("GPU-1",), 600)
    assert not are_idle([sample()] * 6, ("GPU-1",), 6), "the first ones are from before it can have begun"


@pytest.mark.parametrize("other", [
    sample(gpu_percent=2),
    sample(memory_used_bytes=300 * MIB),
    sample(gpu_percent=None),
    sample(memory_used_bytes=None),
    sample(uuid="GPU-2"),
    sample(uuid=["GPU-1"]),
    {"gpus": []},
    {"gap": "the driver does not answer"},
])  # fmt: skip
def test_one_sample_in_which_it_computes_or_that_can_t_tell_is_enough_to_stay_silent(other: dict[str, Any]) -> None:
    assert not are_idle([*[sample()] * 59, other], ("GPU-1",), 60)


def test_too_few_samples_and_no_card_tell_nothing() -> None:
    assert not are_idle([sample()] * 30, ("GPU-1",), 60)
    assert not are_idle([sample()] * 60, (), 60)
    assert not are_idle([sample()] * 60, ("GPU-1", "GPU-2"), 60)


@pytest.mark.parametrize(("counts", "is_shared"), [
    ([0, 1], True), ([1, None], True), ([1, 0], False), ([None], False), (["1"], False), ([], False),
])  # fmt: skip
def test_a_card_is_shared_if_others_compute_on_it_at_the_last_sample_that_tells(
    counts: list[Any], is_shared: bool
) -> None:
    samples = [sample(foreign_processes=count) for count in counts]
    assert are_shared([*samples, {"gap": "late"}, {"gpus": [{"uuid": "GPU-1"}]}], ("GPU-1",)) == is_shared
    assert not are_shared(samples, ("GPU-2",)), "of the run's own cards"
