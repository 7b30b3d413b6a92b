"""The line at the end of a user's own command: the readings of its cards, or no line if there were too few."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ngcdl.record import Finding, Gpu, GpuSummary, Machine, Run, Summary
from ngcdl.report.measured.observed import observed

CARD = GpuSummary("GPU-0", "a card", 1.2, 1 << 30, index=0)
MACHINE = Machine(cores=8, gpus=(Gpu(0, "a card", "GPU-0", 40 << 30),))
IDLE = Finding("gpu-idle", "GPU 1 % busy: the run hardly used it. Did it compute on the CPU?")
SPEC: dict[str, Any] = {"command": ["python", "train.py"]}
READ = Summary(samples=300, training_samples=300, gpus=(CARD,))
RUN = Run("x", "finished", 1.0, 301.0, gpus=("GPU-0",), spec=SPEC, machine=MACHINE, summary=READ, findings=(IDLE,))


def of(*cards: GpuSummary) -> list[str]:
    return observed(replace(RUN, summary=replace(READ, gpus=cards), findings=()))


def test_the_use_of_the_card_is_said_and_what_follows() -> None:
    assert observed(RUN) == [
        "GPU 0: 1 % busy, at most 1.0 GiB of 40.0 GiB (mean of 300 samples; ngcdl show x)",
        "GPU 1 % busy: the run hardly used it. Did it compute on the CPU?",
    ]


def test_how_much_of_the_card_worked_is_said_beside_its_use() -> None:
    (line,) = of(replace(CARD, gpu_percent_mean=97.0, sm_active_percent_mean=12.4))
    assert line.startswith("GPU 0: 97 % busy, SMs active 12 %, at most 1.0 GiB of 40.0 GiB (")


def test_what_was_not_read_is_not_available() -> None:
    assert of(GpuSummary("GPU-9")) == ["GPU n/a: n/a busy, memory n/a (mean of 300 samples; ngcdl show x)"]


def test_of_many_cards_the_least_and_the_most_use_is_said() -> None:
    cards = [replace(CARD, index=at, gpu_percent_mean=percent) for at, percent in enumerate((3.0, None, 90.0))]
    assert of(*cards[:2])[0].startswith("GPU 0: 3 % busy, at most 1.0 GiB of 40.0 GiB; GPU 1: n/a busy, at most 1.0")
    assert of(*cards) == ["3 GPUs: 3 to 90 % busy, n/a for 1 (mean of 300 samples; ngcdl show x)"]
    assert of(*3 * [replace(CARD, gpu_percent_mean=None)])[0].startswith("3 GPUs: n/a busy (mean")


def test_of_samples_closer_or_farther_apart_as_many_are_due_as_were_asked_for() -> None:
    def count(seconds: float, samples: int, full: int) -> int:
        summary = replace(READ, samples=samples, training_samples=full)
        return len(observed(replace(RUN, spec={**SPEC, "sample_seconds": seconds}, summary=summary)))

    assert count(0.1, 3000, 600) == count(10, 30, 30) == len(observed(RUN))
    assert count(0.1, 3000, 500) == count(10, 30, 25) == count(30, 10, 10) == 0


def test_without_a_card_or_enough_samples_or_after_a_shell_nothing_is_said() -> None:
    assert of() == []
    assert observed(replace(RUN, finished=20.0)) == []
    assert observed(replace(RUN, summary=replace(READ, training_samples=3))) == []
    assert observed(replace(RUN, spec={"command": ["bash"], "tty": True})) == []
    assert observed(replace(RUN, spec={"workload": {"name": "cifar10"}})) == [], "it has its table"
    assert observed(replace(RUN, summary=replace(READ, steps=1))) == []
