"""Each rule at, below and above its threshold; the decisive first; and nothing where too little is known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngcdl.record import Diagnosis, Finding, Gpu, GpuSummary, Machine, Run, Summary
from ngcdl.report import bottleneck, throttling
from ngcdl.report.bottleneck import diagnose
from ngcdl.report.filled import filled

SPEC: dict[str, Any] = {"workload": {"device": "gpu", "batch": 128}}
GPU_RUN = Run("x", "finished", 1.0, device="gpu", spec=SPEC, machine=Machine(cores=8, memory_bytes=1 << 34))
CPU_RUN = replace(GPU_RUN, device="cpu", spec={"workload": {"device": "cpu", "batch": 128}})


def gpu(percent: float | None, **more: Any) -> Summary:
    """What was measured of a run on one GPU that was so busy, and on a CPU that had little to do."""
    card = GpuSummary("GPU-1", "a card", percent, index=0)
    calm = Summary(training_samples=20, gpus=(card,), gpu_percent_mean=percent, seconds_per_batch=0.1,
                   cpu_percent_mean=20.0, cores_busy=1.6, cpu_busiest_core_percent_mean=50.0)  # fmt: skip
    return replace(calm, **more)


def cpu(percent: float | None, **more: Any) -> Summary:
    busy = None if percent is None else percent / 100 * 8
    return replace(Summary(training_samples=20, cpu_percent_mean=percent, cores_busy=busy), **more)


def rules(summary: Summary, run: Run = GPU_RUN, *events: dict[str, Any]) -> list[str]:
    return [found.rule for found in diagnose(run, summary, events)]


def only(summary: Summary, run: Run = GPU_RUN, *events: dict[str, Any]) -> Finding:
    (found,) = diagnose(run, summary, events)
    return found


# ---- too little ----


def test_too_few_samples_say_nothing() -> None:
    assert rules(gpu(99.0, training_samples=bottleneck.FEWEST_SAMPLES - 1)) == []
    assert rules(gpu(99.0, training_samples=None)) == []
    assert rules(gpu(99.0, training_samples=bottleneck.FEWEST_SAMPLES)) == ["compute-bound"]


def test_what_was_not_measured_decides_nothing() -> None:
    assert rules(Summary(training_samples=20)) == []
    assert rules(Summary(training_samples=20), CPU_RUN) == []
    assert rules(gpu(None)) == []
    assert rules(gpu(40.0, cpu_busiest_core_percent_mean=None)) == ["balanced"]


# ---- the GPU ----


def test_a_gpu_that_its_framework_did_not_use_is_told_however_busy_others_kept_it() -> None:
    auto = replace(GPU_RUN, device="cpu", spec={"workload": {"device": "auto"}})
    found = only(gpu(87.0, shared_gpu=True, throttled_share={"sw_power_cap": 1.0}), auto)
    assert (found.rule, found.text) == ("gpu-idle", "The run had a GPU, but its framework computed on the CPU.")
    assert "ngcdl check" in (found.advice or "")


@pytest.mark.parametrize(("percent", "rule"), [(4.9, "gpu-idle"), (5.0, "balanced"), (0.0, "gpu-idle")])
def test_a_gpu_below_5_percent_is_idle(percent: float, rule: str) -> None:
    assert rules(gpu(percent), replace(GPU_RUN, device=None)) == [rule]


def test_an_idle_gpu_is_doubted_only_where_the_framework_does_not_vouch_for_it() -> None:
    full = {"cpu_busiest_core_percent_mean": 100.0}
    (doubted,) = diagnose(replace(GPU_RUN, device=None), gpu(2.0, **full), ())
    assert "Did it compute on the CPU?" in doubted.text
    sure, why = diagnose(GPU_RUN, gpu(2.0, **full), ())
    assert "CPU?" not in sure.text
    assert why.rule == "full-core"


@pytest.mark.parametrize(("percent", "core", "rule"), [
    (69.9, 90.0, "full-core"), (70.0, 90.0, "balanced"), (69.9, 89.9, "balanced"), (5.0, 100.0, "full-core"),
])  # fmt: skip
def test_a_core_is_full_beside_a_gpu_that_waits(percent: float, core: float, rule: str) -> None:
    assert rules(gpu(percent, cpu_busiest_core_percent_mean=core)) == [rule]


def waited(*pairs: tuple[float | None, float | None]) -> tuple[dict[str, Any], ...]:
    names = ("input_seconds_per_batch", "seconds_per_batch")
    return tuple({"event": "step", **dict(zip(names, pair, strict=True))} for pair in pairs)


def test_what_a_full_core_does_is_not_claimed_where_nobody_measured_it() -> None:
    found = only(gpu(47.0, cpu_busiest_core_percent_mean=100.0), GPU_RUN)
    assert found.text == (
        "GPU 47 % busy, one CPU core at 100 %: it makes batches, hands out work, or waits for the card."
    )
    assert found.numbers == {"gpu_percent": 47.0, "cpu_busiest_core_percent": 100.0}
    assert "num_workers" in (found.advice or "")


def test_a_training_that_waited_for_its_batches_is_held_back_by_them() -> None:
    steps = waited((None, None), (0.06, 0.1), (0.02, 0.1), (None, 0.5))
    found = only(gpu(47.0, cpu_busiest_core_percent_mean=100.0), GPU_RUN, *steps)
    assert (found.rule, found.text) == (
        "input-bound",
        "GPU 47 % busy, one CPU core at 100 %: 40 % of the time the training waited for its next batch. The input "
        "pipeline holds it back.",
    )
    assert found.numbers == {"gpu_percent": 47.0, "waited_percent": 40.0, "cpu_busiest_core_percent": 100.0}
    assert "num_workers" in (found.advice or "")
    tiny = gpu(47.0, seconds_per_batch=0.001)
    small = only(tiny, GPU_RUN, {"event": "start", "batch": 8}, *steps)
    assert small.rule == "tiny-batch", "which is made and handed out in the same time"
    assert "most of the time goes into making batches and handing out work" in small.text
    others = gpu(47.0, cpu_busiest_core_percent_mean=99.0, container_cpu_percent_mean=20.0)
    assert rules(others, GPU_RUN, *steps) == ["input-bound"], "a disk may be what is slow"


@pytest.mark.parametrize(("percent", "share", "rule"), [
    (69.9, 0.30, "input-bound"), (69.9, 0.29, "balanced"), (70.0, 0.9, "balanced"), (90.0, 0.9, "compute-bound"),
])  # fmt: skip
def test_batches_are_named_where_a_card_waits_and_the_training_waited_for_them(
    percent: float, share: float, rule: str
) -> None:
    assert rules(gpu(percent), GPU_RUN, *waited((share, 1.0))) == [rule]


def test_a_full_core_beside_batches_that_came_in_time_does_not_make_them() -> None:
    found = only(gpu(47.0, cpu_busiest_core_percent_mean=100.0), GPU_RUN, *waited((0.02, 1.0)))
    assert (found.rule, found.text) == (
        "full-core",
        "GPU 47 % busy, one CPU core at 100 %: it hands out work, or waits for the card; for batches it waited 2 % of "
        "the time.",
    )
    assert found.advice == "A larger --batch gives the card more to do in each step."


@pytest.mark.parametrize(("own", "rule"), [(89.9, "balanced"), (90.0, "full-core"), (None, "full-core")])
def test_a_core_that_the_run_itself_can_t_have_filled_is_not_laid_at_its_door(own: float | None, rule: str) -> None:
    assert rules(gpu(40.0, cpu_busiest_core_percent_mean=97.0, container_cpu_percent_mean=own)) == [rule]


@pytest.mark.parametrize("feed", ["resident", "constant", "input"])
def test_where_no_batch_is_made_beside_the_training_a_full_core_makes_none(feed: str) -> None:
    full = gpu(40.0, cpu_busiest_core_percent_mean=97.0)
    found = only(full, GPU_RUN, {"event": "start", "feed": feed})
    assert (found.rule, found.text.partition(": ")[2]) == ("balanced", "it waits for something that was not measured.")
    assert rules(full, replace(GPU_RUN, spec={"workload": {"feed": feed}})) == ["balanced"]


@pytest.mark.parametrize(("percent", "rule"), [(89.9, "balanced"), (90.0, "compute-bound"), (100.0, "compute-bound")])
def test_a_gpu_of_90_percent_sets_the_pace(percent: float, rule: str) -> None:
    assert rules(gpu(percent)) == [rule]


@pytest.mark.parametrize(("percent", "batch", "seconds", "is_tiny"), [
    (49.9, 32, 0.0049, True), (50.0, 32, 0.0049, False), (49.9, 33, 0.0049, False), (49.9, 32, 0.005, False),
    (49.9, 32, None, False),
])  # fmt: skip
def test_a_tiny_batch_is_one_whose_steps_are_over_at_once_on_a_gpu_that_waits(
    percent: float, batch: int, seconds: float | None, is_tiny: bool
) -> None:
    summary = gpu(percent, seconds_per_batch=seconds)
    found = diagnose(GPU_RUN, summary, [{"event": "start", "batch": batch}])
    assert [one.rule for one in found] == ["tiny-batch" if is_tiny else "balanced"]
    assert not is_tiny or found[0].advice == "    ngcdl run ... --batch 128"


def test_what_the_trainer_says_of_its_batch_counts_and_else_what_was_asked() -> None:
    summary, asked = gpu(10.0, seconds_per_batch=0.001), replace(GPU_RUN, spec={"workload": {"batch": 16}})
    assert rules(summary, asked) == ["tiny-batch"]
    assert rules(summary, asked, {"event": "start", "batch": 128}) == ["balanced"]


def test_beside_a_tiny_batch_the_core_that_hands_it_out_is_no_other_cause() -> None:
    summary = gpu(30.0, seconds_per_batch=0.001, cpu_busiest_core_percent_mean=100.0)
    assert rules(summary, GPU_RUN, {"event": "start", "batch": 8}) == ["tiny-batch"]


@pytest.mark.parametrize(("shared", "expected"), [(True, ["shared-gpu"]), (False, ["balanced"]), (None, ["balanced"])])
def test_a_gpu_that_others_use_too_is_told(shared: bool | None, expected: list[str]) -> None:
    assert rules(gpu(80.0, shared_gpu=shared)) == expected
    paced = ["shared-gpu"] if shared else ["compute-bound"]
    assert rules(gpu(98.0, shared_gpu=shared)) == paced, "the use of a card is that of all who are there"


def test_the_busiest_card_counts_and_one_that_did_nothing_is_named() -> None:
    cards = (GpuSummary(index=0, gpu_percent_mean=95.0), GpuSummary(index=3, gpu_percent_mean=4.9))
    busy, idle = diagnose(GPU_RUN, gpu(50.0, gpus=cards), ())
    assert (busy.rule, idle.rule) == ("compute-bound", "idle-card")
    assert "1 of its 2 GPUs did nothing (3)" in idle.text
    both = (cards[0], replace(cards[1], gpu_percent_mean=5.0))
    assert rules(gpu(50.0, gpus=both)) == ["compute-bound"]


# ---- clocks ----


@pytest.mark.parametrize("reason", [one.name for one in throttling.REASONS])
def test_each_reason_is_told_from_a_tenth_of_the_samples_on_with_what_to_do(reason: str) -> None:
    found = only(gpu(80.0, throttled_share={reason: 0.1}, sm_mhz_mean=1410.0))
    assert found.rule == "throttled"
    assert found.text.startswith("GPU clocks held down for 10 % of the time, 1410 MHz in the mean: ")
    assert found.text.endswith(f" ({reason}).")
    assert "nvidia-smi" in (found.advice or "")
    assert rules(gpu(80.0, throttled_share={reason: 0.099})) == ["balanced"]


def test_heat_is_decisive_and_a_power_limit_only_comes_beside_what_sets_the_pace() -> None:
    assert rules(gpu(95.0, throttled_share={"sw_thermal_slowdown": 0.9})) == ["throttled", "compute-bound"]
    assert rules(gpu(95.0, throttled_share={"sw_power_cap": 0.9})) == ["compute-bound", "throttled"]


def test_the_more_telling_reason_is_named() -> None:
    found = only(gpu(80.0, throttled_share={"hw_slowdown": 1.0, "hw_thermal_slowdown": 0.5}))
    assert "too hot (hw_thermal_slowdown)" in found.text
    assert found.numbers == {"share": 0.5}


def test_a_reason_of_a_later_driver_is_told_by_its_number() -> None:
    assert "0x1000" in only(gpu(80.0, throttled_share={"0x1000": 0.5})).text


def test_clocks_of_a_card_that_hardly_worked_hold_nothing_back() -> None:
    assert rules(gpu(4.0, throttled_share={"sw_power_cap": 1.0})) == ["gpu-idle"]


# ---- memory ----


@pytest.mark.parametrize(("used", "expected"), [(899, ["balanced"]), (900, ["memory-pressure"]), (None, ["balanced"])])
def test_memory_is_full_from_nine_tenths_of_the_limit_on(used: int | None, expected: list[str]) -> None:
    assert rules(gpu(80.0, memory_bytes_max=used, memory_limit_bytes=1000)) == expected
    assert rules(gpu(80.0, memory_bytes_max=used)) == ["balanced"], "the limit is unknown"


@pytest.mark.parametrize(("percent", "expected"), [(9.9, ["balanced"]), (10.0, ["memory-pressure"])])
def test_a_tenth_of_the_time_spent_waiting_for_memory_is_told(percent: float, expected: list[str]) -> None:
    assert rules(gpu(80.0, memory_pressure_percent=percent)) == expected


def test_processes_that_the_kernel_killed_are_told_and_none_is_nothing() -> None:
    found = only(gpu(80.0, memory_oom_kills=1, memory_bytes_max=95, memory_limit_bytes=100))
    assert found.text == (
        "The kernel killed 1 of the run's processes for memory; it used 95 % of the memory that the container may have."
    )
    assert rules(gpu(80.0, memory_oom_kills=0)) == ["balanced"]


@pytest.mark.parametrize(
    ("failed", "remembered", "expected"),
    [("exit code -9", False, "balanced"), (None, False, "memory-pressure"), ("exit code -9", True, "memory-pressure")],
)
def test_a_trial_that_the_kernel_killed_is_no_word_against_the_training(
    failed: str | None, remembered: bool, expected: str
) -> None:
    trial = {
        "remembered": remembered,
        "tries": [{"way": {}, "failed": None}, {"way": {"threads": 1}, "failed": failed}],
    }
    start = {"event": "start", "autotune": trial}
    assert rules(gpu(80.0, memory_oom_kills=1), GPU_RUN, start) == [expected]


def test_a_container_without_a_limit_of_its_own_fills_the_machine_s_memory() -> None:
    assert "95 % of the machine's memory" in only(
        gpu(80.0, memory_bytes_max=95 * (1 << 34) // 100 + 1, memory_limit_bytes=1 << 34)
    ).text  # fmt: skip


OOM = {"event": "error", "kind": "out_of_memory", "message": "ResourceExhaustedError"}


def test_a_batch_that_does_not_fit_is_told_without_any_sample() -> None:
    found = only(Summary(), GPU_RUN, {"event": "start", "batch": 512}, OOM)
    assert (found.rule, found.text) == ("out-of-memory", "A batch of 512 does not fit into the GPU's memory.")
    assert found.advice == "    ngcdl run ... --batch 256\n    ngcdl run ... --batch largest"
    assert "the machine's memory" in only(Summary(), CPU_RUN, OOM).text


def test_a_container_whose_training_the_kernel_killed_is_told_what_to_take_instead() -> None:
    killed = replace(CPU_RUN, status="failed", oom_killed=True)
    found = only(Summary(memory_limit_bytes=1 << 30), killed, {"event": "start", "batch": 512})
    assert found.text == "A batch of 512 does not fit into the memory that the container may have."
    assert found.advice == "    ngcdl run ... --batch 256\n    ngcdl run ... --batch largest"
    assert rules(Summary(), replace(killed, spec=None)) == []
    assert rules(Summary(), replace(killed, status="finished")) == []


def test_a_training_on_a_gpu_that_the_kernel_killed_did_not_want_for_the_gpu_s_memory() -> None:
    killed = replace(GPU_RUN, status="failed", oom_killed=True)
    start = {"event": "start", "batch": 512}
    found = only(Summary(memory_limit_bytes=1 << 30), killed, start)
    assert found.text == "A batch of 512 does not fit into the memory that the container may have."
    assert found.advice == "    ngcdl run ... --batch 256"
    assert "the machine's memory" in only(Summary(), killed, start).text
    assert "the GPU's memory" in only(Summary(), killed, start, OOM).text
    known = replace(killed, diagnosis=Diagnosis("gpu-out-of-memory"))
    assert "the GPU's memory" in only(Summary(), known, start).text


def test_an_earlier_attempt_that_wanted_for_memory_is_no_word_against_the_last() -> None:
    start = {"event": "start", "batch": 512}
    assert rules(Summary(), GPU_RUN, start, OOM, start, {"event": "finish"}) == []
    assert rules(Summary(), GPU_RUN, start, OOM, start, OOM) == ["out-of-memory"]


def test_a_run_that_found_its_batch_says_so_and_one_that_still_failed_does_not_trust_it() -> None:
    tried, start = {"event": "oom", "batch": 64, "fits": 60}, {"event": "start", "batch": 60}
    found = only(Summary(memory_oom_kills=3), CPU_RUN, tried, start)
    assert (found.rule, found.advice) == ("largest-batch", None)
    assert found.text.endswith("machine's memory: 60 is the largest that does, and was taken.")
    less = only(Summary(), CPU_RUN, tried, {"event": "start", "batch": 53})
    assert less.text.endswith("machine's memory: 60 is the largest that does. 53 was taken: an eighth is left free.")
    assert "A batch of 60 does not fit" in only(Summary(), CPU_RUN, tried, start, OOM).text
    assert rules(gpu(80.0, memory_oom_kills=3), GPU_RUN, tried, start) == ["largest-batch"]


def test_the_largest_batch_that_fits_is_told_where_a_search_says_it() -> None:
    tried = [{"event": "oom", "batch": 512, "fits": 128}, {"event": "oom", "batch": 256, "fits": 192}]
    found = only(Summary(), GPU_RUN, *tried)
    assert found.text == "A batch of 256 does not fit into the GPU's memory; 192 does."
    assert (found.numbers, found.advice) == ({"batch": 256, "fits": 192}, "    ngcdl run ... --batch 192")


def test_a_failure_that_was_recognised_in_the_log_counts() -> None:
    failed = replace(GPU_RUN, status="failed", diagnosis=Diagnosis("gpu-out-of-memory"))
    assert rules(Summary(), failed) == ["out-of-memory"]
    assert rules(Summary(), replace(failed, diagnosis=Diagnosis("gpu-lost"))) == []
    assert rules(Summary(), failed, {"event": "error", "kind": "nan"}) == ["out-of-memory"]


# ---- the CPU ----


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


# ---- all together ----


def test_the_sentence_where_no_rule_applies_says_what_was_measured() -> None:
    assert only(gpu(80.0)).text == "GPU 80 % busy, the busiest CPU core 50 %: it seldom waits."
    assert "it waits for something else" in only(gpu(40.0)).text
    assert only(cpu(50.0), CPU_RUN).text == "4.0 of 8 cores busy: not all of the CPU is used."


def test_what_is_decisive_comes_first() -> None:
    summary = gpu(30.0, seconds_per_batch=0.001, cpu_busiest_core_percent_mean=100.0, shared_gpu=True,
                  memory_pressure_percent=50.0, throttled_share={"hw_slowdown": 1.0, "sw_power_cap": 1.0})  # fmt: skip
    start = {"event": "start", "batch": 8, "threads": 64}
    assert rules(summary, GPU_RUN, start, OOM) == [
        "out-of-memory", "memory-pressure", "throttled", "shared-gpu", "tiny-batch", "oversubscribed", "throttled",
    ]  # fmt: skip


def test_planted_samples_become_a_finding_of_the_record() -> None:
    steps = [{"event": "step", "step": step, "t": t} for step, t in ((0, 100.0), (10, 106.0))]
    reading = {"uuid": "GPU-1", "index": 0, "gpu_percent": 47, "throttle_reasons": ["hw_thermal_slowdown"]}
    told = {"host_cpu_percent": 35, "cpu_percents": [3, 100, 2], "gpus": [reading]}
    samples = [{"t": 100.0 + second, **told} for second in range(7)]
    run = filled(GPU_RUN, [{"event": "start", "device": "gpu"}, *steps], samples)
    assert [found.rule for found in run.findings or ()] == ["throttled", "full-core"]
    assert filled(GPU_RUN, steps, samples[:4]).findings == ()


VALUE = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3)
READING = st.dictionaries(
    st.sampled_from(["uuid", "gpu_percent", "throttle_reasons", "foreign_processes", "watts"]),
    VALUE | st.lists(st.text(max_size=3), max_size=2),
)


@given(
    st.lists(st.dictionaries(st.sampled_from(["event", "batch", "threads", "fits", "device", "kind"]),
                             VALUE | st.sampled_from(["start", "oom", "error", "out_of_memory", "gpu"])), max_size=3),
    st.lists(st.fixed_dictionaries({
        "t": st.just(1.5), "host_cpu_percent": VALUE, "gpus": st.lists(READING, max_size=2)}, optional={
        "cpu_percents": st.lists(VALUE, max_size=2), "threads_running": VALUE,
        "memory_bytes": VALUE, "memory_limit_bytes": VALUE}), min_size=5, max_size=6),
)  # fmt: skip
def test_foreign_lines_give_findings_that_a_record_can_hold(events: list[Any], samples: list[Any]) -> None:
    steps = [{"event": "step", "step": step, "t": t} for step, t in ((0, 1.0), (1, 2.0))]
    run = filled(replace(GPU_RUN, device=None), [*events, *steps], samples)
    assert Run.from_json(json.loads(json.dumps(run.as_json(), allow_nan=False))) == run
