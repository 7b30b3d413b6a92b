"""The answers of an experiment: each rule on both sides of its thresholds, with the spread of the rounds."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngcdl.report.compared.arm import Figures
from ngcdl.report.compared.beside import COMPUTE_BOUND, INPUT_BOUND, bound
from ngcdl.report.compared.fit import TOLERANCE, fitted
from ngcdl.report.compared.questions import answers
from ngcdl.report.measured.spread import Spread, duration
from ngcdl.trainings import Bundled, bundled

CIFAR10, INFERENCE = bundled("cifar10"), bundled("inference")
WOBBLE = (1.0, 1.02, 0.98)


def arm(value: str, seconds: float, batch: int = 8, rounds: int = 3, **more: object) -> Figures:
    """An arm whose rounds vary by 2 % around `seconds` a step, in the same way for all arms."""
    steps = {at: seconds * WOBBLE[at - 1] for at in range(1, rounds + 1)}
    made = Figures(value, {at: batch / step for at, step in steps.items()}, steps, "cpu")
    return replace(made, **more)  # type: ignore[arg-type]  # fields of Figures


def rate(value: str, examples_per_second: float, **more: object) -> Figures:
    return arm(value, 8 / examples_per_second, **more)  # type: ignore[arg-type]  # of arm


def told(vary: str, *arms: Figures, scaling: str | None = None, of: Bundled = CIFAR10) -> str:
    return " ".join(answer.text for answer in answers(vary, of, arms, scaling))


# -- batch ----------------------------------------------------------------------------------------------------------


def of_batch(size: int, seconds: float | None = None, **more: object) -> Figures:
    return arm(str(size), seconds or 0.0019 + 0.00003 * size, size, examples=50_000, **more)  # type: ignore[arg-type]


def test_two_batches_are_told_as_the_time_of_an_epoch_and_no_line_is_laid_through_them() -> None:
    assert told("batch", of_batch(8), of_batch(64)) == (
        "An epoch takes 4.48 times (4.48..4.48) as long with batches of 8 as with batches of 64: "
        "13.4 s (13.1..13.6) and 2.98 s (2.92..3.04) for 50,000 examples."
    )


def test_three_batches_say_what_a_step_costs_whatever_its_batch_and_what_an_example_costs() -> None:
    assert told("batch", of_batch(64), of_batch(8), of_batch(32)).startswith(
        "A step costs 1.90 ms (1.86..1.94) whatever its batch, plus 30.0 µs (29.4..30.6) per example: "
        "a batch of 8 spends 89 % (89..89) of its time on the former. An epoch takes 4.48 times"
    )


def test_batches_that_lie_on_no_line_are_told_without_one() -> None:
    text = told("batch", of_batch(8), of_batch(32, 0.006), of_batch(64))
    assert "A step costs" not in text
    assert text.startswith("An epoch takes 4.48 times")


def test_the_fastest_batch_is_named_where_it_is_between() -> None:
    text = told("batch", of_batch(8), of_batch(32), of_batch(64, 0.02))
    assert text.endswith("The fastest is a batch of 32: 3.50 times (3.50..3.50) the work of batches of 64.")
    text = told("batch", of_batch(8, 0.01), of_batch(32, 0.02), of_batch(64, 0.08))
    assert text.startswith("No measurable difference between batches of 8 and of 64: 1.00 times (1.00..1.00). The fast")
    for seconds in ((0.001, 0.02, 0.05), (0.01, 0.0199, 0.04)):  # the first is the fastest; the last is as fast as it
        made = [of_batch(size, took) for size, took in zip((8, 32, 64), seconds, strict=True)]
        assert "The fastest is" not in told("batch", *made)


def test_of_one_round_no_answer_is_given() -> None:
    asked = {
        "batch": "8 16 32", "threads": "1 2 4", "gpus": "1 2", "precision": "float32 amp",
        "feed": "input constant ahead plain resident", "teacher": "none before ahead kept",
    }  # fmt: skip
    for vary, values in asked.items():
        assert told(vary, *(rate(one, 100.0 + at, rounds=1) for at, one in enumerate(values.split()))) == "", vary


def test_batches_between_which_no_difference_can_be_told() -> None:
    one = replace(of_batch(8), rates={1: 100.0, 2: 90.0}, seconds={})
    other = replace(of_batch(64), rates={1: 95.0, 2: 99.0}, seconds={})
    assert told("batch", one, other) == (
        "No measurable difference between batches of 8 and of 64: 1.02 times (0.95..1.10)."
    )


@given(st.floats(1e-5, 1.0), st.floats(1e-7, 1e-2))
def test_a_line_is_found_again_wherever_there_is_one(step: float, example: float) -> None:
    sizes = (1, 8, 64, 256)
    line = fitted(sizes, [[(step + example * size) * wobble for size in sizes] for wobble in WOBBLE])
    assert line
    assert (line.step.median, line.example.median) == pytest.approx((step, example), rel=1e-6)
    assert (line.step.min, line.step.max) == pytest.approx((0.98 * step, 1.02 * step), rel=1e-6)
    assert line.share.median == pytest.approx(step / (step + example))


@pytest.mark.parametrize(("seconds", "is_told"), [
    ((2.0, 3.0, 5.0), True),
    ((2.0, 3.0 * (1 + TOLERANCE), 5.0), True),
    ((2.0, 3.0 * (1 + 3 * TOLERANCE), 5.0), False),
    ((2.0, 2.0, 2.0), False),  # an example costs nothing
    ((1.0, 2.0, 4.0), False),  # a step costs nothing
])  # fmt: skip
def test_a_line_that_would_tell_what_the_figures_do_not_is_none(seconds: tuple[float, ...], is_told: bool) -> None:
    assert (fitted((1, 2, 4), [seconds, seconds]) is not None) is is_told
    assert fitted((1, 2, 4), [seconds]) is None
    assert fitted((1, 2), [seconds[:2]] * 3) is None


def test_a_line_may_miss_a_batch_by_what_its_own_rounds_lie_apart() -> None:
    assert fitted((1, 2, 4), [(2.0, 3.3, 5.0)] * 2) is None
    assert fitted((1, 2, 4), [(2.0, 3.0, 5.0), (2.0, 3.6, 5.0)])


# -- feed -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ratio", "name"), [
    (0.89, "input-bound"), (0.91, "balanced"), (1.49, "balanced"), (1.51, "compute-bound"),
])  # fmt: skip
def test_what_sets_the_pace_is_decided_by_the_pipeline_alone_against_the_network_alone(ratio: float, name: str) -> None:
    assert bound(ratio) == name
    text = told("feed", rate("input", 100.0 * ratio), rate("constant", 100.0), rate("ahead", min(100.0, 100.0 * ratio)))
    assert text.startswith(f"This training is {name}: the pipeline alone makes {ratio:.2f} times (")
    assert text.endswith("Together they reach 100 % (100..100) of the slower of the two.")


def test_a_pipeline_and_a_network_that_wait_for_each_other_are_told_with_the_reason() -> None:
    arms = [rate("input", 200.0), rate("constant", 100.0), rate("ahead", 70.0)]
    assert told("feed", *arms).endswith(
        "Together they reach 70 % (70..70) of the slower of the two; on a CPU they share its cores."
    )
    on_gpu = [replace(one, device="gpu") for one in arms]
    assert told("feed", *on_gpu).endswith("of the slower of the two; they wait for each other.")


def test_the_thresholds_themselves_are_balanced() -> None:
    assert bound(INPUT_BOUND) == bound(COMPUTE_BOUND) == "balanced"


def test_rounds_on_both_sides_of_a_threshold_do_not_agree() -> None:
    pipeline = replace(rate("input", 1.0), rates={1: 80.0, 2: 95.0, 3: 99.0})
    text = told("feed", pipeline, rate("constant", 100.0), rate("ahead", 80.0))
    assert text.startswith("The rounds disagree on whether this training is input-bound or balanced:")


def test_what_holding_the_data_on_the_device_buys_and_what_is_left_to_the_upper_bound() -> None:
    text = told("feed", rate("plain", 100.0), rate("ahead", 120.0), rate("resident", 150.0), rate("constant", 200.0))
    assert text == (
        "Holding the data on the device does 1.50 times (1.50..1.50) the work of making and copying each batch on "
        "demand. Making batches ahead does 1.20 times (1.20..1.20) the work of that. Holding the data on the device "
        "reaches 75 % (75..75) of the upper bound, the same batch on the device at every step."
    )


@pytest.mark.parametrize(("best", "is_told"), [(1.05, True), (1.06, False)])
def test_more_than_a_bound_is_not_told_to_have_been_reached(best: float, is_told: bool) -> None:
    upper = replace(rate("constant", 1.0), rates={1: 100.0, 2: 100.0, 3: 100.0})
    resident = replace(rate("resident", 1.0), rates={1: 90.0, 2: 95.0, 3: 100.0 * best})
    assert ("of the upper bound" in told("feed", rate("plain", 50.0), resident, upper)) is is_told
    pipeline = replace(upper, value="input", rates=dict.fromkeys((1, 2, 3), 200.0))
    text = told("feed", pipeline, upper, replace(resident, value="ahead"))
    assert text.startswith("This training is compute-bound")
    assert ("Together they reach" in text) is is_told


def test_a_teacher_more_than_wholly_hidden_is_told_without_the_share() -> None:
    text = told("teacher", *teacher(ahead=0.02))
    assert "the student 30.0 ms (29.4..30.6): the teacher keeps up." in text
    assert "hidden" not in text


def test_where_holding_the_data_buys_nothing_that_is_said() -> None:
    resident = replace(rate("resident", 1.0), rates={1: 99.0, 2: 102.0, 3: 98.5})
    text = told("feed", rate("plain", 100.0), resident)
    assert text == (
        "No measurable difference between holding the data on the device and making and copying each batch on demand: "
        "0.99 times (0.97..1.04)."
    )


def test_an_arm_without_figures_takes_only_the_sentences_that_need_it() -> None:
    feeds = [rate(one, 100.0 + 20 * at) for at, one in enumerate(("input", "plain", "ahead", "resident", "constant"))]
    taught = [*teacher(ahead=0.0306), arm("together", 0.06), arm("kept", 0.033)]
    for vary, arms in (("feed", feeds), ("teacher", taught)):
        plain = [one for one in arms if one.value != "ahead"]  # in whose place it stands beside the pipeline
        whole = {answer.text for every in (arms, plain) for answer in answers(vary, CIFAR10, every)}
        for number in range(len(arms)):
            for left in combinations(arms, number):
                assert {answer.text for answer in answers(vary, CIFAR10, left)} <= whole


# -- teacher --------------------------------------------------------------------------------------------------------


def teacher(ahead: float, before: float = 0.05, alone: float = 0.03) -> list[Figures]:
    return [arm("none", alone), arm("before", before), arm("ahead", ahead)]


def test_a_teacher_hidden_behind_its_student_costs_nothing_that_matters() -> None:
    text = told("teacher", *teacher(ahead=0.0306))
    assert text.startswith(
        "A teacher on the CPU, ahead of the student, costs next to nothing: "
        "a step takes 1.02 times (1.02..1.02) as long."
    )
    assert (
        "The teacher takes 20.0 ms (19.6..20.4) per batch, the student 30.0 ms (29.4..30.6): the teacher keeps up"
        in text
    )
    assert "97 % (97..97) of the shorter of the two is hidden behind the longer." in text


def test_a_teacher_that_takes_longer_than_its_student_holds_it_up() -> None:
    text = told("teacher", *teacher(ahead=0.06, before=0.08))
    assert "With a teacher on the CPU, ahead of the student, a step takes 2.00 times (2.00..2.00) as long." in text
    assert "the student 30.0 ms (29.4..30.6): the teacher can't keep up" in text


def test_a_teacher_whose_time_does_not_show_is_not_made_up() -> None:
    assert "The teacher takes" not in told("teacher", *teacher(ahead=0.03, before=0.03))


def test_a_teacher_that_costs_less_in_one_round_and_more_in_another_is_not_told() -> None:
    ahead = replace(arm("ahead", 1.0), seconds={1: 0.029, 2: 0.033, 3: 0.034})
    assert told("teacher", arm("none", 0.03), ahead).startswith("Whether a teacher on the CPU slows its student")


def test_the_other_ways_of_teaching_are_told_against_none() -> None:
    text = told("teacher", arm("none", 0.03), arm("together", 0.06), arm("kept", 0.033))
    assert "With the teacher on the student's own device, in turn, a step takes 2.00 times (2.00..2.00) as long" in text
    assert "With the teacher's answers computed beforehand, a step takes 1.10 times (1.10..1.10) as long" in text
    even = told("teacher", arm("none", 0.03), arm("together", 0.0301), arm("kept", 0.03))
    for what in ("the teacher on the student's own device, in turn", "the teacher's answers computed beforehand"):
        said = (
            f"No measurable difference between a step with {what}, and one without a teacher: 1.00 times (1.00..1.00)."
        )
        assert said in even


# -- threads, cards, precision --------------------------------------------------------------------------------------


def test_the_fastest_number_of_threads_is_named_and_that_more_than_the_physical_cores_hurt() -> None:
    arms = [rate(str(n), speed, cores=4) for n, speed in ((1, 100.0), (8, 150.0), (2, 180.0), (4, 300.0))]
    assert told("threads", *arms) == (
        "Fastest with 4 threads: 3.00 times (3.00..3.00) the work of 1 thread. 8 threads do 0.50 times (0.50..0.50) "
        "the work of 4: more threads than the 4 physical cores hurt."
    )
    filled = [replace(one, cores=8) for one in arms]
    assert told("threads", *filled).endswith("8 threads do 0.50 times (0.50..0.50) the work of 4.")
    faster_beyond = [rate(str(n), speed, cores=4) for n, speed in ((4, 100.0), (8, 130.0), (16, 110.0))]
    assert told("threads", *faster_beyond).endswith("16 threads do 0.85 times (0.85..0.85) the work of 8.")
    unknown = [replace(one, cores=None) for one in arms]
    assert told("threads", *unknown).endswith("8 threads do 0.50 times (0.50..0.50) the work of 4.")


def test_how_long_a_teacher_takes_with_so_many_threads_is_told_where_it_was_measured() -> None:
    taught = ({1: 0.012, 2: 0.014}, {1: 0.007, 2: 0.0072})
    one, two = (rate(str(n), 100.0, taught=seconds) for n, seconds in enumerate(taught, 1))
    assert told("threads", one, two) == (
        "Per batch the teacher takes 13.0 ms (12.0..14.0) with 1 thread; 7.10 ms (7.00..7.20) with 2 threads."
    )


def test_the_first_number_of_threads_is_the_fastest_only_where_others_are_slower_in_all_rounds() -> None:
    assert told("threads", rate("1", 100.0), rate("2", 80.0)) == (
        "Fastest with 1 thread. 2 threads do 0.80 times (0.80..0.80) the work of 1."
    )
    assert told("threads", rate("1", 100.0), rate("2", 100.0)) == ""


def test_the_best_of_several_is_named_with_those_that_can_t_be_told_from_it() -> None:
    threads = [rate(str(n), speed) for n, speed in ((1, 100.0), (2, 200.0), (4, 201.0))]
    assert told("threads", *threads) == (
        "Fastest with 4 threads (not measurably faster than 2): 2.01 times (2.01..2.01) the work of 1 thread."
    )
    text = told("batch", of_batch(8), of_batch(32, 0.004), of_batch(64, 0.008), of_batch(128, 0.032))
    assert text.endswith(
        "The fastest is a batch of 32 (not measurably faster than 64): 2.00 times (2.00..2.00) the work of batches of "
        "128."
    )


def test_cards_are_told_by_what_each_of_them_still_does() -> None:
    assert told("gpus", rate("4", 300.0), rate("1", 100.0)) == (
        "Strong scaling: 4 GPUs do 300.0 (294.1..306.1) examples/s, 3.00 times (3.00..3.00) the work of 1 GPU, an "
        "efficiency of 75 % (75..75)."
    )
    assert told("gpus", rate("2", 100.0), rate("4", 150.0)).endswith(
        "the work of 2 GPUs, an efficiency of 75 % (75..75)."
    )
    assert told("gpus", rate("all", 300.0), rate("1", 100.0)) == "", "how many were all is not known"


def test_cards_between_which_no_difference_can_be_told_are_said_to_have_none() -> None:
    one, two = (replace(rate("1", 1.0), value=n, rates=dict(enumerate(rates, 1)))
                for n, rates in (("1", (100.0, 101.0)), ("2", (100.5, 100.2))))  # fmt: skip
    even = "o measurable difference between 2 nodes and 1: 1.00 times (0.99..1.00), an efficiency of 50 % (50..50)"
    assert told("nodes", one, two, scaling="own") == f"N{even}."
    assert told("nodes", one, two, replace(two, value="4"), scaling="weak").startswith(
        f"Weak scaling: n{even}; no measurable difference between 4 nodes and 1: "
    )


def test_the_batch_is_told_as_that_of_all_or_of_each_replica() -> None:
    one = replace(rate("1", 100.0), batch=256, replicas=8)
    two = replace(rate("2", 190.0), batch=512, replicas=16)
    assert told("nodes", one, two, scaling="weak") == (
        "Weak scaling, a batch of 32 per replica: 2 nodes do 190.0 (186.3..193.9) examples/s, "
        "1.90 times (1.90..1.90) the work of 1 node, an efficiency of 95 % (95..95)."
    )
    assert told("nodes", one, two, scaling="strong").startswith("Strong scaling, a batch of 256 in all: 2 nodes do ")
    unknown = replace(one, replicas=None)
    assert told("nodes", unknown, two, scaling="weak").startswith("Weak scaling: 2 nodes do ")


def test_what_of_a_step_nodes_do_not_share_is_told_where_a_line_shows_it() -> None:
    arms = [arm(str(nodes), 0.1 + 0.4 / nodes) for nodes in (1, 2, 4)]
    kept = "Of each step, 100 ms (98..102) stays however many share it: 50 % (50..50) of a step on 4 nodes."
    assert told("nodes", *arms).endswith(f"; 4 nodes do 40.0 (39.2..40.8) examples/s, 2.50 times (2.50..2.50) the work "
                                         f"of 1 node, an efficiency of 62 % (62..62). {kept}")  # fmt: skip
    assert "stays" not in told("nodes", *arms[:2])
    assert "stays" not in told("nodes", *arms[:2], arm("4", 0.3)), "they lie on no line"
    assert "stays" not in told("nodes", *arms, scaling="weak")


@pytest.mark.parametrize(("speed", "said"), [
    (193.0, "amp is faster: 1.93 times (1.93..1.93) the speed of float32."),
    (50.0, "amp is slower: 0.50 times (0.50..0.50) the speed of float32."),
    (100.0, "amp makes no measurable difference: 1.00 times (1.00..1.00) the speed of float32."),
])  # fmt: skip
def test_what_a_precision_buys(speed: float, said: str) -> None:
    assert told("precision", rate("float32", 100.0), rate("amp", speed)) == said


# -- all examples, such as a film -----------------------------------------------------------------------------------


def test_inference_is_told_as_the_seconds_of_a_whole_video_beside_the_ratios() -> None:
    arms = [rate("cpu", 5.0, examples=222), rate("gpu", 222.0, examples=222)]
    (said,) = answers("device", INFERENCE, arms)
    assert said.text == "222 frames: CPU 44.4 s (43.5..45.3), 5.0 a second; GPU 1.00 s (0.98..1.02), 222.0 a second."
    assert not said.is_whole
    frames = [rate("1", 4.0, examples=222), rate("32", 5.0, examples=222)]
    assert told("batch", *frames, of=INFERENCE) == (
        "The film takes 1.25 times (1.25..1.25) as long with batches of 1 as with batches of 32. 222 frames: batch 1 "
        "55.5 s (54.4..56.6), 4.0 a second; batch 32 44.4 s (43.5..45.3), 5.0 a second."
    )
    assert told("batch", rate("1", 4.0), of=INFERENCE) == "Frames: batch 1 4.0 a second."
    assert told("batch", rate("1", 0.0123), of=INFERENCE) == "Frames: batch 1 0.012 a second."
    book = replace(CIFAR10, whole="book", unit="pages")
    assert told("batch", *frames, of=book).startswith("The book takes 1.25 times (1.25..1.25) as long with batches")
    assert " 222 pages: batch 1 55.5 s" in told("batch", *frames, of=book)


def test_how_long_one_batch_takes_is_told_where_it_was_measured() -> None:
    one = rate("cpu", 5.0, p50={1: 0.137, 2: 0.135, 3: 0.139}, p95={1: 0.16, 2: 0.158, 3: 0.171})
    assert told("device", one, rate("gpu", 222.0), of=INFERENCE) == (
        "Frames: CPU 5.0 a second; GPU 222.0 a second. "
        "From requesting a batch to its result: CPU p50 137 ms (135..139), p95 160 ms (158..171)."
    )


def test_what_nobody_asked_has_no_answer_and_nothing_measured_has_none_either() -> None:
    assert answers("device", CIFAR10, [rate("cpu", 1.0), rate("gpu", 2.0)]) == ()
    assert answers("seed", None, [rate("0", 1.0), rate("1", 2.0)]) == ()
    for vary in ("batch", "feed", "teacher", "threads", "gpus", "precision"):
        assert answers(vary, INFERENCE, [Figures("8"), Figures("64")]) == ()


@pytest.mark.parametrize(("seconds", "text"), [
    (245.0, "245 s"), (45.23, "45.2 s"), (1.5, "1.50 s"), (0.0345, "34.5 ms"), (0.00003, "30.0 µs"),
])  # fmt: skip
def test_a_duration_has_three_digits_that_count(seconds: float, text: str) -> None:
    assert duration(Spread(seconds, seconds, seconds)) == text
