"""Columns of numbers, the points of them that are drawn, and the axes of the charts."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import mean
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from made_runs import STARTED, Made
from made_summaries import summary

from ngcdl.record import GpuSummary, Run, Summary
from ngcdl.report.measured import throttling
from ngcdl.report.shown.charts import Line, _style
from ngcdl.report.shown.columns import read_story
from ngcdl.report.shown.curves import COLUMNS, Curve, ranges, thinned
from ngcdl.report.shown.page import page
from ngcdl.report.shown.pictures import _card_lines, _steps, _time, pictures
from ngcdl.report.shown.scale import axis, bytes_axis, seconds_axis
from ngcdl.report.shown.story import Story
from ngcdl.report.shown.verdict import verdict

RUN = Run("x", "finished", STARTED, STARTED + 100)


def curve(*points: tuple[float, float | None]) -> Curve:
    made = Curve()
    for x, y in points:
        made.add(x, y)
    return made


def test_few_points_stay_as_they_are() -> None:
    assert thinned(curve((0, 1), (1, 3), (2, 2)), 0, 2) == [[(0, 1), (1, 3), (2, 2)]]


def test_what_is_unknown_breaks_the_line() -> None:
    assert thinned(curve((0, 1), (1, None), (2, 2), (3, 2)), 0, 3) == [[(0, 1)], [(2, 2), (3, 2)]]
    assert thinned(curve((0, None)), 0, 3) == []


def test_a_pause_in_which_nobody_looked_breaks_the_line_unless_it_may_not() -> None:
    paused = curve(*((float(x), 1.0) for x in range(10)), *((float(x), 1.0) for x in range(60, 70)))
    assert [len(part) for part in thinned(paused, 0, 70)] == [10, 10]
    assert [len(part) for part in thinned(paused, 0, 70, breaks=False)] == [20]


def test_no_spike_of_a_long_run_is_lost_and_few_points_are_left() -> None:
    noise = random.Random(1)
    values = [noise.uniform(10, 20) for _ in range(200_000)]
    values[77_777], values[123_456] = 1000.0, -1000.0
    long = curve(*((float(x), y) for x, y in enumerate(values)))
    (points,) = thinned(long, 0, 200_000)
    assert len(points) <= 4 * COLUMNS + 4
    assert (77_777.0, 1000.0) in points
    assert (123_456.0, -1000.0) in points
    assert points == sorted(points)
    assert (points[0], points[-1]) == ((0.0, values[0]), (199_999.0, values[-1]))
    (columns,) = ranges(long, 0, 200_000)
    assert len(columns) <= COLUMNS + 1
    assert (min(least for _, least, _, _ in columns), max(most for *_, most in columns)) == (-1000.0, 1000.0)
    assert mean(middle for _, _, middle, _ in columns) == pytest.approx(mean(values))
    for low in (-1000.0, 100_000.0, 200_001.0):
        drawn = len(ranges(long, low, low + 500.0)[0])
        assert drawn <= COLUMNS + 2, "what is beyond the axis is drawn at its ends"


def test_a_line_too_dense_to_be_drawn_is_the_mean_in_a_shade_and_the_page_says_so() -> None:
    for steps, shades in ((2000, 0), (20_000, 2)):  # throughput and loss, of every tenth step
        document = page([Made(steps=steps, samples=20).story()])
        assert document.count('class="shade c0"') == shades
        assert ("a line is their mean" in document) is bool(shades)


@given(st.lists(st.one_of(st.none(), st.floats(-1e6, 1e6)), max_size=60), st.integers(1, 60))
def test_what_is_drawn_was_measured(values: list[float | None], many: int) -> None:
    points = [(float(x), y) for x, y in enumerate(values * many)]
    drawn = [point for part in thinned(curve(*points), 0, float(len(points) or 1)) for point in part]
    assert set(drawn) <= {(x, y) for x, y in points if y is not None}
    known = [y for _, y in points if y is not None]
    if known:
        assert {min(known), max(known)} <= {y for _, y in drawn}


@given(st.lists(st.tuples(st.floats(0, 5), st.one_of(st.none(), st.floats(-9, 9))), min_size=1, max_size=60))
def test_a_line_is_broken_where_more_than_a_column_is_unknown_and_nowhere_else(steps: list[Any]) -> None:
    points, x = [], 0.0
    for apart, y in steps * (2 * COLUMNS // len(steps) + 2):
        x += apart
        points.append((x, y))
    breaks, before, is_hidden = [], None, False
    for x, y in points:
        if y is not None and before is not None and is_hidden and x - before > points[-1][0] / COLUMNS:
            breaks.append((before, x))
        before, is_hidden = (before, True) if y is None else (x, False)
    drawn = thinned(curve(*points), 0, points[-1][0], breaks=False)
    assert [(one[-1][0], other[0][0]) for one, other in pairwise(drawn)] == breaks


def test_a_training_that_went_on_from_a_checkpoint_tells_each_step_once() -> None:
    step = {"event": "step", "t": STARTED}
    events = [
        {"event": "start", "t": STARTED, "resumed_from_step": None},
        *({**step, "step": n, "loss": 5.0} for n in range(0, 50, 10)),
        {"event": "start", "t": STARTED, "resumed_from_step": 20},
        *({**step, "step": n, "loss": 4.0} for n in range(20, 50, 10)),
    ]
    losses = read_story(RUN, events, []).training.losses
    assert list(zip(losses.xs, losses.ys, strict=True)) == [(0, 5), (10, 5), (20, 4), (30, 4), (40, 4)]


def test_epochs_are_a_curve_of_their_own_and_those_that_are_told_again_count_once() -> None:
    events: list[dict[str, Any]] = [{"event": "step", "t": STARTED + 1, "step": 90, "loss": 1.0}]
    events += [{"event": "epoch", "step": n, "loss": 2.0, "accuracy": 0.4} for n in (100, 200)]
    events += [{"event": "eval", "step": 200, "precision_at_1": 0.3}, {"event": "start", "resumed_from_step": 100}]
    events += [{"event": "epoch", "step": 200, "loss": 1.5, "accuracy": 0.5}]
    training = read_story(RUN, events, []).training
    assert (list(training.losses.xs), list(training.losses.ys)) == ([90], [1.0])
    assert (list(training.epoch_losses.xs), list(training.epoch_losses.ys)) == ([100, 200], [2.0, 1.5])
    assert (list(training.training_accuracies.xs), list(training.training_accuracies.ys)) == ([100, 200], [0.4, 0.5])
    assert list(training.accuracies.xs) == []


@pytest.mark.parametrize("reason", [one.name for one in throttling.REASONS])
def test_the_chart_marks_every_reason_that_the_findings_know(reason: str) -> None:
    cards = [{"uuid": "GPU-1", "sm_mhz": 900, "throttle_reasons": [reason, "gpu_idle"]}]
    (card,) = read_story(RUN, [], [{"t": STARTED + t, "gpus": cards} for t in range(3)]).measured.cards.values()
    assert (card.throttled.reasons, card.throttled.spans) == ({reason}, [(0.0, 2.0)])


def test_where_the_clock_was_put_back_the_axis_of_time_is_as_long_as_what_was_told() -> None:
    made = Made(steps=2000)
    assert _time([made.story("a", finished=STARTED - 3)]) == _time([made.story("a", finished=None)])


def test_the_axis_of_steps_is_as_long_as_the_longest_of_several_trainings() -> None:
    assert _steps([Line("", curve((0, 2.3), (900, 1.0), (0, 2.4), (100, 2.0)), 0)]).high == 900.0


@pytest.mark.parametrize("engine", ["slurm", "kubernetes"])
def test_the_time_that_a_run_waited_in_a_queue_is_not_on_the_axis_of_its_charts(engine: str) -> None:
    made = Made(steps=2000, held=True)
    plain = made.story("a", finished=None)
    short, long = (
        read_story(replace(plain.run, engine=engine, started=STARTED - wait), made.events(), made.measured())
        for wait in (-60, 36_000)  # the clocks of two machines differ, too
    )
    assert repr(replace(short, run=plain.run)) == repr(replace(long, run=plain.run)), (
        "however long each waited, they stand one above the other"
    )
    x = _time([short, long])
    assert (x.low, x.high, x.unit) == (0.0, _time([plain]).high, "seconds since the first report")
    assert long.training.rates.xs.tolist() == pytest.approx(plain.training.rates.xs.tolist())
    assert long.training.spans == [pytest.approx(span) for span in plain.training.spans]
    (card,), (of_plain,) = (one.measured.cards.values() for one in (long, plain))
    assert card.throttled == of_plain.throttled
    assert _time([plain, long]).unit == "seconds since the start"
    of_cards = read_story(long.run, [], [{"t": STARTED + t, "gpus": [{"index": 0, "watts": 60.0}]} for t in (0, 9)])
    assert _time([of_cards]).high == 9.0
    silent = read_story(replace(plain.run, engine=engine), [], [])
    assert (_time([silent]).high, silent.training.spans) == (1.0, [])


def test_cores_are_summed_up_while_it_trained_only() -> None:
    events = [{"event": "step", "t": STARTED + t, "step": t} for t in (10, 20)]
    cores = [[50.0, 100.0] if 10 <= t <= 20 else [0.0, 0.0] for t in range(30)]
    samples = [{"t": STARTED + t, "host_cpu_percent": 5.0, "cpu_percents": each} for t, each in enumerate(cores)]
    measured = read_story(RUN, events, samples).measured
    assert measured.cores == (50.0, 100.0)
    assert (measured.least.ys[15], measured.most.ys[15]) == (50.0, 100.0)


def test_the_time_between_two_attempts_is_neither_in_the_means_of_the_cores_nor_in_the_time_of_the_steps() -> None:
    def attempt(*times: int) -> list[dict[str, Any]]:
        start = {"event": "start", "resumed_from_step": times[0]}
        return [start, *({"event": "step", "t": STARTED + t, "step": t} for t in times)]

    events = attempt(10, 20) + attempt(90, 100) + attempt(150)
    cores = [[50.0, 100.0] if 10 <= t <= 20 or 90 <= t <= 100 else [0.0, 0.0] for t in range(160)]
    samples = [{"t": STARTED + t, "host_cpu_percent": mean(each), "cpu_percents": each} for t, each in enumerate(cores)]
    story = read_story(replace(RUN, engine="slurm", summary=summary(events, samples)), events, samples)
    assert story.measured.cores == (50.0, 100.0)
    assert story.run.summary.cpu_percent_mean == 75.0, "the table says the same"
    assert "150 steps in 20 s" in verdict([story])


def test_a_sample_in_which_the_host_was_not_due_is_no_gap_in_its_curves() -> None:
    host: list[Any] = [{"host_cpu_percent": 5.0, "cpu_percents": [0.0, 10.0]} for _ in range(40)]
    host[20] = {"host_cpu_percent": None, "cpu_percents": None}
    cards = [{"uuid": "GPU-1", "watts": 60.0}]
    samples = [{"t": STARTED + n / 10, **({} if n % 5 else host[n // 5]), "gpus": cards} for n in range(200)]
    measured = read_story(RUN, [], samples).measured
    for curve in (measured.host, measured.least, measured.most):
        assert [len(stretch) for stretch in thinned(curve, 0.0, 20.0)] == [20, 19], "it could not be read once"
    assert measured.cores == (0.0, 10.0)
    (card,) = measured.cards.values()
    assert len(card.curves["watts"].ys) == 200


@pytest.mark.parametrize("value", [None, "5", [], {}, True, float("nan"), 1e400, [None, "x", True], [[1]]])
def test_foreign_values_are_unknown_and_no_error(value: Any) -> None:
    card = {"index": value, "uuid": value, "name": value, "watts": value, "throttle_reasons": value}
    sample = {"t": STARTED + 1, "host_cpu_percent": value, "cpu_percents": value, "gpus": [card, value]}
    event = {"event": "step", "t": STARTED, "step": value, "loss": value, "examples_per_second": value}
    story = read_story(
        RUN, [event, {"event": value, "t": value}], [sample, {"t": value}, {"t": STARTED, "gpus": value}]
    )
    assert not story.measured.host.known
    assert not story.training.losses.known
    assert all(not one.known for card in story.measured.cards.values() for one in card.curves.values())


def test_a_card_that_is_missing_in_a_sample_has_a_gap_there() -> None:
    samples = [{"t": STARTED + t, "gpus": [] if t == 3 else [{"uuid": "GPU-1", "watts": 60.0}]} for t in range(6)]
    (card,) = read_story(RUN, [], samples).measured.cards.values()
    assert [math.isnan(y) for y in card.curves["watts"].ys] == [False, False, False, True, False, False]


def test_clocks_that_are_held_down_are_stretches_with_their_reasons_and_idle_is_none() -> None:
    held = Made(steps=2000, held=True).story().measured.cards
    (card,) = held.values()
    assert card.throttled.reasons == {"sw_thermal_slowdown"}
    ((start, end),) = card.throttled.spans
    assert 20 < start < end < 40
    (free,) = Made(steps=2000).story().measured.cards.values()
    assert free.throttled.spans == []


@given(st.floats(-1e9, 1e9), st.floats(-1e9, 1e9))
@example(0.0, 5e-324)
@example(-1e-13, 1e-13)
def test_an_axis_holds_its_range_with_round_ticks_that_can_be_told_apart(one: float, other: float) -> None:
    low, high = sorted((one, other))
    made = axis(low, high, "W")
    slack = (made.high - made.low) * 1e-6  # far less than a pixel
    assert made.low - slack <= low <= high <= made.high + slack
    assert 2 <= len(made.ticks) <= 8
    assert made.at(made.low) == 0
    assert made.at(made.high) == 1
    assert len({made.label(tick) for tick in made.ticks}) == len(made.ticks)


@pytest.mark.parametrize(
    ("low", "high", "unit", "shown", "labels"),
    [
        (0, 60_000, "steps", "steps", "0 20,000 40,000 60,000"),
        (0, 100_000, "steps", "thousand steps", "0 25 50 75 100"),
        (0, 15e6, "examples/s", "million examples/s", "0 5 10 15"),
        (0, 3e9, "examples/s", "billion examples/s", "0 1 2 3"),
        (0, 2e15, "", "×10¹⁵", "0.0 0.5 1.0 1.5 2.0"),
        (0, 5e-8, "", "×10⁻⁸", "0 2 4 6"),
        (0, 0.004, "", "", "0.000 0.001 0.002 0.003 0.004"),
        (0.6931, 0.6932, "", "", "0.693100 0.693125 0.693150 0.693175 0.693200"),
    ],
)
def test_an_axis_of_very_large_or_small_values_has_short_labels_and_says_in_what_it_counts(
    low: float, high: float, unit: str, shown: str, labels: str
) -> None:
    made = axis(low, high, unit)
    assert (made.unit, " ".join(map(made.label, made.ticks))) == (shown, labels)


def test_bytes_and_time_have_the_unit_that_fits() -> None:
    memory = bytes_axis(3.2 * (1 << 30))
    assert (memory.unit, [memory.label(tick) for tick in memory.ticks]) == ("GiB", ["0", "1", "2", "3", "4"])
    assert seconds_axis(65).unit == "seconds since the start"
    hours = seconds_axis(9000)
    assert (hours.unit, hours.label(hours.ticks[1])) == ("hours since the start", "0.5")
    assert axis(0, 1, "share").label(0.25) == "0.25"


def test_of_several_runs_one_with_many_cards_has_their_mean_in_a_band_from_least_to_most() -> None:
    watts = [[60.0, 70.0, 80.0], [50.0, None, 90.0], [55.0, None, None]]  # of card 0 at each second, and so on
    watts += [[40.0, 50.0, None]] * 2

    def sample(t: int) -> dict[str, Any]:
        gpus = [{"uuid": f"GPU-{at}", "index": at, "watts": one[t]} for at, one in enumerate(watts)]
        return {"t": STARTED + t, "gpus": gpus[:-1] if t == 0 else gpus}  # the last card was seen later

    eight = replace(read_story(replace(RUN, device="gpu"), [], map(sample, range(3))), letter="A", arm="large {}")
    (line, _), (band,) = _card_lines([eight, Made(steps=300).story("b", "B")], "watts")
    assert (line.label, line.curve.ys.tolist()) == ("A: large {}, mean of its 5 GPUs", [51.25, 170 / 3, 85.0])
    assert (band.label, band.colour) == ("A: large {}, least to most of its 5 GPUs", line.colour)
    assert (band.low.ys.tolist(), band.high.ys.tolist()) == ([40.0, 50.0, 80.0], [60.0, 70.0, 90.0])
    assert len(_card_lines([eight], "watts")[0]) == 5, "alone it has a line for each card"
    power = next(one for one in pictures([eight, eight]).shown if "GPU power" in one)
    assert power.count('class="band c0"') == 3, "two bands, and the key of their arm"
    assert ">100<" in power, "the axis holds the bands, too"


def keys(charts: Iterable[str], title: str) -> list[str]:
    """Return the texts of a chart's legend."""
    return re.findall("</svg>([^<]*)</li>", next(one for one in charts if f"<strong>{title}" in one))


