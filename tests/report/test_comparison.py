"""Runs are compared round by round; a ratio comes with its spread, and without a spread there is no ratio."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_arms import START, arm, arms, measured, refused, text

from ngcdl.record import Finding, GpuSummary, Machine, Summary
from ngcdl.report.compared import in_words
from ngcdl.report.compared.comparison import ONE_PAIR, Arm, comparison
from ngcdl.report.compared.in_words import _listed
from ngcdl.report.compared.pairs import published
from ngcdl.report.compared.theirs import beside
from ngcdl.report.measured.spread import Spread, times


def test_the_ratio_is_the_median_of_the_rounds_own_with_the_least_and_the_most() -> None:
    it = comparison(arms([600.0, 300.0, 500.0], [4680.0, 2400.0, 3800.0]), "device")
    assert [pair.ratio for pair in it.pairs] == pytest.approx([7.8, 8.0, 7.6])
    assert it.ratio is not None
    assert (it.ratio.times.median, it.ratio.times.min, it.ratio.times.max, it.ratio.times.rounds) == pytest.approx(
        (7.8, 7.6, 8.0, 3)
    )
    assert [(arm.name, arm.counted, arm.on) for arm in it.arms] == [
        ("cpu", 3, "Xeon, 16 cores"), ("gpu", 3, "GeForce GTX 1050 Ti")
    ]  # fmt: skip
    speed = it.arms[0].examples_per_second
    assert speed is not None
    assert (speed.median, speed.min, speed.max) == (500.0, 300.0, 600.0)
    assert it.refused == ()


def test_the_verdict_says_that_the_gpu_is_used_and_what_it_does_with_the_spread() -> None:
    it = comparison(arms([600.0, 600.0, 600.0], [4680.0, 4740.0, 4560.0]), "device")
    assert in_words.verdict(it) == "The GPU is used and does 7.80 times (7.60..7.90) the CPU's work."
    slower = comparison(arms([600.0, 600.0], [300.0, 306.0]), "device")
    assert "the CPU is faster here" in in_words.verdict(slower)


@pytest.mark.parametrize(("percent", "said"), [
    (0.0, "The GPU is used (by the framework's account; 0 % busy by NVML's) and does 7.80 times (7.60..7.90)"),
    (0.4, "The GPU is used (by the framework's account; 0.40 % busy by NVML's) and does"),
    (88.4, "The GPU is used (88 % busy) and does 7.80 times"),
])  # fmt: skip
def test_a_gpu_that_nvml_saw_idle_is_not_said_to_be_used(percent: float, said: str) -> None:
    it = comparison(arms([600.0, 600.0, 600.0], [4680.0, 4740.0, 4560.0]), "device")
    seen = replace(it, arms=(it.arms[0], replace(it.arms[1], gpu_percent=percent)))
    assert in_words.verdict(seen).startswith(said)


@pytest.mark.parametrize(("spread", "said"), [
    (Spread(7.81, 7.6, 7.93), "7.81 times (7.60..7.93)"),
    (Spread(0.02, 0.004, 0.11), "0.0200 times (0.0040..0.1100)"),
    (Spread(0.0051, 0.0044, 0.0057), "0.0051 times (0.0044..0.0057)"),
    (Spread(50.0, 45.0, 60.0), "50.0 times (45.0..60.0)"),
    (Spread(0.0, 0.0, 0.2), "0.00 times (0.00..0.20)"),
])  # fmt: skip
def test_a_ratio_that_is_not_0_is_not_written_as_0(spread: Spread, said: str) -> None:
    assert times(spread) == said


def test_one_round_gives_both_figures_and_no_ratio() -> None:
    it = comparison(arms([600.0], [4680.0]), "device")
    assert (it.ratio, it.ratios, it.why_no_ratio()) == (None, (), ONE_PAIR)
    assert it.as_json()["ratio"] is None
    assert "7.8" not in text(replace(it, published=None)).replace("4,680.0", "")
    assert "600.0" in in_words.verdict(it)
    assert "4,680.0" in in_words.verdict(it)


def test_where_the_rounds_do_not_agree_no_difference_is_told() -> None:
    it = comparison(arms([100.0, 100.0, 100.0], [97.0, 103.0, 101.0]), "device")
    assert "No measurable difference between the GPU and the CPU: 1.01 times (0.97..1.03)" in in_words.verdict(it)


@pytest.mark.parametrize(("rounds", "is_told"), [
    ((100.1, 100.3, 100.2), False),  # printed as 1.00 (1.00..1.00)
    ((101.0,) * 3, True), ((100.9,) * 3, False), ((99.0,) * 3, True), ((99.1,) * 3, False),
    ((102.0, 106.0), False), ((102.0, 104.0), True), ((98.0, 94.0), False), ((98.0, 96.1), True),
    ((102.0, 104.1, 103.0, 103.0), False), ((102.0, 104.1, 103.0, 103.0, 103.0), True),
])  # fmt: skip
def test_a_difference_is_told_of_all_rounds_by_a_hundredth_and_of_few_where_they_lie_closer_to_each_other(
    rounds: tuple[float, ...], is_told: bool
) -> None:
    it = comparison(arms([100.0] * len(rounds), [*rounds]), "device")
    assert it.ratio is not None
    assert it.ratio.times.is_told is is_told
    spread = Spread.of([rate / 100 for rate in rounds])
    assert spread is not None
    assert spread.is_told is is_told
    assert ("No measurable difference" in in_words.verdict(it)) is not is_told


def test_each_arm_is_set_against_the_first_and_the_ratio_is_the_last_one_s() -> None:
    made = [
        Arm(f"threads={n}", tuple(measured(f"{n}-{i}", 100.0 * n + i, workload={"threads": n}) for i in (1, 2)))
        for n in (1, 2, 32)
    ]
    it = comparison(made, "threads")
    assert refused(it) == []
    assert [(ratio.arm, ratio.against) for ratio in it.ratios] == [
        ("threads=2", "threads=1"), ("threads=32", "threads=1")
    ]  # fmt: skip
    assert it.ratio == it.ratios[1]
    assert in_words.verdict(it).startswith("Fastest with 32 threads: 31.5 times (31.4..31.7) the work of 1 thread.")
    assert any("32 threads on 16 processors" in said for said in it.diagnosis)


@pytest.mark.parametrize(("vary", "names", "said"), [
    ("channels", ("first", "last"), "Channels last does 2.00 times (2.00..2.00) the work of channels first."),
    ("compile", ("off", "on"), "Compile on does 2.00 times (2.00..2.00) the work of compile off."),
])  # fmt: skip
def test_the_verdict_names_what_was_varied_with_its_value(vary: str, names: tuple[str, str], said: str) -> None:
    made = [arm(f"{vary}={names[0]}", 100.0), arm(f"{vary}={names[1]}", 200.0)]
    assert said in in_words.verdict(comparison(made, vary))


def test_a_round_without_one_of_its_runs_gives_no_ratio() -> None:
    made = arms([600.0, 600.0, 600.0], [4680.0, 4700.0])
    it = comparison(made, "device")
    assert [pair.ratio is None for pair in it.pairs] == [False, False, True]
    assert it.pairs[2].runs == ("c3", None)


def test_what_the_runs_were_held_back_by_is_the_arm_s_and_stands_once_with_its_advice_below() -> None:
    def busy(rule: str, percent: int) -> tuple[Finding, ...]:
        return (Finding(rule, f"The CPU is {percent} % busy.", advice="Try more threads:\n    --threads 8"),)

    cpu = arm("cpu", 600.0, findings=busy("cpu", 99))
    gpu = arm("gpu", 4000.0, "gpu", findings=busy("cpu", 47) + busy("other", 1))
    it = comparison([cpu, gpu], "device", ["said before"])
    advice = "\n  Try more threads:\n      --threads 8"
    assert it.diagnosis == (
        "said before",
        f"cpu: The CPU is 99 % busy.\ngpu: The CPU is 47 % busy.{advice}",
        f"gpu: The CPU is 1 % busy.{advice}",
    )


def test_rounds_far_apart_are_told() -> None:
    it = comparison(arms([600.0, 800.0], [4000.0, 4000.0]), "device")
    (said,) = it.diagnosis
    assert said.startswith("cpu: its rounds are 33 % apart")
    verdict = in_words.verdict(it)
    assert verdict.startswith("Something disturbed the rounds of cpu: measure again. The GPU ")
    assert verdict.endswith("times (5.00..6.67) the CPU's work.")
    assert "disturbed" not in in_words.verdict(comparison(arms([600.0, 700.0], [4000.0, 4000.0]), "device"))


@pytest.mark.parametrize(("shared", "said"), [
    (None, ("it is not known whether others computed on the GPU meanwhile",)), (False, ()),
])  # fmt: skip
def test_it_is_told_if_nobody_knows_whether_others_computed_on_the_gpu(
    shared: bool | None, said: tuple[str, ...]
) -> None:
    summary = Summary(examples_per_second=4000.0, gpus=(GpuSummary("GPU-1", "a card"),), shared_gpu=shared)
    made = [arm("cpu", 600.0), arm("gpu", 4000.0, "gpu", summary=summary)]
    assert comparison(made, "device").diagnosis == said


def test_too_many_threads_are_told_once_also_where_a_run_was_too_short_for_findings() -> None:
    found = (Finding("oversubscribed", "32 threads compute on 16 cores.", {}),)
    for findings, said in (((), "32 threads on 16 processors"), (found, "threads=32: 32 threads compute on 16 cores.")):
        made = [arm(f"threads={n}", 9.0, workload={"threads": n}, findings=findings if n > 16 else ()) for n in (1, 32)]
        (told,) = comparison(made, "threads").diagnosis
        assert told.startswith(said)


def test_more_threads_than_a_local_run_may_use_processors_are_too_many_however_many_the_machine_has() -> None:
    of_four = {"engine": "local", "machine": Machine(cores=16, usable_cores=3.5)}
    made = [arm(f"threads={n}", 9.0, workload={"threads": n}, **of_four) for n in (4, 8)]
    (told,) = comparison(made, "threads").diagnosis
    assert told.startswith("8 threads on 3.5 processors")


def test_an_arm_that_was_refused_takes_no_ratio_from_the_others() -> None:
    made = [
        arm(f"threads={n}", 100.0 * n, workload={"threads": n}, status="failed" if n == 4 else "finished")
        for n in (1, 2, 4)
    ]
    it = comparison(made, "threads")
    assert it.ratio is None
    assert in_words.verdict(it) == (
        "Fastest with 2 threads: 2.00 times (2.00..2.00) the work of 1 thread. Left out: threads=4 failed."
    )


@pytest.mark.parametrize(("change", "why"), [
    ({"status": "failed"}, "threads=4 failed"), (None, "use --repeat 2 or more"),
])  # fmt: skip
def test_an_arm_with_too_few_rounds_for_a_ratio_is_named_beside_the_answer_of_the_others(
    change: dict[str, Any] | None, why: str
) -> None:
    four = measured("4-1", 150.0, workload={"threads": 4})
    second = measured("4-2", 150.0, workload={"threads": 4}, **change) if change else None
    made = [arm(f"threads={n}", 100.0 * n, workload={"threads": n}) for n in (1, 2)]
    assert in_words.verdict(comparison([*made, Arm("threads=4", (four, second))], "threads")) == (
        "Fastest with 2 threads: 2.00 times (2.00..2.00) the work of 1 thread. "
        f"Left out: 4 threads (one pair, no spread: {why})."
    )


def test_an_arm_that_became_nan_is_named_and_the_others_are_answered() -> None:
    nan = {"status": "failed", "error": "nan", "reason": "nan: the loss of step 12 is NaN"}
    made = [arm("batch=4", None, workload={"batch": 4}, **nan)]
    made += [arm(f"batch={n}", 10.0 * n, workload={"batch": n}) for n in (8, 64)]
    assert in_words.verdict(comparison(made, "batch")) == (
        "An epoch takes 8.00 times (8.00..8.00) as long with batches of 8 as with batches of 64. "
        "Left out: batch=4 failed: nan: the loss of step 12 is NaN."
    )


def test_of_several_arms_each_without_a_ratio_is_told_its_own_reason() -> None:
    made = [arm(f"seed={n}", 100.0, workload={"seed": n}) for n in (0, 1, 2)]
    it = comparison([made[0], Arm("seed=1", made[1].rounds[:1]), made[2]], "seed")
    assert in_words.verdict(it).endswith(" No ratio is given for seed 1 (one pair, no spread: use --repeat 2 or more).")


def test_energy_is_in_the_table_where_a_card_told_it() -> None:
    summary = Summary(examples_per_second=4000.0, examples_per_joule=64.0)
    it = comparison(arms([600.0], [0.0], (1, measured("g1", 4000.0, "gpu", summary=summary))), "device")
    head, cpu, gpu, *_ = text(it).splitlines()
    assert "EXAMPLES/J" in head
    assert (head.index("EXAMPLES/J"), cpu[head.index("EXAMPLES/J") :][:3]) == (gpu.index("64.00"), "n/a")
    assert "EXAMPLES/J" not in text(comparison(arms([600.0], [4680.0]), "device"))


def test_synthetic_data_is_said_wherever_figures_stand() -> None:
    it = comparison([arm("cpu", 9.0, dataset="synthetic", dataset_note="no network")], "device")
    assert "SYNTHETIC" in text(it)
    assert "no network" in text(it)
    assert it.as_json()["synthetic"] is True
    assert in_words.verdict(it) == "Only the CPU was measured: 9.0 examples/s."


def test_what_was_published_stands_beside_with_its_hardware() -> None:
    it = comparison(arms([600.0] * 2, [4680.0] * 2), "device")
    theirs = it.as_json()["published"]
    assert (theirs["cpu_examples_per_second"], theirs["gpu_examples_per_second"], theirs["ratio"]) == (
        599.9,
        4688.2,
        7.81,
    )
    assert "Xeon E5-2658" in text(it)
    assert "GTX 1050 Ti: 7.81 times; one figure each, no spread" in text(it)
    assert published("no-such-workload") is None


def test_figures_that_others_published_stand_only_beside_what_they_answer() -> None:
    def of(workload: str, vary: str) -> str:
        made = [arm(f"{vary}={n}", 9.0, workload={"name": workload, vary: n}) for n in (8, 64)]
        return text(comparison(made, vary))

    assert "published: cross-validation, batch 8: about 35 min on GeForce GTX 760 2 GB" in of("batch-sweep", "batch")
    assert "published: 222 frames: 40 to 50 s on Core i7 2.8 GHz" in of("inference", "batch")
    assert "published: times as fast: 5.3 to 6.7 on Titan X" in of("inference", "batch")
    for workload, vary in (("cifar10", "batch"), ("cifar10", "threads"), ("fcn-s", "threads"), ("batch-sweep", "seed")):
        assert "published" not in of(workload, vary), (workload, vary)


@pytest.mark.parametrize(("workload", "vary", "has"), [
    ("cifar10", "device", True), ("cifar10", "batch", False), ("cifar10", "threads", False),
    ("inference", "batch", True), ("fcn-s", "threads", True), ("fcn-s", "device", True), ("fcn-s", "batch", False),
    ("none-such", "device", False),
])  # fmt: skip
def test_what_others_measured_stands_beside_a_comparison_that_asks_the_same(
    workload: str, vary: str, has: bool
) -> None:
    assert (beside(workload, vary) is not None) is has


def test_no_figure_of_a_training_stands_beside_batches_that_were_dropped() -> None:
    fed = {"start": {**START, "feed": "input"}, "workload": {"feed": "input"}}
    it = comparison([arm(name, 9e5, name, **fed) for name in ("cpu", "gpu")], "device")
    assert it.published is None
    assert "published" not in text(it)


def test_json_holds_in_json_and_has_what_was_promised() -> None:
    it = comparison(arms([600.0] * 3, [4680.0] * 3), "device")
    read = json.loads(json.dumps(it.as_json(), allow_nan=False))
    assert {"pairs", "ratio", "refused", "diagnosis", "arms", "published"} <= set(read)
    assert {"median", "min", "max"} <= set(read["ratio"])
    assert (read["by"], read["spread"]) == ("examples_per_second", None)
    assert comparison(arms([600.0], [4680.0])[:1], "device").as_json()["spread"] is None
    assert (read["ratio"]["told"], [ratio["told"] for ratio in read["ratios"]]) == (True, [True])
    assert comparison(arms([100.0] * 3, [100.1] * 3), "device").as_json()["ratio"]["told"] is False
    assert [pair["round"] for pair in read["pairs"]] == [1, 2, 3]


def test_runs_of_a_training_that_this_ngcdl_does_not_have_are_compared_all_the_same() -> None:
    it = comparison([arm(name, 9.0, workload={"name": "of-another-ngcdl"}) for name in "ab"], "image")
    assert (it.workload, it.answers, it.ratio is not None) == ("of-another-ngcdl", (), True)


def test_nothing_at_all_gives_no_figure() -> None:
    it = comparison([Arm("cpu", ()), Arm("gpu", ())], "device")
    assert (it.pairs, it.ratio, it.synthetic, it.published) == ((), None, None, None)
    assert in_words.verdict(it) == "No ratio is given (no round is complete): nothing was measured."
    assert "n/a" in text(it)


RATE = st.floats(1e-3, 1e6)


@given(st.lists(st.tuples(RATE, RATE), min_size=2, max_size=7))
def test_a_ratio_lies_within_its_spread_and_turns_with_the_arms(rounds: list[tuple[float, float]]) -> None:
    one = Arm("threads=1", tuple(measured(f"a{n}", a, workload={"threads": 1}) for n, (a, _) in enumerate(rounds)))
    two = Arm("threads=2", tuple(measured(f"b{n}", b, workload={"threads": 2}) for n, (_, b) in enumerate(rounds)))
    ratio, turned = comparison([one, two], "threads").ratio, comparison([two, one], "threads").ratio
    assert ratio is not None
    assert turned is not None
    assert ratio.times.min <= ratio.times.median <= ratio.times.max
    assert turned.times.min == pytest.approx(1 / ratio.times.max)
    assert turned.times.max == pytest.approx(1 / ratio.times.min)


def test_names_are_listed_as_people_do() -> None:
    assert [_listed(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
