"""Figures of the time that each attempt trained, whatever lay between: start-up, pauses, clocks that were set."""

from __future__ import annotations

from math import nan
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_summaries import filled, summary

from ngcdl.record import Machine, Run, Summary
from ngcdl.report.measured.lines import weighted

START = {"event": "start", "device": "gpu", "replicas": 1}
RATE, BATCH = 1000.0, 10
TOLD = {"examples_per_second": RATE, "seconds_per_batch": BATCH / RATE}


def step(t: float, number: int, **figures: float | None) -> dict[str, Any]:
    return {"event": "step", "t": t, "step": number, **figures}


def steps(began: int, seconds: int, first: int = 0) -> list[dict[str, Any]]:
    """A second apart; the first has no rate."""
    told = [step(began + t, first + 100 * t, **TOLD) for t in range(1, seconds + 1)]
    return [step(began, first), *told]


def sample(t: float, watts: float, **more: Any) -> dict[str, Any]:
    card = {"uuid": "GPU-1", "index": 0, "name": "a card", "gpu_percent": 97 if watts > 100 else 0, "watts": watts}
    return {"t": t, "host_cpu_percent": 20.0, "cpu_percents": [20.0, 20.0], "gpus": [card], **more}


def queued_again(times: int, start_up: int = 40) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Events and samples of attempts that begin 45 s after the end of the one before, and train for 60 s each."""
    events: list[dict[str, Any]] = []
    samples: list[dict[str, Any]] = []
    for attempt in range(times):
        began = attempt * (start_up + 60 + 45)
        events += [START | {"resumed_from_step": 6000 * attempt or None}]
        events += steps(began + start_up, 60, 6000 * attempt)
        for second in range(start_up + 61):
            watts = 300.0 if second >= start_up else 70.0
            samples.append(sample(began + second, watts, seconds=second))
    return events, samples


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.parametrize("start_up", [5, 40])
def test_the_start_up_of_each_attempt_is_no_time_in_which_it_trained(times: int, start_up: int) -> None:
    events, samples = queued_again(times, start_up)
    run = filled(Run("x", "finished", 0.0, machine=Machine(cores=2), spec={"workload": {"name": "x"}}), events, samples)
    found = run.summary
    assert (found.gpu_percent_mean, found.training_samples) == (97, 61 * times)
    assert (found.energy_seconds, found.energy_gap_seconds) == (60 * times, 0)
    assert found.energy_joules == 300 * 60 * times
    assert found.examples_per_joule == pytest.approx(RATE / 300)
    assert "it sets the pace" in (run.findings or ())[0].text


def test_an_attempt_that_logged_a_single_step_shows_no_time_in_which_it_trained() -> None:
    events, samples = queued_again(2)
    lost = [START, step(500, 12_000), START, step(600, 12_000)]
    assert summary([*events, *lost], [*samples, sample(550, 70.0)]).gpu_percent_mean == 97
    assert summary(lost, samples).training_samples == 0


def test_attempts_that_overlap_because_the_clock_was_set_back_count_once() -> None:
    events, samples = queued_again(2)
    events, samples = ([{**one, "t": t - 150 if (t := one.get("t", 0)) >= 145 else t} for one in lines]
                       for lines in (events, samples))  # fmt: skip
    found = summary(events, samples)
    assert found.gpu_percent_mean == pytest.approx(97 * 122 / 127)
    assert found.examples_per_joule == pytest.approx(RATE / 300, rel=0.05)


def paused(figures: dict[str, float | None]) -> Summary:
    """A script that trains for a minute at 300 W, pauses for one at 60 W, and trains again."""
    told = [step(float(t), 100 * (t if t <= 60 else t - 60), **figures) for t in range(181) if not 60 < t < 121]
    watts = [60.0 if 60 < t <= 120 else 300.0 for t in range(181)]
    joules = [sum(watts[1 : t + 1]) for t in range(181)]
    samples = [sample(float(t), one) for t, one in enumerate(watts)]
    for one, counted in zip(samples, joules, strict=True):
        one["gpus"][0]["energy_joules"] = counted
    return summary(told, samples)


def test_the_examples_of_a_joule_are_those_of_the_whole_time_whose_energy_it_is() -> None:
    found = paused(dict(TOLD))
    assert (found.examples_per_second, found.energy_joules) == (RATE, 120 * 300 + 60 * 60)
    assert found.examples_per_joule == pytest.approx(120 * RATE / (120 * 300 + 60 * 60))


@pytest.mark.parametrize("missing", ["examples_per_second", "seconds_per_batch"])
def test_without_a_rate_or_the_seconds_of_a_batch_the_examples_of_a_joule_are_unknown(missing: str) -> None:
    assert paused({**TOLD, missing: None}).examples_per_joule is None


def test_a_script_that_tells_its_rate_now_and_then_has_the_examples_of_all_steps() -> None:
    told = [step(t, 100 * t, **(TOLD if t % 10 == 0 else {})) for t in range(61)]
    samples = [sample(t, 250.0) for t in range(61)]
    assert summary(told, samples).examples_per_joule == pytest.approx(4)
    few = [step(0, 1), step(60, 6001, **TOLD)]
    assert summary(few, samples).examples_per_joule == pytest.approx(4)


def test_trainings_that_report_their_steps_when_they_are_over_have_the_examples_of_their_time() -> None:
    """As cifar10-94 does on a GPU: here three trainings of 20 s, with 5 s between them."""
    events: list[dict[str, Any]] = [START]
    for training in range(3):
        end = 50 + 25 * training
        at = [step(end + n / 1e4, min(10 * n, 1999), **(TOLD if n else {})) for n in range(201)]
        events += [*at, {"event": "raced"}]
    samples = [sample(t, 250.0) for t in range(110)]
    found = summary(events, samples).examples_per_joule
    assert found == pytest.approx(2 * 20 * RATE / (50 * 250), rel=0.01)


@pytest.mark.parametrize("by", [45, -20, -3600])
def test_a_clock_that_is_set_meanwhile_stretches_no_time_and_no_energy(by: int) -> None:
    def wall(t: float) -> float:
        return 10_000.0 + t + (by if t >= 30 else 0)

    told = [one | {"t": wall(one["t"])} for one in steps(0, 60)]
    for counter in (True, False):
        samples = [sample(wall(t), 100.0, seconds=float(t + 9)) for t in range(61)]
        for t, one in enumerate(samples):
            one["gpus"][0] |= {"energy_joules": 100.0 * t} if counter else {}
        found = summary(told, samples)
        assert (found.energy_joules, found.energy_seconds, found.energy_gap_seconds) == (6000, 60, 0)
        assert found.examples_per_joule == pytest.approx(10)


def test_a_sampler_that_tells_no_time_of_its_own_is_read_by_the_machine_s_clock() -> None:
    for seconds in ({}, {"seconds": None}, {"seconds": 7}):
        found = summary(steps(0, 60), [sample(t, 100.0, **seconds) for t in range(61)])
        assert (found.energy_seconds, found.examples_per_joule) == (60, pytest.approx(10))


def test_a_sampler_that_began_anew_is_read_by_the_machine_s_clock_for_that_step() -> None:
    samples = [sample(t, 100.0, seconds=t if t < 30 else t - 30) for t in range(61)]
    assert summary(steps(0, 60), samples).energy_seconds == 60


def test_a_sample_after_ticks_that_were_missed_counts_for_all_of_their_time() -> None:
    calm, full = {"host_cpu_percent": 10.0, "container_cpu_percent": 40.0, "cpu_percents": [15.0, 5.0]}, {
        "host_cpu_percent": 100.0, "container_cpu_percent": 200.0, "cpu_percents": [100.0, 100.0],
    }  # fmt: skip
    samples = [{"t": t, "seconds": t + 9.0, **calm} for t in range(1, 31)] + [{"t": 60, "seconds": 69.0, **full}]
    found = summary(steps(0, 60), samples, cores=2)
    assert (found.cpu_percent_mean, found.container_cpu_percent_mean) == (55, 120)
    assert (found.cores_busy, found.cpu_busiest_core_percent_mean) == (1.1, 57.5)
    whole = summary([], samples, cores=2, is_command=True)
    assert whole.cpu_percent_mean == 55, "a command's, too"


def test_of_ticks_that_were_missed_since_the_start_up_count_those_after_the_first_step() -> None:
    samples = [{"t": t, "seconds": float(t), "host_cpu_percent": percent} for t, percent in ((0, 0), (33, 99), (34, 9))]
    assert summary(steps(30, 60), samples).cpu_percent_mean == (3 * 99 + 9) / 4


def test_how_much_of_a_card_worked_is_weighed_by_time_too() -> None:
    samples = [sample(t, 300.0) for t in (*range(1, 31), 60)]
    for one in samples:
        one["gpus"][0]["sm_active_percent"] = 90.0 if one["t"] == 60 else 30.0
    assert summary(steps(0, 60), samples).sm_active_percent_mean == 60


@given(st.lists(st.tuples(st.one_of(st.just(nan), st.floats(0, 100)), st.floats(0, 1e6)), min_size=1))
def test_a_mean_weighed_by_time_is_never_outside_of_its_values(pairs: list[tuple[float, float]]) -> None:
    values, weights = zip(*pairs, strict=True)
    known = [value for value in values if value == value]
    found = weighted([*values], [*weights])
    assert (found is None) == (not known)
    assert found is None or min(known) <= found <= max(known)


def test_a_card_that_is_as_busy_all_the_time_has_that_for_its_mean() -> None:
    """Whether it is busy enough for a finding is asked of the mean, so the last bit counts."""
    for n in range(2, 200):
        seconds = [0.1 + k / 3 for k in range(n)]
        assert weighted([97.3] * n, seconds) == weighted([97.3] * n, [0.0] * n) == 97.3