def test_the_model_of_a_run_s_cards_is_named_once_if_they_are_alike() -> None:
    def charts(*names: str | None) -> tuple[str, ...]:
        gpus = [{"uuid": f"GPU-{at}", "index": at, "name": name, "watts": 60.0} for at, name in enumerate(names)]
        return pictures([read_story(RUN, [], [{"t": STARTED + t, "gpus": gpus} for t in range(3)])]).shown

    (alike,) = charts("H100", "H100")
    assert keys([alike], "GPU power") == ["GPU 0", "GPU 1"]
    assert '<span class="unit">W · 2 × H100</span>' in alike
    assert keys(charts("H100", "A100"), "GPU power") == ["GPU 0 (H100)", "GPU 1 (A100)"]
    (single,) = charts("H100")
    assert keys([single], "GPU power") == [], "a line alone needs no key"
    assert '<span class="unit">W · H100</span>' in single
    assert keys(charts(None, None), "GPU power") == ["GPU 0", "GPU 1"]


def test_in_a_comparison_s_charts_an_arm_has_one_key_and_each_run_its_words_in_the_description() -> None:
    rounds = [
        replace(made.story(f"run-{letter}", letter), arm=arm, colour=colour)
        for letter, (arm, colour, made) in zip(
            "ABCD", [("cpu", 0, Made("cpu", steps=100)), ("gpu: one", 1, Made(steps=100, held=True))] * 2, strict=True
        )
    ]
    shown = pictures(rounds).shown
    assert keys(shown, "Throughput") == ["cpu", "gpu: one"]
    assert keys(shown, "GPU power") == ["gpu: one"]
    held = "gpu: one, held down: sw_thermal_slowdown"
    assert keys(shown, "GPU clocks") == ["gpu: one", f"B: {held}", f"D: {held}"], "which run was is said"
    assert re.search("A: cpu ranges .* B: gpu: one ranges .* C: cpu ranges .* D: gpu: one ranges ", shown[0])


