"""Lines read in bulk give the same values as lines read singly."""

from __future__ import annotations

import math
from array import array
from dataclasses import replace
from statistics import fmean
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from made_runs import STARTED
from made_summaries import summary

from ngcdl.record import Run
from ngcdl.report.measured.column import Column
from ngcdl.report.measured.lines import are_numbers, number
from ngcdl.report.measured.taken import MOST_CARDS
from ngcdl.report.shown.columns import read_story
from ngcdl.report.shown.curves import Curve

RUN = Run("x", "finished", STARTED, STARTED + 100)
# values as a training writes them, and as another program or a broken clock may
ODD = st.sampled_from([None, True, "5", math.nan, math.inf, 1e300, 10**400, -(10**400), [], {}])
VALUES = st.one_of(st.floats(0, 1e6), st.integers(0, 1000), ODD)
TIMES = st.one_of(st.integers(0, 100).map(lambda t: STARTED + t), ODD)


def column(values: list[Any]) -> list[float]:
    return [math.nan if number(value) is None else float(value) for value in values]


def same(found: Any, wanted: list[float]) -> bool:
    return len(found) == len(wanted) and all(a == b or (a != a and b != b) for a, b in zip(found, wanted, strict=True))


@given(st.lists(st.one_of(VALUES, st.floats(allow_nan=True))))
def test_numbers_are_known_together_as_each_is_by_itself(values: list[Any]) -> None:
    assert are_numbers(values) in (False, all(number(value) is not None for value in values))
    assert are_numbers([value for value in values if number(value) is not None and abs(value) < 1e290])


@given(st.lists(VALUES), st.integers(0, 9))
def test_a_figure_is_in_its_column_as_its_line_tells_it_an_integer_as_an_integer(values: list[Any], first: int) -> None:
    told, known = Column(), [number(value) for value in values]
    told.tell(values[:first])
    told.tell(values[first:])
    for rows in (range(len(values)), array("q", range(len(values)))):
        assert repr([*told.numbers(rows)]) == repr([value for value in known if value is not None])
        assert [*told.floats(rows)] == [*told.numbers()]
        assert repr([*told.at(rows)]) == repr([math.nan if value is None else value for value in known])
        assert [*told.are_told(rows)] == [value is not math.nan for value in values]
    assert repr([*told.at(array("q", [-1]))]) == "[nan]"


@given(st.lists(st.tuples(TIMES, VALUES, VALUES, VALUES), max_size=20), st.integers(1, 30), st.integers(0, 300))
def test_steps_have_their_rates_and_losses_wherever_others_stand_between(
    lines: list[Any], many: int, place: int
) -> None:
    lines = lines * many
    events = [dict(zip(("t", "examples_per_second", "step", "loss"), line, strict=True)) for line in lines]
    steps = [{"event": "step", **event} for event in events]
    training = read_story(RUN, [*steps[:place], {"event": "stages", "read": 1.0}, *steps[place:]], []).training
    timed = [event for event in events if number(event["t"]) is not None]
    placed = [event for event in events if number(event["step"]) is not None]
    assert same(training.rates.xs, [event["t"] - STARTED for event in timed])
    assert same(training.rates.ys, column([event["examples_per_second"] for event in timed]))
    assert same(training.losses.xs, column([event["step"] for event in placed]))
    assert same(training.losses.ys, column([event["loss"] for event in placed]))
    assert training.stages["read"] == 1.0


@given(st.lists(st.tuples(TIMES, VALUES, st.lists(VALUES, max_size=3)), max_size=20), st.integers(1, 30))
def test_processors_have_their_least_most_and_mean(lines: list[Any], many: int) -> None:
    names = ("t", "host_cpu_percent", "cpu_percents")
    samples = [dict(zip(names, line, strict=True)) for line in lines * many]
    measured = read_story(RUN, [], samples).measured
    timed = [sample for sample in samples if number(sample["t"]) is not None]
    known = [[value for value in sample["cpu_percents"] if number(value) is not None] for sample in timed]
    assert same(measured.host.xs, [sample["t"] - STARTED for sample in timed])
    assert same(measured.host.ys, column([sample["host_cpu_percent"] for sample in timed]))
    assert same(measured.least.ys, [min(row, default=math.nan) for row in known])
    assert same(measured.most.ys, [max(row, default=math.nan) for row in known])
    rows = [sample["cpu_percents"] for sample, some in zip(timed, known, strict=True) if some]
    for place, mean in enumerate(measured.cores):
        of_core = [row[place] for row in rows if place < len(row) and number(row[place]) is not None]
        assert mean == (pytest.approx(fmean(of_core)) if of_core else None)
    assert len(measured.cores) == max(map(len, rows), default=0)


