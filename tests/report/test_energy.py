"""Energy from a card's counter or its power: time without readings is left out, and the measured time is stated."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngcdl.report.measured import energy
from ngcdl.report.measured.energy import COUNTER, INTEGRATED, LONGEST_PAUSE_SECONDS, Energy

VALUE = st.none() | st.floats(0, 1e6)


def used(readings: list[tuple[float, float | None, float | None]]) -> Energy | None:
    times, watts, joules = map(list, zip(*readings, strict=True)) if readings else ([], [], [])
    return energy.used([columns(times, joules)], [columns(times, watts)])


def columns(times: list[Any], values: list[Any]) -> energy.Readings:
    return times, [nan if value is None else value for value in values]


def test_a_counter_gives_the_energy_between_its_first_and_last_reading() -> None:
    assert used([(0, 100, 500), (1, 100, 600), (2, 100, 710)]) == Energy(210, COUNTER, 2, 0)


def test_power_is_integrated_by_trapezoids_where_there_is_no_counter() -> None:
    assert used([(0, 100, None), (1, 200, None), (3, 200, None)]) == Energy(150 + 400, INTEGRATED, 3, 0)


def test_a_counter_counts_on_where_samples_are_missing() -> None:
    assert used([(0, None, 500), (1, None, None), (9, None, 1400)]) == Energy(900, COUNTER, 9, 0)


def test_the_time_between_two_attempts_is_neither_counted_nor_a_gap() -> None:
    first, second = columns([0.0, 1.0], [5.0, 10.0]), columns([0.0, 1.0, 3.0], [90.0, None, 105.0])
    assert energy.used([first, second], []) == Energy(20, COUNTER, 4, 0)
    assert energy.used([], [first, second]) == Energy(7.5, INTEGRATED, 1, 3)
    assert energy.used([], [columns([], []), first, second]) == Energy(7.5, INTEGRATED, 1, 3), "it came with the second"


def test_a_long_pause_is_left_out_of_a_counter_too() -> None:
    pause = LONGEST_PAUSE_SECONDS + 1
    assert used([(0, None, 5), (1, None, 6), (1 + pause, None, 900), (2 + pause, None, 903)]) == Energy(
        4, COUNTER, 2, pause
    )


def test_power_that_was_not_read_is_left_out_and_how_long_it_was_is_said() -> None:
    readings = [(0.0, 100.0, None), (1.0, 100.0, None), (2.0, None, None), (3.0, 100.0, None), (4.0, 100.0, None)]
    assert used(readings) == Energy(200, INTEGRATED, 2, 2)


def test_a_time_without_samples_is_no_time_of_the_power_before_it() -> None:
    assert used([(0, 100, None), (1, 100, None), (2, 100, None), (12, 300, None)]) == Energy(200, INTEGRATED, 2, 10)


def test_samples_of_the_same_moment_do_not_say_how_far_apart_they_usually_are() -> None:
    assert used([(0, 100, None)] * 4 + [(1, 100, None), (2, 100, None)]) == Energy(200, INTEGRATED, 2, 0)


def test_one_sample_that_is_missing_is_bridged() -> None:
    assert used([(0, 100, None), (1, 100, None), (2, 100, None), (4, 100, None)]) == Energy(400, INTEGRATED, 4, 0)


def test_a_counter_that_stands_still_is_none() -> None:
    assert used([(0, 50, 7), (1, 50, 7), (2, 50, 7)]) == Energy(100, INTEGRATED, 2, 0)
    assert used([(0, None, 7), (1, None, 7)]) is None


def test_a_counter_that_began_anew_is_left_out_for_that_step() -> None:
    assert used([(0, None, 500), (1, None, 600), (2, None, 30), (3, None, 90)]) == Energy(160, COUNTER, 2, 1)


@pytest.mark.parametrize(
    "readings", [[], [(0, 100, 5)], [(0, None, None), (1, None, None)], [(1, 100, 5), (1, 100, 6)]]
)
def test_too_little_says_nothing(readings: list[tuple[float, float | None, float | None]]) -> None:
    assert used(readings) is None


@given(st.lists(st.tuples(st.floats(0, 1e10), VALUE, VALUE), max_size=8))
def test_energy_is_never_negative_and_what_was_measured_is_no_longer_than_it_took(
    readings: list[tuple[float, float | None, float | None]],
) -> None:
    found = used(sorted(readings, key=lambda reading: reading[0]))
    assert found is None or (found.joules >= 0 and found.seconds > 0 and found.gap_seconds >= 0)
