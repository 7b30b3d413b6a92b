"""The choices of --autotune, in words, from a start event."""

from __future__ import annotations

from typing import Any

import pytest
from made_runs import STARTED, Made

from ngcdl.report.measured import tuned
from ngcdl.report.shown.columns import read_story
from ngcdl.report.shown.tables import conditions


def tried(name: str, way: dict[str, Any], *rates: float, failed: str | None = None) -> dict[str, Any]:
    found = {"name": name, "way": way, "trials": len(rates), "failed": failed}
    if rates:
        found |= {"examples_per_second": sorted(rates)[len(rates) // 2], "least": min(rates), "most": max(rates)}
    return found


ONE = tried("1 thread", {"threads": 1}, 150.0, 149.0, 151.5)
TRIES = [
    tried("the default", {}, 100.0, 98.0, 101.0),
    ONE,
    tried("channels first", {"channels_last": False}, failed="it took too long"),
    tried("fed resident", {"feed": "resident"}),
]


def start(**changed: Any) -> dict[str, Any]:
    it = {
        "chosen": {"threads": 1}, "measured": 1795305600.0, "seconds": 41.3, "tries": TRIES, "skipped": None,
        "remembered": False, "kept": True,
    }  # fmt: skip
    return {"event": "start", "t": STARTED, "autotune": {**it, **changed}}


def test_what_was_chosen_is_told_with_rates_spreads_and_what_else_was_tried() -> None:
    assert tuned.in_words(start()) == (
        "1 thread (150.0 examples/s, 149.0 to 151.5 in 3), against the default (100.0 examples/s, 98.0 to 101.0 in 3); "
        "a trial of 41 s, remembered; also tried: channels first (it took too long); "
        "fed resident (there was no time left)"
    )


def test_that_it_is_remembered_is_told_with_its_day() -> None:
    assert "; remembered since 2026-11-22; also" in str(tuned.in_words(start(remembered=True)))
    assert "not remembered" in str(tuned.in_words(start(kept=False)))


def test_the_default_stands_beside_nothing() -> None:
    text = tuned.in_words(start(chosen={}))
    assert text
    assert text.startswith("the default (100.0 examples/s, 98.0 to 101.0 in 3); a trial")
    assert "1 thread (150" in text


def test_a_trial_that_was_none_says_why() -> None:
    assert tuned.in_words(start(chosen={}, skipped="the training itself takes 9 s")) == (
        "nothing: the training itself takes 9 s"
    )


@pytest.mark.parametrize("event", [
    {}, {"autotune": None}, {"autotune": 3}, {"autotune": {"chosen": {}, "tries": [7]}},
    {"autotune": {"tries": 5, "remembered": False}},
])  # fmt: skip
def test_a_run_that_was_not_tuned_has_no_word_of_it(event: dict[str, Any]) -> None:
    assert tuned.in_words(event) is None
    assert tuned.chosen(event) == {}
    assert tuned.onednn(event) is None
    assert not tuned.has_failed(event)


def test_the_report_has_it_among_the_conditions() -> None:
    run = Made(steps=300).run("x")
    assert "1 thread (150" in dict(conditions(read_story(run, [start()], [])))["chosen by trial"]
    assert "chosen by trial" not in dict(conditions(read_story(run, [], [])))
