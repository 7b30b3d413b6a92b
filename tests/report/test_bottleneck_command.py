"""Findings about a user's own command: without steps, only those that the whole run supports, none of a training's."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_summaries import OOM, cpu, filled, findings, gpu, only, rules

from ngcdl.record import Diagnosis, GpuSummary, Machine, Run, Summary

CARDS = ("GPU-1",)
SPEC: dict[str, Any] = {"command": ["python", "train.py"], "tty": False, "workload": None}
COMMAND = Run("x", "finished", 1.0, 301.0, gpus=CARDS, spec=SPEC, machine=Machine(cores=8, memory_bytes=1 << 34))
ON_CPU = replace(COMMAND, gpus=())
ENOUGH: dict[str, Any] = {"training_samples": 300, "samples": 300}


def reading(second: int, percent: float | None = 1, **more: Any) -> dict[str, Any]:
    card = {"uuid": "GPU-1", "index": 0, "gpu_percent": percent, "memory_used_bytes": 1 << 30}
    return {"t": 1.0 + second, "host_cpu_percent": 99.0, "cpu_percents": [99, 99], "gpus": [card], **more}


def test_a_command_that_left_its_gpu_idle_is_told_so() -> None:
    run = filled(COMMAND, [], [reading(second) for second in range(300)])
    idle, *others = run.findings or ()
    assert (idle.rule, idle.text) == ("gpu-idle", "GPU 1 % busy: the run hardly used it. Did it compute on the CPU?")
    assert (idle.advice or "").startswith("If it was to use it, check that the framework sees it")
    assert (run.summary.training_samples, [found.rule for found in others]) == (300, [])


@pytest.mark.parametrize(("others", "shared"), [(1, True), (0, False), (None, None)])
def test_a_card_that_others_alone_use_sets_no_pace(others: int | None, shared: bool | None) -> None:
    """A command that was given two cards, and seen on none of them."""
    busy = {"uuid": "GPU-1", "index": 0, "gpu_percent": 95, "own_processes": 0, "foreign_processes": others}
    idle = {"uuid": "GPU-2", "index": 1, "gpu_percent": 0, "own_processes": 0, "foreign_processes": 0}
    run = filled(COMMAND, [], [reading(second, gpus=[busy, idle]) for second in range(300)])
    assert run.summary.shared_gpu is shared
    assert ("shared-gpu" in rules_of(run), "compute-bound" in rules_of(run)) == (bool(others), not others)


def rules_of(run: Run) -> list[str]:
    return [found.rule for found in run.findings or ()]


@pytest.mark.parametrize(("seconds", "count", "known"), [(29.9, 29, False), (30.0, 26, False), (30.0, 27, True)])
def test_a_command_too_short_or_hardly_sampled_is_not_judged(seconds: float, count: int, known: bool) -> None:
    run = filled(replace(COMMAND, finished=1.0 + seconds), [], [reading(second) for second in range(count)])
    assert bool(run.findings) is known


def test_a_command_of_which_a_part_only_was_sampled_is_not_judged() -> None:
    """A full disk, a killed ngcdl or a detached terminal end the samples early; Ctrl-Z leaves a hole in them."""
    begun = [reading(second) for second in range(269)]
    assert filled(COMMAND, [], begun).findings == ()
    assert filled(COMMAND, [], [*begun, reading(299)]).findings
    assert filled(COMMAND, [], [*begun[:100], *(reading(second) for second in range(200, 300))]).findings == ()
    assert filled(replace(COMMAND, finished=None), [], begun).findings == (), "nobody knows how long it took"
    assert filled(replace(COMMAND, finished=None, status="running"), [], begun).findings, "so far"


def test_samples_that_lack_the_card_or_the_host_carry_no_judgement() -> None:
    samples = [reading(second) for second in range(300)]
    for lacking in ({"gpus": []}, {"host_cpu_percent": None}, {"gpus": [{"uuid": "GPU-1"}]}):
        told = [*samples[:100], *(one | lacking for one in samples[100:])]
        assert filled(COMMAND, [], told).findings == ()
        assert filled(COMMAND, [], [*samples[:290], *(one | lacking for one in samples[290:])]).findings


def test_a_card_whose_use_can_t_be_read_is_not_called_idle_and_the_cpu_not_the_pace() -> None:
    assert filled(COMMAND, [], [reading(second, None) for second in range(300)]).findings == ()
    assert filled(COMMAND, [], [reading(second, gpus=[]) for second in range(300)]).findings == ()
    on_cpu = replace(COMMAND, gpus=None, device="cpu")  # so its script reported; whether it had a card is not known
    assert "gpu-idle" not in rules(cpu(20.0, steps=300, **ENOUGH), on_cpu)


@pytest.mark.parametrize(("command", "judged"), [
    ([], False), (["bash"], False), (["/bin/bash", "-l"], False), (["python", "-i"], False),
    (["python3.12"], False), (["python", "-i", "x.py"], False),
    (["python", "train.py"], True), (["python", "-m", "train"], True), (["./train.sh"], True),
])  # fmt: skip
def test_at_a_terminal_a_shell_waits_for_its_user_and_a_program_does_not(command: list[str], judged: bool) -> None:
    spec = SPEC | {"command": command, "tty": True}
    assert rules(gpu(1.0, **ENOUGH), replace(COMMAND, spec=spec)) == (["gpu-idle"] if judged else [])
    assert rules(gpu(1.0, **ENOUGH), replace(COMMAND, spec=spec | {"tty": False})) == ["gpu-idle"]


def test_a_notebook_waits_for_its_user_wherever_it_is_started() -> None:
    for tty in (True, False):
        spec = SPEC | {"command": ["jupyter", "lab", "--ip=0.0.0.0"], "tty": tty}
        assert rules(gpu(1.0, **ENOUGH), replace(COMMAND, spec=spec)) == []


def test_what_a_mean_over_the_whole_run_does_not_show_is_not_said() -> None:
    assert rules(gpu(40.0, **ENOUGH), COMMAND) == [], "it may have waited in one half only"
    assert rules(cpu(15.0, cpu_busiest_core_percent_mean=99.0, **ENOUGH), ON_CPU) == []
    busy = (GpuSummary("GPU-1", "a card", 95.0, index=0), GpuSummary("GPU-2", "a card", 95.0, index=1))
    assert rules(replace(gpu(95.0, **ENOUGH), gpus=busy), COMMAND) == [], "one may have waited for the other"
    uneven = (busy[0], replace(busy[1], gpu_percent_mean=60.0))
    assert rules(replace(gpu(95.0, **ENOUGH), gpus=uneven), COMMAND) == []
    assert rules(gpu(95.0, **ENOUGH), COMMAND) == ["compute-bound"]


def test_a_card_that_the_command_did_not_use_says_nothing_about_it() -> None:
    its = GpuSummary("GPU-1", "a card", 1.0, index=0, is_used=True)
    others = GpuSummary("GPU-2", "a card", 97.0, index=1, is_used=False)
    assert rules(replace(gpu(1.0, **ENOUGH), gpus=(its, others)), COMMAND) == ["gpu-idle"]
    assert rules(replace(gpu(95.0, **ENOUGH), gpus=(replace(its, gpu_percent_mean=95.0), others)), COMMAND) == [
        "compute-bound"
    ]


def test_what_it_says_needs_no_option_of_a_training() -> None:
    unfilled = (GpuSummary("GPU-1", "a card", 97.0, index=0, sm_active_percent_mean=3.0),)
    idle = (GpuSummary("GPU-1", "a card", 80.0, index=0), GpuSummary("GPU-2", "a card", 0.0, index=1))
    full = {"cpu_busiest_core_percent_mean": 99.0, **ENOUGH}
    step = {"event": "step", "step": 1, "input_seconds_per_batch": 0.01, "seconds_per_batch": 0.1}
    told = [
        only(replace(gpu(80.0, **ENOUGH), gpus=idle), COMMAND),
        only(replace(gpu(97.0, **ENOUGH), gpus=unfilled), COMMAND),
        only(gpu(40.0, **full), COMMAND),
        only(gpu(40.0, steps=2, **full), COMMAND, step),
        only(gpu(40.0, steps=2, seconds_per_batch=0.001, **ENOUGH), COMMAND, {"event": "start", "batch": 8}),
        only(cpu(99.0, **ENOUGH), replace(ON_CPU, machine=replace(COMMAND.machine, gpus=()))),
        findings(cpu(99.0, threads_running_mean=99.0, steps=2, **ENOUGH), ON_CPU)[0],
        only(cpu(15.0, steps=2, **full), ON_CPU),
        only(Summary(), replace(COMMAND, diagnosis=Diagnosis("gpu-out-of-memory"))),
        only(Summary(), COMMAND, OOM),
    ]
    rules_told = ["idle-card", "unfilled-gpu", "full-core", "full-core", "tiny-batch", "cpu-bound", "oversubscribed"]
    assert [one.rule for one in told] == [*rules_told, "one-thread", "out-of-memory", "out-of-memory"]
    for one in told:
        assert "training" not in one.text
        for option in ("--batch", "--threads", "ngcdl compare"):
            assert option not in (one.advice or "")
    assert "torch.compile" in (told[1].advice or "")
    assert told[-1].text == "It ran out of the GPU's memory."
