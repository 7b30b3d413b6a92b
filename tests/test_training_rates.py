"""scripts/bench train_cpu reads the same rate from the trainer's events as from a peer's output."""

from __future__ import annotations

import sys

import pytest
from house import ROOT

sys.path.append(str(ROOT / "scripts" / "benchmarks"))

import train_cpu


def test_a_rate_is_the_median_after_the_warm_up_and_whole_epochs_are_those_after_the_first() -> None:
    steps = [
        {"event": "step", "step": 25 * k, "examples_per_second": rate} for k, rate in enumerate([None, 1, 1, 1, 1])
    ]
    later = [
        {"event": "step", "step": 125 + 25 * k, "examples_per_second": rate} for k, rate in enumerate([90, 80, 70])
    ]
    epochs = [{"event": "epoch", "examples": 600, "t": 10.0 * k} for k in (1, 2, 3)]
    assert train_cpu.of_events([*steps, *later, *epochs]) == train_cpu.Rate(80, 60.0)
    assert train_cpu.of_events([*steps, *later, *epochs[:1]]) == train_cpu.Rate(80)


def test_between_two_moments_of_a_peer_that_has_an_epochs_end_nothing_is_counted() -> None:
    first = [[25 * 4 * (k + 1), 10.0 * k] for k in range(6)]
    after = [[654, 52.2], [754, 57.2], [854, 62.2]]  # twice as fast
    told = {"moments": [*first, *after], "epochs": [[650, 52.0], [1300, 84.5]]}
    assert train_cpu.of_moments(told).inside == pytest.approx(20.0)
    assert train_cpu.of_moments(told).whole == pytest.approx(20.0)
    assert train_cpu.of_moments({**told, "epochs": []}).whole is None


def test_the_interval_of_an_epochs_end_is_not_counted_where_it_has_as_many_steps_as_any_other() -> None:
    spans = [1.0] * 24 + [10.0] + [2.0] * 19  # seconds for 25 steps of 32; an epoch of 625 ends in the 25th
    moments = [[32 * (25 * k + 1), sum(spans[:k])] for k in range(len(spans) + 1)]
    told = {"moments": moments, "epochs": [[20000, 25.0], [40000, 84.0]]}
    assert train_cpu.of_moments(told).inside == pytest.approx(800), "by 20 of one second and 19 of two"
