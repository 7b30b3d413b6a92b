"""How memory holds a run back or ended it, and the batch size to use instead."""

from __future__ import annotations

from dataclasses import replace

import pytest
from made_summaries import CPU_RUN, GPU_RUN, OOM, gpu, only, rules

from ngcdl.record import Diagnosis, Gpu, Machine, Summary


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
        "The kernel OOM-killed 1 of the run's processes; it used 95 % of the container's memory limit."
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


def test_a_run_without_a_container_has_the_limit_of_its_control_group() -> None:
    summary = gpu(80.0, memory_bytes_max=95, memory_limit_bytes=100)
    assert "it used 95 % of its control group's memory limit" in only(
        summary, replace(GPU_RUN, engine="local")
    ).text.replace("It", "it", 1)
    killed = replace(CPU_RUN, engine="local", status="failed", oom_killed=True)
    found = only(Summary(memory_limit_bytes=1 << 30), killed, {"event": "start", "batch": 512})
    assert found.text == "A batch of 512 does not fit into its control group's memory limit."


def test_a_batch_that_does_not_fit_is_told_without_any_sample() -> None:
    found = only(Summary(), GPU_RUN, {"event": "start", "batch": 512}, OOM)
    assert (found.rule, found.text) == ("out-of-memory", "A batch of 512 does not fit into the GPU's memory.")
    assert found.advice == "    ngcdl run ... --batch 256\n    ngcdl run ... --batch largest"
    assert "the machine's memory" in only(Summary(), CPU_RUN, OOM).text


def test_a_container_whose_training_the_kernel_killed_is_told_what_to_take_instead() -> None:
    killed = replace(CPU_RUN, status="failed", oom_killed=True)
    found = only(Summary(memory_limit_bytes=1 << 30), killed, {"event": "start", "batch": 512})
    assert found.text == "A batch of 512 does not fit into the container's memory limit."
    assert found.advice == "    ngcdl run ... --batch 256\n    ngcdl run ... --batch largest"
    assert rules(Summary(), replace(killed, spec=None)) == []
    assert rules(Summary(), replace(killed, status="finished")) == []


def test_a_training_on_a_gpu_that_the_kernel_killed_did_not_want_for_the_gpu_s_memory() -> None:
    killed = replace(GPU_RUN, status="failed", oom_killed=True)
    start = {"event": "start", "batch": 512}
    found = only(Summary(memory_limit_bytes=1 << 30), killed, start)
    assert found.text == "A batch of 512 does not fit into the container's memory limit."
    assert found.advice == "    ngcdl run ... --batch 256"
    assert "the machine's memory" in only(Summary(), killed, start).text
    assert "the GPU's memory" in only(Summary(), killed, start, OOM).text
    known = replace(killed, diagnosis=Diagnosis("gpu-out-of-memory"))
    assert "the GPU's memory" in only(Summary(), known, start).text


SPARK = replace(GPU_RUN, machine=Machine(memory_bytes=100, gpus=(Gpu(0, "NVIDIA GB10", compute_capability="12.1"),)))


def test_a_memory_that_a_gpu_and_its_run_fill_together_is_full() -> None:
    full = gpu(80.0, gpu_memory_bytes_max=86, memory_bytes_max=4, memory_limit_bytes=100)
    assert only(full, SPARK).text == (
        "The programs on the GPU took up to 86 % of the machine's memory, the run itself beside that up to 4 %."
    )
    assert "4 %" not in only(replace(full, gpu_memory_bytes_max=95, memory_bytes_max=None), SPARK).text
    for summary, run in (
        (replace(full, gpu_memory_bytes_max=85), SPARK),
        (replace(full, gpu_memory_bytes_max=None), SPARK),
        (full, replace(SPARK, machine=replace(SPARK.machine, memory_bytes=None))),
        (full, replace(SPARK, machine=Machine(memory_bytes=100, gpus=(Gpu(0, compute_capability="9.0"),)))),
    ):
        assert "memory-pressure" not in rules(summary, run)


def test_the_memory_of_a_gpu_that_has_the_machine_s_is_called_so_and_the_search_tries_it_too() -> None:
    start = {"event": "start", "batch": 512}
    found = only(Summary(), SPARK, start, OOM)
    assert found.text == "A batch of 512 does not fit into the GPU's memory, which is the machine's."
    killed = only(Summary(), replace(SPARK, status="failed", oom_killed=True), start)
    assert killed.text == "A batch of 512 does not fit into the machine's memory."
    assert killed.advice == found.advice == "    ngcdl run ... --batch 256\n    ngcdl run ... --batch largest"


def test_an_earlier_attempt_that_wanted_for_memory_is_no_word_against_the_last() -> None:
    start = {"event": "start", "batch": 512}
    assert rules(Summary(), GPU_RUN, start, OOM, start, {"event": "finish"}) == []
    assert rules(Summary(), GPU_RUN, start, OOM, start, OOM) == ["out-of-memory"]


def test_a_run_that_found_its_batch_says_so_and_one_that_still_failed_does_not_trust_it() -> None:
    tried, start = {"event": "oom", "batch": 64, "fits": 60}, {"event": "start", "batch": 60}
    found = only(Summary(memory_oom_kills=3), CPU_RUN, tried, start)
    assert (found.rule, found.advice) == ("largest-batch", None)
    assert found.text.endswith("machine's memory: 60 is the largest that does, and was used.")
    less = only(Summary(), CPU_RUN, tried, {"event": "start", "batch": 53})
    assert less.text.endswith(
        "machine's memory: 60 is the largest that does. 53 was used, which leaves an eighth free."
    )
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
    killed = replace(failed, diagnosis=Diagnosis("host-out-of-memory"))
    told = only(Summary(), killed, {"event": "start", "batch": 512})
    assert told.text == "A batch of 512 does not fit into the machine's memory."
