"""What holds a run back, by all that was measured: the decisive finding first, none if too little is known."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from made_summaries import CPU_RUN, GPU_RUN, OOM, cpu, filled, gpu, only, rules

from ngcdl.record import Run, Summary
from ngcdl.report.measured import bottleneck


def test_too_few_samples_say_nothing() -> None:
    assert rules(gpu(99.0, training_samples=bottleneck.FEWEST_SAMPLES - 1)) == []
    assert rules(gpu(99.0, training_samples=None)) == []
    assert rules(gpu(99.0, training_samples=bottleneck.FEWEST_SAMPLES)) == ["compute-bound"]


def test_what_was_not_measured_decides_nothing() -> None:
    assert rules(Summary(training_samples=20)) == []
    assert rules(Summary(training_samples=20), CPU_RUN) == []
    assert rules(gpu(None)) == []
    assert rules(gpu(40.0, cpu_busiest_core_percent_mean=None)) == ["balanced"]


def test_the_sentence_where_no_rule_applies_says_what_was_measured() -> None:
    assert only(gpu(80.0)).text == "GPU 80 % busy, the busiest CPU core 50 %: it rarely waits."
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
