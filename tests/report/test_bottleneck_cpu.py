"""How the CPU holds a run back: each rule at, below and above its threshold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_summaries import CPU_RUN, GPU_RUN, cpu, gpu, only, rules

from ngcdl.record import Gpu, Machine


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
    assert "ngcdl compare" in (only(cpu(95.0), with_card).advice or "")
    assert only(cpu(95.0), CPU_RUN).advice is None


def test_a_full_cpu_beside_a_gpu_is_not_what_such_a_run_is_bound_by() -> None:
    assert rules(gpu(80.0, cpu_percent_mean=95.0)) == ["balanced"]


def test_a_run_on_the_cpu_of_a_machine_with_gpus_is_judged_by_its_cpu() -> None:
    assert rules(replace(gpu(0.0), cpu_percent_mean=95.0, cores_busy=7.6), CPU_RUN) == ["cpu-bound"]


@pytest.mark.parametrize(("core", "busy", "rule"), [
    (90.0, 1.5, "one-thread"), (89.9, 1.5, "balanced"), (90.0, 1.6, "balanced"),
])  # fmt: skip
def test_one_full_core_beside_idle_ones_is_one_thread(core: float, busy: float, rule: str) -> None:
    assert rules(cpu(20.0, cpu_busiest_core_percent_mean=core, cores_busy=busy), CPU_RUN) == [rule]


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
    assert rules(replace(crowded, container_cpu_percent_mean=750.0), CPU_RUN) == ["oversubscribed", "cpu-bound"]


def test_a_crowded_cpu_holds_no_gpu_back_that_sets_the_pace() -> None:
    crowded = {"cpu_percent_mean": 95.0, "cores_busy": 7.6, "threads_running_mean": 40.0}
    start = {"event": "start", "threads": 64}
    assert rules(gpu(90.0, **crowded, container_cpu_percent_mean=100.0), GPU_RUN, start) == ["compute-bound"]
    assert rules(gpu(89.9, **crowded, container_cpu_percent_mean=100.0)) == ["busy-machine"]


def test_others_on_a_machine_with_room_left_hold_nothing_back() -> None:
    assert rules(cpu(89.9, container_cpu_percent_mean=100.0), CPU_RUN) == ["balanced"]
