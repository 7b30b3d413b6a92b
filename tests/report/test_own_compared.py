"""A command of the user's own compared: by whole runs' durations unless all of them reported their speed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_arms import CARD, MACHINE, refused, text

from ngcdl.record import GpuSummary, Image, Run, Summary
from ngcdl.report import compared
from ngcdl.report.bars import bars
from ngcdl.report.comparison import Arm, Comparison, comparison
from ngcdl.report.page import page
from ngcdl.report.story import Measured as Samples
from ngcdl.report.story import Story, Training
from ngcdl.report.unlike import Measured

READ = Summary(samples=60, training_samples=60, cpu_percent_mean=40.0)


def own(run_id: str, seconds: float, percent: float | None = None, rate: float | None = None, **more: Any) -> Measured:
    """A run of train.py that took so long; with the use of its card if it was given one."""
    cards = (GpuSummary(CARD, "a card", percent),) if "gpu" in run_id else ()
    steps = 300 if rate else None
    summary = replace(READ, gpus=cards, gpu_percent_mean=percent, examples_per_second=rate, steps=steps)
    run = Run(
        run_id, "finished", 1000.0, 1000.0 + seconds, exit_code=0, engine="docker", image=Image("p:1", "sha256:1"),
        gpu_way="runtime" if cards else "none", gpus=(CARD,) if cards else (), machine=MACHINE,
        spec={"image": "p:1", "command": ["python", "train.py"], "gpus": "all" if cards else "none"}, summary=summary,
    )  # fmt: skip
    return Measured(replace(run, **more))


def of(cpu: list[Measured], gpu: list[Measured]) -> Comparison:
    return comparison([Arm("cpu", tuple(cpu), "cpu"), Arm("gpu", tuple(gpu), "gpu")], "device")


CPU = [own("cpu1", 240.0), own("cpu2", 242.0)]


def test_silent_commands_are_compared_by_how_long_they_took() -> None:
    it = of(CPU, [own("gpu1", 40.0, 43.0), own("gpu2", 44.0, 45.0)])
    assert it.refused == ()
    assert compared.verdict(it) == (
        "The GPU is used (44 % busy); with it the whole run, start-up included, is 5.75 times (5.50..6.00) as fast."
    )
    assert it.ratio is not None
    assert it.as_json()["by"] == "run_seconds"
    head, cpu, gpu = text(it).splitlines()[:3]
    assert head.split() == ["ARM", "RUNS", "SECONDS", "CPU", "GPU", "GIVEN"]
    assert cpu.split()[:5] == ["cpu", "2", "241.0", "(240.0..242.0)", "40%"]
    assert gpu.endswith("GPU: GeForce GTX 1050 Ti")
    drawn = str(bars(it))
    assert "Time" in drawn
    assert "shorter is faster" in drawn


@pytest.mark.parametrize(("percent", "told"), [
    (1.0, "The GPU is hardly used (1 % busy)."),
    (None, "Whether the GPU is used is not known (its driver gives no figure)."),
])  # fmt: skip
def test_a_card_that_buys_nothing_is_told_with_its_use(percent: float | None, told: str) -> None:
    it = of(CPU, [own("gpu1", 241.0, percent), own("gpu2", 240.0, percent)])
    assert (
        compared.verdict(it) == f"No measurable difference between the GPU and the CPU: 1.00 times (1.00..1.01). {told}"
    )


def test_of_short_runs_the_use_of_the_card_is_not_judged() -> None:
    few = replace(READ, samples=4, training_samples=4, gpus=(GpuSummary(CARD, "a card", 2.0),), gpu_percent_mean=2.0)
    it = of([own("cpu1", 8.0), own("cpu2", 8.1)], [own(f"gpu{n}", 4.0, summary=few) for n in (1, 2)])
    assert "Whether the GPU is used is not known (too few samples); with it the whole run" in compared.verdict(it)


def test_where_the_cpu_is_faster_that_is_said() -> None:
    it = of(CPU, [own("gpu1", 400.0, 9.0), own("gpu2", 402.0, 9.0)])
    assert compared.verdict(it).endswith("0.60 times (0.60..0.60) as fast: the CPU is faster here.")


def test_commands_that_all_report_their_speed_are_compared_by_it() -> None:
    cpu = [own("cpu1", 240.0, rate=100.0), own("cpu2", 240.0, rate=102.0)]
    gpu = [own("gpu1", 90.0, 95.0, 900.0), own("gpu2", 90.0, 96.0, 910.0)]
    it = of(cpu, gpu)
    assert compared.verdict(it) == (
        "The GPU is used (96 % busy); with it the command does 8.96 times (8.92..9.00) the CPU's work."
    )
    assert text(it).splitlines()[0].split() == ["ARM", "RUNS", "EXAMPLES/S", "S/BATCH", "CPU", "GPU", "GIVEN"]
    silent = of(cpu, [gpu[0], own("gpu2", 90.0, 96.0)])
    assert silent.by_duration, "one did not report it"
    assert silent.ratio is not None
    assert silent.ratio.median == pytest.approx(240 / 90)


@pytest.mark.parametrize(("field", "change"), [
    ("command", {"spec": {"image": "p:1", "command": ["python", "other.py"], "gpus": "all"}}),
    ("environment", {"spec": {"command": ["python", "train.py"], "environment": {"LR": "1"}}}),
    ("digest", {"image": Image("p:1", "sha256:2")}),
    ("status", {"status": "failed", "exit_code": 1}),
    ("seconds", {"finished": None}),
    ("seconds", {"engine": "slurm"}),
    ("shared_gpu", {"summary": replace(READ, gpus=(GpuSummary(CARD, "a card", 40.0),), shared_gpu=True)}),
])  # fmt: skip
def test_a_run_that_was_another_is_refused_by_the_name_of_what_differs(field: str, change: dict[str, Any]) -> None:
    it = of([*CPU, own("cpu3", 241.0)], [own("gpu1", 40.0, 43.0), own("gpu2", 40.0, 43.0), own("gpu3", 40.0, **change)])
    assert refused(it) == [field]
    assert it.refused[0].runs == ("gpu3",)
    assert it.ratio is not None
    assert it.ratio.pairs == 2


def test_images_are_compared_by_duration_with_their_names() -> None:
    def arm(name: str, digit: str, *seconds: float) -> Arm:
        image = {"image": Image(name, f"sha256:{digit}")}
        return Arm(name, tuple(own(f"gpu-{name}{n}", one, 50.0, **image) for n, one in enumerate(seconds, 1)))

    it = comparison([arm("pytorch:24.05-py3", "1", 60.0, 60.6), arm("pytorch:26.09-py3", "2", 40.0, 40.4)], "image")
    assert refused(it) == []
    assert compared.verdict(it) == (
        "With pytorch:26.09-py3 the whole run, start-up included, is 1.50 times (1.50..1.50) as fast as with "
        "pytorch:24.05-py3."
    )


def test_the_page_of_a_comparison_says_that_the_cards_differ() -> None:
    it = of(CPU, [own("gpu1", 40.0, 43.0), own("gpu2", 44.0, 45.0)])
    runs = (("A", CPU[0].run), ("B", own("gpu1", 40.0).run))
    document = page([Story(run, Training(), Samples(), letter) for letter, run in runs], it)
    assert "GPUs of the run" in document
    assert "These runs differ only in what was measured" not in document
    assert "s, start-up included: shorter is faster" in document
