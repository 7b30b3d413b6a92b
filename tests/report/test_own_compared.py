"""Commands of the user's own are compared by the durations of whole runs, unless all runs reported a speed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_arms import CARD, MACHINE, refused, text

from ngcdl.record import GpuSummary, Image, Run, Summary
from ngcdl.report.compared import in_words
from ngcdl.report.compared.comparison import Arm, Comparison, comparison
from ngcdl.report.compared.unlike import MeasuredRun
from ngcdl.report.shown.bars import bars
from ngcdl.report.shown.page import page
from ngcdl.report.shown.story import SampledCurves as Samples
from ngcdl.report.shown.story import Story, Training

READ = Summary(samples=60, training_samples=60, cpu_percent_mean=40.0)


def own(
    run_id: str, seconds: float, percent: float | None = None, rate: float | None = None, **more: Any
) -> MeasuredRun:
    """A run of train.py that took `seconds`; if `run_id` has "gpu" in it, with a card that was busy `percent`."""
    cards = (GpuSummary(CARD, "a card", percent),) if "gpu" in run_id else ()
    steps = 300 if rate else None
    read = replace(READ, samples=int(seconds), training_samples=int(seconds))
    summary = replace(read, gpus=cards, gpu_percent_mean=percent, examples_per_second=rate, steps=steps)
    run = Run(
        run_id, "finished", 1000.0, 1000.0 + seconds, exit_code=0, engine="docker", image=Image("p:1", "sha256:1"),
        gpu_way="runtime" if cards else "none", gpus=(CARD,) if cards else (), machine=MACHINE,
        spec={"image": "p:1", "command": ["python", "train.py"], "gpus": "all" if cards else "none"}, summary=summary,
    )  # fmt: skip
    return MeasuredRun(replace(run, **more))


def of(cpu: list[MeasuredRun], gpu: list[MeasuredRun]) -> Comparison:
    return comparison([Arm("cpu", tuple(cpu), "cpu"), Arm("gpu", tuple(gpu), "gpu")], "device")


CPU = [own("cpu1", 240.0), own("cpu2", 242.0)]


def test_silent_commands_are_compared_by_how_long_they_took() -> None:
    it = of(CPU, [own("gpu1", 40.0, 43.0), own("gpu2", 44.0, 45.0)])
    assert it.refused == ()
    assert in_words.verdict(it) == (
        "The GPU is used (44 % busy); with it the whole run, start-up included, is 5.75 times (5.50..6.00) as fast."
    )
    assert it.ratio is not None
    assert it.as_json()["by"] == "run_seconds"
    head, cpu, gpu = text(it).splitlines()[:3]
    assert head.split() == ["ARM", "RUNS", "SECONDS", "CPU", "GPU", "DEVICES"]
    assert cpu.split()[:5] == ["cpu", "2", "241.0", "(240.0..242.0)", "40%"]
    assert gpu.endswith("GPU: GeForce GTX 1050 Ti")
    drawn = str(bars(it))
    assert "Time" in drawn
    assert "shorter is faster" in drawn


@pytest.mark.parametrize(("percent", "told"), [
    (1.0, "The GPU is hardly used (1 % busy)."),
    (None, "Whether the GPU is used is not known (the driver gives no figure)."),
])  # fmt: skip
def test_a_card_that_buys_nothing_is_told_with_its_use(percent: float | None, told: str) -> None:
    it = of(CPU, [own("gpu1", 241.0, percent), own("gpu2", 240.0, percent)])
    assert (
        in_words.verdict(it) == f"No measurable difference between the GPU and the CPU: 1.00 times (1.00..1.01). {told}"
    )


def test_a_ratio_of_tiny_runs_comes_with_a_doubt() -> None:
    it = of([own("cpu1", 0.96), own("cpu2", 0.77)], [own("gpu1", 0.64, 43.0), own("gpu2", 0.53, 43.0)])
    doubt = "Whole runs of a few seconds differ by start-up and chance: take longer ones. "
    assert in_words.verdict(it).startswith(doubt)
    assert in_words.verdict(of(CPU, [own("gpu1", 0.64), own("gpu2", 0.53)])).startswith(doubt)
    assert not in_words.verdict(of(CPU, [own("gpu1", 40.0), own("gpu2", 44.0)])).startswith("Whole runs")
    fast = of([own("cpu1", 2.0, rate=100.0)], [own("gpu1", 2.0, 43.0, rate=200.0)])
    assert "few seconds" not in in_words.verdict(fast), "these report their speed"


def test_of_short_runs_the_use_of_the_card_is_not_judged() -> None:
    few = replace(READ, samples=4, training_samples=4, gpus=(GpuSummary(CARD, "a card", 2.0),), gpu_percent_mean=2.0)
    it = of([own("cpu1", 8.0), own("cpu2", 8.1)], [own(f"gpu{n}", 4.0, summary=few) for n in (1, 2)])
    assert "Whether the GPU is used is not known (too few samples); with it the whole run" in in_words.verdict(it)
    it = of([own("cpu1", 58.0), own("cpu2", 58.1)], [own(f"gpu{n}", 29.0) for n in (1, 2)])
    assert "Whether the GPU is used is not known (the run was too short); with it" in in_words.verdict(it)
    half = [own(f"gpu{n}", 100.0) for n in (1, 2)]
    half = [replace(one, run=replace(one.run, finished=(one.run.finished or 0) + 100)) for one in half]
    it = of(CPU, half)
    assert "Whether the GPU is used is not known (it was not measured throughout)" in in_words.verdict(it)


@pytest.mark.parametrize(("percents", "told"), [
    ((96.0, 0.0, 0.0, 2.0), "1 of 4 GPUs is used (at most 96 % busy)"),
    ((96.0, 40.0), "2 of 2 GPUs are used (at most 96 % busy)"),
    ((3.0, 0.0), "None of the 2 GPUs is used much (at most 3 % busy)"),
    ((96.0, None), "Whether the GPU is used is not known (the driver gives no figure)"),
    ((), "Whether the GPU is used is not known (it was not measured)"),
])  # fmt: skip
def test_of_several_cards_the_busiest_tells_whether_they_are_used(
    percents: tuple[float | None, ...], told: str
) -> None:
    cards = tuple(GpuSummary(f"GPU-{at}", "a card", percent) for at, percent in enumerate(percents))
    gpu = [own(f"gpu{n}", 40.0, summary=replace(READ, gpus=cards, gpu_percent_mean=1.0)) for n in (1, 2)]
    it = of(CPU, gpu)
    assert in_words.verdict(it).startswith(f"{told}; with it the whole run")
    assert ("1% (mean)" in text(it)) == told.endswith("busy)"), "a mean does not contradict it"


def test_a_card_that_others_kept_busy_is_not_used() -> None:
    cards = (GpuSummary("GPU-0", "a card", 40.0, is_used=True), GpuSummary("GPU-1", "a card", 97.0, is_used=False))
    gpu = [own(f"gpu{n}", 40.0, summary=replace(READ, gpus=cards, gpu_percent_mean=40.0)) for n in (1, 2)]
    assert in_words.verdict(of(CPU, gpu)).startswith("1 of 2 GPUs is used (at most 40 % busy);")


@pytest.mark.parametrize(("shared", "said"), [(None, True), (False, False)])
def test_it_is_told_if_nobody_knows_whether_others_computed_on_the_card(shared: bool | None, said: bool) -> None:
    cards = (GpuSummary(CARD, "a card", 40.0),)
    it = of(CPU, [own(f"gpu{n}", 40.0, summary=replace(READ, gpus=cards, shared_gpu=shared)) for n in (1, 2)])
    assert ("it is not known whether others computed on the GPU meanwhile" in it.diagnosis) == said
    assert it.ratio


def test_only_what_is_counted_and_long_enough_says_how_a_card_was_used() -> None:
    failed = own("gpu3", 1.0, 1.0, status="failed", summary=Summary())
    good = [own("gpu1", 40.0, 43.0), own("gpu2", 40.0, 43.0)]
    assert "The GPU is used (43 % busy)" in in_words.verdict(of([*CPU, own("cpu3", 240.0)], [*good, failed]))
    brief = replace(good[0].run.summary, steps=20, examples_per_second=900.0, training_samples=2)
    cpu, gpu = ([own(f"{name}{n}", 3.0, rate=90.0) for n in (1, 2)] for name in ("cpu", "gpu"))
    it = of(cpu, [replace(one, run=replace(one.run, summary=brief)) for one in gpu])
    assert in_words.verdict(it).startswith(
        "Whether the GPU is used is not known (too few samples); with it the command"
    )


def test_rounds_of_short_runs_that_are_far_apart_ask_for_longer_ones() -> None:
    short = of([own("cpu1", 21.0), own("cpu2", 15.0)], [own("gpu1", 10.0, 43.0), own("gpu2", 10.0, 43.0)])
    assert in_words.verdict(short).startswith("The rounds of cpu are far apart, and short: take longer runs. ")
    assert "cpu: its rounds are 40 % apart, short runs differ by their start-up" in short.diagnosis
    long = of([own("cpu1", 400.0), own("cpu2", 240.0)], [own("gpu1", 90.0, 43.0), own("gpu2", 90.0, 43.0)])
    assert in_words.verdict(long).startswith("Something disturbed the rounds of cpu: measure again. ")


def test_one_round_gives_no_ratio_but_says_whether_the_gpu_was_used() -> None:
    assert in_words.verdict(of([own("cpu1", 240.0)], [own("gpu1", 40.0, 43.0)])) == (
        "No ratio is given (one pair, no spread: use --repeat 2 or more): cpu 240.0 s, gpu 40.0 s. "
        "The GPU is used (43 % busy)."
    )


def test_on_a_cluster_only_reported_speeds_are_compared() -> None:
    queued: dict[str, Any] = {"engine": "slurm", "gpus": None}
    cpu = [own(f"cpu{n}", 900.0, rate=100.0, **queued) for n in (1, 2, 3)]
    gpu = [own(f"gpu{n}", 90.0, rate=400.0, **queued) for n in (1, 2)]
    it = of(cpu, [*gpu, own("gpu3", 30.0, **queued)])
    assert (it.by_duration, refused(it)) == (False, ["examples_per_second"])
    assert it.refused[0].why == "no speed was reported, and the time includes the queue's"
    assert it.ratio is not None
    assert it.ratio.times.median == 4.0
    assert [arm.given for arm in it.arms] == ["cpu", "gpu"], "by what was asked for"


def test_what_was_given_is_shown_whatever_the_script_says_that_it_computes_on() -> None:
    said = {"device": "cpu"}
    it = of([own(f"cpu{n}", 240.0, **said) for n in (1, 2)], [own(f"gpu{n}", 240.0, 1.0, **said) for n in (1, 2)])
    assert [(arm.device, arm.given) for arm in it.arms] == [("cpu", "cpu"), ("cpu", "gpu")]
    assert refused(it) == ["device"], "it was given a card and says that it did not use it"


def test_where_the_cpu_is_faster_that_is_said() -> None:
    it = of(CPU, [own("gpu1", 400.0, 9.0), own("gpu2", 402.0, 9.0)])
    assert in_words.verdict(it).endswith("0.60 times (0.60..0.60) as fast: the CPU is faster here.")


def test_commands_that_all_report_their_speed_are_compared_by_it() -> None:
    cpu = [own("cpu1", 240.0, rate=100.0), own("cpu2", 240.0, rate=102.0)]
    gpu = [own("gpu1", 90.0, 95.0, 900.0), own("gpu2", 90.0, 96.0, 910.0)]
    it = of(cpu, gpu)
    assert in_words.verdict(it) == (
        "The GPU is used (96 % busy); with it the command does 8.96 times (8.92..9.00) the CPU's work."
    )
    assert text(it).splitlines()[0].split() == ["ARM", "RUNS", "EXAMPLES/S", "S/BATCH", "CPU", "GPU", "DEVICES"]
    silent = of(cpu, [gpu[0], own("gpu2", 90.0, 96.0)])
    assert silent.by_duration, "one did not report it"
    assert silent.ratio is not None
    assert silent.ratio.times.median == pytest.approx(240 / 90)


@pytest.mark.parametrize(("field", "change"), [
    ("command", {"spec": {"image": "p:1", "command": ["python", "other.py"], "gpus": "all"}}),
    ("environment", {"spec": {"command": ["python", "train.py"], "environment": {"LR": "1"}}}),
    ("digest", {"image": Image("p:1", "sha256:2")}),
    ("status", {"status": "failed", "exit_code": 1}),
    ("seconds", {"finished": None}),
    ("shared_gpu", {"summary": replace(READ, gpus=(GpuSummary(CARD, "a card", 40.0),), shared_gpu=True)}),
])  # fmt: skip
def test_a_run_that_was_another_is_refused_by_the_name_of_what_differs(field: str, change: dict[str, Any]) -> None:
    it = of([*CPU, own("cpu3", 241.0)], [own("gpu1", 40.0, 43.0), own("gpu2", 40.0, 43.0), own("gpu3", 40.0, **change)])
    assert refused(it) == [field]
    assert it.refused[0].runs == ("gpu3",)
    assert it.ratio is not None
    assert it.ratio.times.rounds == 2


def test_images_are_compared_by_duration_with_their_names() -> None:
    def arm(name: str, digit: str, *seconds: float) -> Arm:
        image = {"image": Image(name, f"sha256:{digit}")}
        return Arm(name, tuple(own(f"gpu-{name}{n}", one, 50.0, **image) for n, one in enumerate(seconds, 1)))

    it = comparison([arm("image=p:24.05-py3", "1", 60.0, 60.6), arm("image=p:26.09-py3", "2", 40.0, 40.4)], "image")
    assert refused(it) == []
    assert in_words.verdict(it) == (
        "With p:26.09-py3 the whole run, start-up included, is 1.50 times (1.50..1.50) as fast as with p:24.05-py3."
    )


def test_the_page_of_a_comparison_says_that_the_cards_differ() -> None:
    it = of(CPU, [own("gpu1", 40.0, 43.0), own("gpu2", 44.0, 45.0)])
    runs = (("A", CPU[0].run), ("B", own("gpu1", 40.0).run))
    document = page([Story(run, Training(), Samples(), letter) for letter, run in runs], it)
    assert "GPUs of the run" in document
    assert "no difference was found" not in document
    assert "s, start-up included: shorter is faster" in document
