"""Several trainings from scratch in one run: what is reported about them, and that no training hides another."""

from __future__ import annotations

from typing import Any

import pytest
from made_summaries import summary

from ngcdl.record import Run
from ngcdl.report.measured import raced
from ngcdl.report.shown import tables
from ngcdl.report.shown.columns import read_story
from ngcdl.report.shown.pictures import pictures

RUN = Run("x", "finished", 100.0, 200.0, spec={"workload": {"name": "cifar10-94", "times": 2}})


def training(
    began: float, losses: tuple[float, ...], rate: float, seconds: float, right: float
) -> list[dict[str, Any]]:
    """The events of one training, with a step a second."""
    rates = [None, *[rate] * (len(losses) - 1)]
    told = [
        {"event": "step", "t": began + at, "step": at, "loss": loss, "examples_per_second": rates[at]}
        for at, loss in enumerate(losses)
    ]
    return [
        *told,
        {"event": "eval", "t": began + 3, "step": len(losses), "precision_at_1": right},
        {"event": "raced", "t": began + 3, "seconds": seconds, "precision_at_1": right},
    ]


ONE = training(100, (2.3, 1.0, 0.5), 100.0, 2.5, 0.9)
TWO = ONE + training(110, (2.4, 1.2, 0.7), 200.0, 2.7, 0.96)
SURE = {"event": "certified", "bound": 0.94, "chance": 0.0123}


def test_of_one_training_time_and_result_are_told_and_of_several_how_far_they_lie_apart() -> None:
    assert raced.in_words(ONE) == "tested after 2.50 s: precision @ 1 = 0.9000"
    several = "2 times, tested after 2.60 s (2.50..2.70): precision @ 1 = 0.9300 on average (0.9000..0.9600)"
    assert raced.in_words(TWO) == several
    assert raced.in_words([*TWO, SURE]) == f"{several}; above 0.94: p = 0.012 (t-test)"
    assert raced.in_words([*TWO, {**SURE, "chance": None}]) == several, "all were alike"


def test_of_other_trainings_and_of_foreign_values_nothing_is_told() -> None:
    assert raced.in_words(ONE[:-1]) is None
    assert raced.in_words([{"event": "raced", "seconds": "soon", "precision_at_1": 0.9}, {"event": "raced"}]) is None


def test_the_figures_are_of_all_of_them() -> None:
    found = summary(TWO, [])
    assert (found.loss_first, found.loss_last, found.steps) == (2.3, 0.7, 6)
    assert found.examples_per_second == 150.0
    assert found.precision_at_1 == pytest.approx(0.93)
    assert summary(ONE, []).precision_at_1 == 0.9


def test_the_report_draws_a_line_for_each_of_them_and_says_so() -> None:
    (one,), (two,) = (
        [str(it) for it in pictures([read_story(RUN, events, [])]).shown if "Loss" in str(it)] for events in (ONE, TWO)
    )
    assert "2 trainings, each from scratch" in two
    assert "each from scratch" not in one
    lines = [part.split('"')[0] for part in two.split(' d="')[1:]]
    assert max(path.count("M") for path in lines if "L" in path) == 2, "no line goes back to the first step"
    assert ("trained from scratch", (raced.in_words(TWO),)) in tables.figures([read_story(RUN, TWO, [])])
    assert ("requested", "3 steps, 2 times") in tables.conditions(read_story(RUN, [{"event": "start", "steps": 3}], []))