def test_an_error_is_that_of_the_last_attempt() -> None:
    error = {"event": "error", "kind": "no_gpu"}
    assert read_story(RUN, [{"event": "start"}, error, {"event": "start"}], []).training.error is None
    assert read_story(RUN, [{"event": "start"}, error], []).training.error == "no_gpu"


def test_what_a_card_was_not_asked_at_a_sample_is_no_gap_in_its_curve() -> None:
    brief = {"uuid": "GPU-1", "gpu_percent": 50, "watts": 70.0}
    whole = brief | {"memory_used_bytes": 5, "sm_mhz": None, "throttle_reasons": ["sw_power_cap"]}
    cards = [whole, brief, brief, None, whole]
    samples = [{"t": STARTED + at, "gpus": [card] if card else []} for at, card in enumerate(cards)]
    (card,) = read_story(RUN, [], samples).measured.cards.values()
    assert same(card.curves["watts"].ys, [70, 70, 70, math.nan, 70])
    assert same(card.curves["watts"].xs, [0, 1, 2, 3, 4])
    assert same(card.curves["memory_used_bytes"].ys, [5, math.nan, 5]), "at the third no card was there"
    assert same(card.curves["memory_used_bytes"].xs, [0, 3, 4])
    assert same(card.curves["sm_mhz"].ys, [math.nan] * 3)
    assert card.throttled.spans == [(0, 0), (4, 4)]
    samples = [{"t": STARTED + 30 * at, "gpus": [whole]} for at in (0, 1, 2, 4, 8)]
    (card,) = read_story(replace(RUN, spec={"sample_seconds": 30}), [], samples).measured.cards.values()
    assert card.throttled.spans == [(0, 120), (240, 240)], "one may be missing"


@given(st.lists(st.tuples(TIMES, st.lists(st.tuples(st.integers(0, 2), VALUES), max_size=3)), max_size=20),
       st.integers(1, 30))  # fmt: skip
@example([(STARTED + at, [] if 64 <= at < 128 else [(0, at)]) for at in range(129)], 1)  # as many as are read together
def test_a_card_has_a_point_for_each_reading_and_a_gap_where_it_has_none(lines: list[Any], many: int) -> None:
    samples = [
        {"t": t, "gpus": [{"uuid": f"GPU-{card}", "watts": watts} for card, watts in gpus]} for t, gpus in lines * many
    ]
    wanted: dict[str, tuple[list[float], list[Any]]] = {}
    for sample in samples:
        if number(sample["t"]) is None:
            continue
        for gpu in sample["gpus"]:
            wanted.setdefault(gpu["uuid"], ([], []))
        for uuid, (xs, ys) in wanted.items():
            here = [gpu["watts"] for gpu in sample["gpus"] if gpu["uuid"] == uuid] or [None]
            xs += [sample["t"] - STARTED] * len(here)
            ys += here
    cards = read_story(RUN, [], samples).measured.cards
    assert list(cards) == list(wanted)
    for uuid, (xs, ys) in wanted.items():
        *points, gaps = cards[uuid].curves["watts"].drawable
        *whole, all_gaps = Curve(array("d", xs), array("d", column(ys))).drawable
        assert points == whole
        assert gaps - {len(points[0])} == all_gaps - {len(points[0])}, "what comes after the last point is none"


def test_cards_that_a_run_makes_up_take_no_place_in_samples_that_lack_them() -> None:
    real = {"uuid": "GPU-real", "gpu_percent": 50}
    samples = [{"t": STARTED + at, "gpus": [real, {"uuid": f"GPU-{at}"}]} for at in range(5000)]
    cards = read_story(RUN, [], samples).measured.cards
    assert len(cards["GPU-real"].curves["watts"].xs) == 5000
    assert sum(len(card.curves["watts"].xs) for card in cards.values()) < 15_000
    assert len(cards) == MOST_CARDS
    assert [gpu.uuid for gpu in summary([], samples).gpus] == ["GPU-real"]