def test_a_cpu_and_fifteen_cards_have_each_a_line_of_their_own() -> None:
    assert len({_style(colour, alone=False) for colour in range(16)}) == 16


def test_of_several_runs_with_several_cards_each_line_says_which_card_and_looks_like_no_other() -> None:
    def story(letter: str, cards: int) -> Story:
        gpus = [{"uuid": f"GPU-{at}", "index": at, "watts": 60.0} for at in range(cards)]
        samples = [{"t": STARTED + t, "gpus": gpus} for t in range(3)]
        return replace(read_story(replace(RUN, device="gpu"), [], samples), letter=letter)

    lines, _ = _card_lines([story("A", 4), story("B", 4)], "watts")
    assert [line.label for line in lines[2:6]] == ["A on GPU 2", "A on GPU 3", "B on GPU 0", "B on GPU 1"]
    assert len({_style(line.colour, alone=False, dash=line.dash) for line in lines}) == 8
    assert len({line.colour for line in lines}) == 2, "a run has its colour in all charts"
    assert [line.label for line in _card_lines([story("A", 1), story("B", 1)], "watts")[0]] == ["A on GPU", "B on GPU"]
    own = [replace(it, run=replace(it.run, device=None)) for it in (story("A", 1), story("B", 1))]
    assert [line.label for line in _card_lines(own, "watts")[0]] == ["A", "B"], "of commands"
    arms = [replace(story(letter, 2), arm="large") for letter in "AB"]
    assert _card_lines(arms, "watts")[0][1].label == "A: large, GPU 1"


