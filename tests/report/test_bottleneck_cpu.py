"""How the CPU holds a run back: each rule at, below and above its threshold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_summaries import CPU_RUN, GPU_RUN, cpu, findings, gpu, only, rules

from ngcdl.record import Gpu, Image, Machine, Run, Summary


@pytest.mark.parametrize(("percent", "rule"), [(89.9, "balanced"), (90.0, "cpu-bound")])
def test_a_run_on_the_cpu_that_fills_it_is_bound_by_it(percent: float, rule: str) -> None:
    assert rules(cpu(percent), CPU_RUN) == [rule]


@pytest.mark.parametrize(("own", "rule"), [(720.0, "cpu-bound"), (719.0, "balanced"), (None, "cpu-bound")])
def test_physical_cores_that_the_run_keeps_busy_are_a_full_cpu(own: float | None, rule: str) -> None:
    run = replace(CPU_RUN, machine=Machine(cores=16, physical_cores=8))
    found = only(cpu(50.0, cores_busy=8.0, container_cpu_percent_mean=own), run)
    used = "7.2" if own else "8.0"
    assert found.rule == rule
    assert found.rule == "balanced" or found.text == (
        f"{used} of 16 logical processors busy, on 8 physical cores: the CPU sets the pace."
    )


def test_a_gpu_is_advised_only_where_the_machine_has_one() -> None:
    with_card = replace(CPU_RUN, machine=Machine(cores=8, gpus=(Gpu(0, "a card", "GPU-1"),)))
    advice = "See whether the GPU is faster:\n    ngcdl compare x:1 --train cifar10"
    asked = {"workload": {"name": "cifar10", "device": "cpu"}}
    assert only(cpu(95.0), replace(with_card, image=Image("x:1"), spec=asked)).advice == advice
    assert only(cpu(95.0), CPU_RUN).advice is None


def test_a_full_cpu_beside_a_gpu_is_not_what_such_a_run_is_bound_by() -> None:
    assert rules(gpu(80.0, cpu_percent_mean=95.0)) == ["balanced"]


def test_a_run_on_the_cpu_of_a_machine_with_gpus_is_judged_by_its_cpu() -> None:
    assert rules(replace(gpu(0.0), cpu_percent_mean=95.0, cores_busy=7.6), CPU_RUN) == ["cpu-bound"]


@pytest.mark.parametrize(("core", "busy", "rule"), [
    (90.0, 1.5, "one-thread"), (89.9, 1.5, "balanced"), (90.0, 1.6, "balanced"),
])  # fmt: skip
def test_one_full_core_beside_idle_ones_is_one_thread(core: float, busy: float, rule: str) -> None:
    load = {"cpu_busiest_core_percent_mean": core, "cores_busy": busy}
    assert rules(cpu(20.0, **load), CPU_RUN) == [rule]
    assert rules(gpu(95.0, **load)) == ["compute-bound"], "it may only wait for the card"


@pytest.mark.parametrize(("cores", "rule"), [(3, "balanced"), (4, "one-thread")])
def test_of_three_cores_one_full_one_is_no_single_thread(cores: int, rule: str) -> None:
    run = replace(CPU_RUN, machine=Machine(cores=cores))
    assert rules(cpu(20.0, cpu_busiest_core_percent_mean=99.0, cores_busy=1.2), run) == [rule]


@pytest.mark.parametrize(("threads", "expected"), [(8, "balanced"), (9, "oversubscribed")])
def test_more_threads_than_cores_are_too_many(threads: int, expected: str) -> None:
    assert rules(cpu(50.0), CPU_RUN, {"event": "start", "threads": threads}) == [expected]
    asked = replace(CPU_RUN, spec={"workload": {"device": "cpu", "threads": threads}})
    assert rules(cpu(50.0), asked) == [expected]


@pytest.mark.parametrize(("running", "percent", "is_told"), [
    (16.0, 90.0, True), (15.9, 90.0, False), (16.0, 89.9, False), (None, 100.0, False),
])  # fmt: skip
def test_twice_as_many_threads_as_cores_that_want_to_run_are_too_many(
    running: float | None, percent: float, is_told: bool
) -> None:
    assert ("oversubscribed" in rules(cpu(percent, threads_running_mean=running), CPU_RUN)) is is_told


@pytest.mark.parametrize(("own", "is_told"), [(520.0, True), (521.0, False), (None, False)])
def test_a_quarter_of_the_cores_kept_busy_by_others_is_told(own: float | None, is_told: bool) -> None:
    found = rules(cpu(90.0, container_cpu_percent_mean=own), CPU_RUN)
    assert found == ["busy-machine" if is_told else "cpu-bound"], "a CPU that others kept busy is not what set the pace"


def test_threads_that_others_may_have_are_not_laid_at_the_run_s_door() -> None:
    crowded = cpu(95.0, threads_running_mean=40.0, container_cpu_percent_mean=300.0)
    assert rules(crowded, CPU_RUN) == ["busy-machine"]
    others = "Other programs kept 4.6 of 8 cores busy meanwhile: the"
    assert only(crowded, CPU_RUN).text == f"{others} training took longer.", "it has no speed"
    assert only(replace(crowded, seconds_per_batch=1.0), CPU_RUN).text == f"{others} figures are too low."
    assert rules(replace(crowded, container_cpu_percent_mean=750.0), CPU_RUN) == ["oversubscribed", "cpu-bound"]


def test_a_crowded_cpu_holds_no_gpu_back_that_sets_the_pace() -> None:
    crowded = {"cpu_percent_mean": 95.0, "cores_busy": 7.6, "threads_running_mean": 40.0}
    start = {"event": "start", "threads": 64}
    assert rules(gpu(90.0, **crowded, container_cpu_percent_mean=100.0), GPU_RUN, start) == ["compute-bound"]
    assert rules(gpu(89.9, **crowded, container_cpu_percent_mean=100.0)) == ["busy-machine"]


def test_others_on_a_machine_with_room_left_hold_nothing_back() -> None:
    assert rules(cpu(89.9, container_cpu_percent_mean=100.0), CPU_RUN) == ["balanced"]


@pytest.mark.parametrize("own", [None, 89.9])
def test_a_full_core_that_the_run_itself_can_t_have_filled_is_not_its_one_thread(own: float | None) -> None:
    summary = cpu(12.0, cpu_busiest_core_percent_mean=98.0, cores_busy=1.1, container_cpu_percent_mean=own)
    assert rules(summary, CPU_RUN) == ["one-thread" if own is None else "balanced"]


# ---- a local run that may not use all processors of its machine ----


def allowed(usable: float | None, engine: str = "local") -> Run:
    return replace(CPU_RUN, engine=engine, machine=Machine(cores=128, usable_cores=usable))


def on_shared(own: float | None, percent: float = 95.0, **more: float) -> Summary:
    """Return the measurements on 128 cores, most of them used by others."""
    return cpu(percent, cores_busy=1.28 * percent, container_cpu_percent_mean=own, **more)


def test_a_run_that_fills_the_processors_it_may_use_is_bound_by_them_whatever_the_others_do() -> None:
    for percent in (5.0, 95.0):
        found = only(on_shared(392.0, percent), allowed(4.0))
        assert (found.rule, found.text) == (
            "cpu-bound", "It kept the 4 cores that it may use 98 % busy: they set the pace.",
        )  # fmt: skip
    assert "the one core that it may use 99 %" in only(on_shared(99.0), allowed(1.0)).text
    assert rules(on_shared(180.0), allowed(2.0)) == ["cpu-bound"]
    assert "the 0.5 of a core that it may use 96 %" in only(on_shared(48.0), allowed(0.5)).text


def test_a_run_that_leaves_processors_it_may_use_idle_is_told_of_those_alone() -> None:
    found = only(on_shared(200.0, cpu_busiest_core_percent_mean=100.0), allowed(4.0))
    assert (found.rule, found.text) == (
        "balanced", "It kept the 4 cores that it may use 50 % busy: not all of their time is used.",
    )  # fmt: skip
    assert rules(on_shared(None), allowed(4.0)) == [], "what it used of them is unknown"


def test_one_thread_is_advised_as_many_as_there_are_processors_that_it_may_use() -> None:
    found = only(on_shared(101.0, cpu_busiest_core_percent_mean=100.0), allowed(4.0))
    assert (found.rule, found.text, found.advice) == (
        "one-thread",
        "It kept 1.0 of the 4 cores that it may use busy, as one thread does.",
        "    ngcdl run ... --threads 4",
    )
    assert rules(on_shared(101.0, cpu_busiest_core_percent_mean=100.0), allowed(3.0)) == ["balanced"]
    assert rules(on_shared(160.0, cpu_busiest_core_percent_mean=100.0), allowed(4.0)) == ["balanced"]


def test_more_threads_than_processors_that_it_may_use_are_too_many() -> None:
    first, *_ = findings(on_shared(392.0), allowed(4.0), {"event": "start", "threads": 8})
    assert (first.rule, first.advice) == ("oversubscribed", "    ngcdl run ... --threads 4")
    assert first.text == "8 threads compute on the 4 cores that it may use: they take turns, which costs time."
    assert rules(on_shared(240.0), allowed(2.5), {"event": "start", "threads": 3}) == ["cpu-bound"]
    seen = on_shared(392.0, 100.0, threads_running_mean=400.0)
    assert rules(seen, allowed(4.0)) == ["cpu-bound"], "the threads may be those of others"


def test_processors_are_judged_as_the_machine_s_in_a_container_and_where_all_may_be_used_or_nobody_said() -> None:
    for run in (allowed(4.0, "docker"), allowed(128.0), allowed(None), allowed(4.0, "slurm")):
        assert rules(on_shared(392.0), run) == ["busy-machine"]