def test_cards_of_several_nodes_with_one_number_are_told_apart_and_more_than_there_are_colours_are_a_band() -> None:
    def lines(nodes: int, cards: int, *others: Story, names: Sequence[str] = ()) -> list[str]:
        gpus = [
            {"uuid": f"GPU-{node:04}{at:04}-1a2b", "index": at, "name": "H100", "watts": 60.0}
            for node in range(nodes) for at in range(cards)
        ]  # fmt: skip
        told = Summary(gpus=tuple(GpuSummary(f"GPU-{at:04}0000-1a2b", node=name) for at, name in enumerate(names)))
        run = replace(RUN, device="gpu", summary=told)
        story = read_story(run, [], [{"t": STARTED + t, "gpus": gpus} for t in range(3)])
        drawn, bands = _card_lines([story, *others], "watts")
        return [it.label for it in (*drawn, *bands)]

    assert lines(2, 1, names=("n1", "n2")) == ["GPU 0 of n1", "GPU 0 of n2"]
    assert lines(2, 1) == ["GPU 0 (GPU-00000000)", "GPU 0 (GPU-00010000)"]
    assert lines(2, 1, Made(steps=20).story("b", "B"))[:2] == [f"A on {one}" for one in lines(2, 1)]
    assert len(lines(2, 4)) == 8
    assert lines(2, 8) == ["mean of its 16 GPUs", "least to most of its 16 GPUs"]
