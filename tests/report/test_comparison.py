"""Runs are compared round by round; a ratio has its spread; what can't be compared is refused by the field's name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngcdl.record import Finding, Gpu, GpuSummary, Image, Machine, Run, Summary
from ngcdl.report import compared
from ngcdl.report.compared import _listed
from ngcdl.report.comparison import ONE_PAIR, Arm, Comparison, comparison
from ngcdl.report.pairs import published
from ngcdl.report.unlike import BECAUSE_OF, Measured

CARD = "GPU-1"
MACHINE = Machine("host", "Xeon", 16, gpus=(Gpu(0, "GeForce GTX 1050 Ti", CARD),), driver="390.12")
WORKLOAD = {"name": "cifar10", "steps": 200, "batch": 128, "seed": 0, "data": "auto", "device": "cpu", "threads": None}
OLD_START = {
    "event": "start", "framework": "tf1", "framework_version": "1.4.0", "dataset_sha256": "aa", "parameters": 10,
}  # fmt: skip
START = {**OLD_START, "channels_last": False}


def measured(
    run_id: str, rate: float | None, device: str | None = "cpu", workload: Mapping[str, Any] = {}, **more: Any
) -> Measured:
    """A run that went well at `rate`; `more` are other fields of its record, `start` and `error` its trainer's."""
    start, error = more.pop("start", START), more.pop("error", None)
    asked = {**WORKLOAD, "device": device, **workload}
    spec = {"image": "t:1", "workload": asked, "mounts": ["/a:/b:ro"], "environment": {}, "command": [run_id]}
    run = Run(
        run_id, "finished", 1.0, exit_code=0, engine="docker", gpu_way="runtime", image=Image("t:1", "sha256:1"),
        dataset="cifar10", device=device, gpus=(CARD,), machine=MACHINE, spec=spec,
        summary=Summary(steps=200, examples_per_second=rate, seconds_per_batch=128 / rate if rate else None),
    )  # fmt: skip
    return Measured(replace(run, **more), start, error)


def arms(cpu: list[float], gpu: list[float], *changed: tuple[int, Measured]) -> list[Arm]:
    """CPU and GPU at these rates; `changed` are runs of the GPU, by round, that are others."""
    slow = tuple(measured(f"c{n}", rate) for n, rate in enumerate(cpu, 1))
    fast = {n: measured(f"g{n}", rate, "gpu") for n, rate in enumerate(gpu, 1)}
    return [Arm("cpu", slow, "cpu"), Arm("gpu", tuple((fast | dict(changed)).values()), "gpu")]


def refused(it: Comparison) -> list[str]:
    return [refusal.field for refusal in it.refused]


def text(it: Comparison) -> str:
    return "\n".join(compared.lines(it))


def test_the_ratio_is_the_median_of_the_rounds_own_with_the_least_and_the_most() -> None:
    it = comparison(arms([600.0, 300.0, 500.0], [4680.0, 2400.0, 3800.0]), "device")
    assert [pair.ratio for pair in it.pairs] == pytest.approx([7.8, 8.0, 7.6])
    assert it.ratio is not None
    assert (it.ratio.median, it.ratio.min, it.ratio.max, it.ratio.pairs) == pytest.approx((7.8, 7.6, 8.0, 3))
    assert [(arm.name, arm.counted, arm.on) for arm in it.arms] == [
        ("cpu", 3, "Xeon, 16 cores"), ("gpu", 3, "GeForce GTX 1050 Ti")
    ]  # fmt: skip
    speed = it.arms[0].examples_per_second
    assert speed is not None
    assert (speed.median, speed.min, speed.max) == (500.0, 300.0, 600.0)
    assert it.refused == ()


def test_the_verdict_says_that_the_gpu_is_used_and_what_it_does_with_the_spread() -> None:
    it = comparison(arms([600.0, 600.0, 600.0], [4680.0, 4740.0, 4560.0]), "device")
    assert compared.verdict(it) == "The GPU is used and does 7.80 times (7.60..7.90) the CPU's work."
    slower = comparison(arms([600.0, 600.0], [300.0, 306.0]), "device")
    assert "the CPU is the faster one here" in compared.verdict(slower)


def test_one_round_gives_both_figures_and_no_ratio() -> None:
    it = comparison(arms([600.0], [4680.0]), "device")
    assert (it.ratio, it.ratios, it.why_no_ratio()) == (None, (), ONE_PAIR)
    assert it.as_json()["ratio"] is None
    assert "7.8" not in text(replace(it, published=None)).replace("4,680.0", "")
    assert "600.0" in compared.verdict(it)
    assert "4,680.0" in compared.verdict(it)


def test_where_the_rounds_do_not_agree_no_difference_is_told() -> None:
    it = comparison(arms([100.0, 100.0, 100.0], [97.0, 103.0, 101.0]), "device")
    assert "no difference can be told: 1.01 times (0.97..1.03)" in compared.verdict(it)


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
    assert compared.verdict(it).startswith("Fastest with 32 threads: 31.5 times (31.4..31.7) the work of 1 thread.")
    assert any("32 threads on 16 processors" in said for said in it.diagnosis)


@pytest.mark.parametrize(("field", "change"), [
    ("digest", {"image": Image("t:1", "sha256:2")}),
    ("dataset", {"dataset": "synthetic"}),
    ("dataset_sha256", {"start": {**START, "dataset_sha256": "bb"}}),
    ("framework_version", {"start": {**START, "framework_version": "1.5.0"}}),
    ("seed", {"workload": {"seed": 1}}),
    ("batch", {"workload": {"batch": 64}}),
    ("steps", {"workload": {"steps": 7}}),
    ("workload", {"workload": {"name": "cifar10-keras"}}),
    ("amp", {"workload": {"amp": True}}),
    ("mounts", {"spec": {"workload": {**WORKLOAD, "device": "gpu"}, "mounts": ["/c:/b:ro"], "environment": {}}}),
    ("gpus", {"gpus": ("GPU-2",)}),
    ("engine", {"engine": "local"}),
    ("gpu_way", {"gpu_way": "cdi"}),
    ("driver", {"machine": replace(MACHINE, driver="535.1")}),
    ("machine", {"machine": replace(MACHINE, hostname="other")}),
])  # fmt: skip
def test_what_must_be_the_same_and_is_not_is_refused_by_its_name(field: str, change: dict[str, Any]) -> None:
    other = measured("g2", 4700.0, "gpu", **change)
    it = comparison(arms([600.0] * 3, [4680.0] * 3, (2, other)), "device")
    assert refused(it) == [field]
    assert it.refused[0].runs == ("g2",)
    assert len(it.refused[0].values) == 2, "what it is, and what it is elsewhere"
    assert [(pair.ratio is None, pair.refused) for pair in it.pairs] == [(False, ()), (True, (field,)), (False, ())]
    assert it.ratio is not None
    assert it.ratio.pairs == 2
    assert f"refused, {field}: it must be the same" in text(it)


@pytest.mark.parametrize(("vary", "workload", "changed"), [
    ("batch", {"batch": 64}, {}), ("threads", {"threads": 4}, {}), ("seed", {"seed": 5}, {}),
    ("gpus", {}, {"gpus": (CARD, "GPU-2")}),
    ("feed", {"feed": "plain"}, {}), ("feed", {}, {"start": {**START, "feed": "input", "precision": None}}),
    ("precision", {"precision": "amp"}, {"start": {**START, "precision": "bfloat16"}}),
    ("teacher", {"teacher": "kept"}, {}), ("compile", {"compile": True}, {"start": {**START, "compiled": True}}),
    ("channels", {"channels_last": True}, {"start": {**START, "channels_last": True}}),
    ("image", {}, {"image": Image("p:1", "sha256:9"), "start": {**START, "framework": "pytorch"}}),
    ("framework", {}, {"image": Image("p:1", "sha256:9"), "start": {**START, "framework": "pytorch"}}),
])  # fmt: skip
def test_what_is_varied_on_purpose_is_not_refused_and_nothing_else_is_let_through(
    vary: str, workload: dict[str, Any], changed: dict[str, Any]
) -> None:
    one = Arm("one", tuple(measured(f"a{n}", 100.0) for n in (1, 2)))
    other = Arm("other", tuple(measured(f"b{n}", 200.0, workload=workload, **changed) for n in (1, 2)))
    assert refused(comparison([one, other], vary)) == []
    assert vary in BECAUSE_OF
    assert refused(comparison([one, other], "device")), "of another comparison it is a difference"
    mixed = Arm("other", (other.rounds[0], measured("b2", 200.0)))
    assert refused(comparison([one, mixed], vary)), "an arm's own rounds must agree"


@pytest.mark.parametrize(("way", "field"), [({"threads": 1}, "threads"), ({"onednn": False}, "oneDNN")])
def test_what_a_trial_chose_differs_as_if_it_had_been_typed(way: dict[str, Any], field: str) -> None:
    tuned = measured("b1", 200.0, workload={"autotune": True}, start={**START, "autotune": {"chosen": way}})
    rounds = tuned, replace(tuned, run=replace(tuned.run, id="b2"))
    plain = Arm("a", (measured("a1", 100.0), measured("a2", 100.0)))
    assert refused(comparison([plain, Arm("b", rounds)], "batch")) == [field]
    same = tuple(measured(f"b{n}", 200.0, start={**START, "autotune": {"chosen": {}}}) for n in (1, 2))
    assert refused(comparison([plain, Arm("b", same)], "batch")) == []


def on_slurm(run_id: str, rate: float, nodes: int, batch: int = 128, card: str = "H100", **place: Any) -> Measured:
    """A run on `nodes` with a GPU each."""
    one = measured(run_id, rate, "gpu", engine="slurm", gpus=None, machine=Machine())
    spec = {"workload": {**WORKLOAD, "batch": batch}, "placement": {"nodes": nodes, "partition": "main", **place}}
    summary = replace(one.run.summary, gpus=(GpuSummary(name=card),) * nodes)
    return Measured(replace(one.run, spec=spec, summary=summary), {**START, "batch": batch, "replicas": nodes})


def of_nodes(*others: Measured) -> list[Arm]:
    return [Arm("nodes=1", tuple(on_slurm(f"a{n}", 100.0, 1) for n in (1, 2))), Arm("nodes=2", others)]


def test_nodes_are_compared_and_the_answer_says_which_scaling_it_was() -> None:
    it = comparison(of_nodes(*(on_slurm(f"b{n}", 180.0, 2) for n in (1, 2))), "nodes", scaling="strong")
    assert refused(it) == []
    assert compared.verdict(it) == (
        "Strong scaling, a batch of 128 in all: 2 nodes do 180.0 examples/s, 1.80 times (1.80..1.80) the work of "
        "1 node, an efficiency of 90 % (90..90)."
    )
    assert it.as_json()["scaling"] == "strong"


def test_another_batch_is_let_through_with_weak_scaling_alone() -> None:
    made = of_nodes(*(on_slurm(f"b{n}", 190.0, 2, batch=256) for n in (1, 2)))
    weak = comparison(made, "nodes", scaling="weak")
    assert refused(weak) == []
    assert "Weak scaling, a batch of 128 for each replica: 2 nodes do 190.0 examples/s" in compared.verdict(weak)
    assert refused(comparison(made, "nodes", scaling="strong")) == ["batch"]


@pytest.mark.parametrize(("field", "other"), [
    ("partition", {"partition": "old"}), ("hardware", {"card": "A100"}),
])  # fmt: skip
def test_nodes_of_another_kind_are_refused_by_its_name(field: str, other: dict[str, Any]) -> None:
    made = of_nodes(*(on_slurm(f"b{n}", 180.0, 2, **other) for n in (1, 2)))
    assert refused(comparison(made, "nodes")) == [field]


@pytest.mark.parametrize(("vary", "names", "said"), [
    ("channels", ("first", "last"), "Channels last does 2.00 times (2.00..2.00) the work of channels first."),
    ("compile", ("off", "on"), "Compile on does 2.00 times (2.00..2.00) the work of compile off."),
])  # fmt: skip
def test_the_verdict_names_what_was_varied_with_its_value(vary: str, names: tuple[str, str], said: str) -> None:
    slow = Arm(f"{vary}={names[0]}", tuple(measured(f"a{n}", 100.0) for n in (1, 2)))
    fast = Arm(f"{vary}={names[1]}", tuple(measured(f"b{n}", 200.0) for n in (1, 2)))
    assert said in compared.verdict(comparison([slow, fast], vary))


CPU, GPU = {**START, "precision": "float32"}, {**START, "precision": "tf32"}


def test_a_card_may_compute_in_tf32_beside_the_cpu_where_nothing_else_was_asked_for() -> None:
    cpu = Arm("cpu", tuple(measured(f"a{n}", 100.0, start=CPU) for n in (1, 2)), "cpu")
    gpu = Arm("gpu", tuple(measured(f"b{n}", 200.0, "gpu", start=GPU) for n in (1, 2)), "gpu")
    assert refused(comparison([cpu, gpu], "device")) == []
    amp = tuple(measured(f"b{n}", 200.0, "gpu", {"precision": "amp"}, start=GPU) for n in (1, 2))
    assert refused(comparison([cpu, replace(gpu, rounds=amp)], "device")) == ["precision"]


def test_images_that_compute_in_another_precision_are_refused_with_what_makes_it_the_same() -> None:
    one = Arm("a", tuple(measured(f"a{n}", 100.0, "gpu", start=CPU) for n in (1, 2)))
    other = Arm("b", tuple(measured(f"b{n}", 200.0, "gpu", start=GPU) for n in (1, 2)))
    it = comparison([one, other], "image")
    assert refused(it) == ["precision"]
    assert "the same in all: --precision float32" in text(it)
    assert (it.refused[0].values["a, round 1"], it.refused[0].values["b, round 1"]) == ("float32", "tf32")


def test_what_an_older_record_does_not_tell_is_no_difference() -> None:
    old = Arm("a", tuple(measured(f"a{n}", 100.0, start=OLD_START) for n in (1, 2)))
    told = {**CPU, "feed": "ahead", "compiled": False, "channels_last": True, "teacher": None, "batch": 128}
    whole = {"feed": "ahead", "precision": "auto", "compile": False, "evaluate": True, "largest_batch": False}
    new = Arm("b", tuple(measured(f"b{n}", 200.0, workload=whole, start=told) for n in (1, 2)))
    assert refused(comparison([old, new], "threads")) == []


def test_a_fall_back_to_the_cpu_is_refused_as_the_device() -> None:
    fell_back = measured("g1", 590.0, "cpu", {"device": "auto"})
    no_gpu = measured("g2", None, None, status="failed", exit_code=125, error="no_gpu")
    it = comparison(arms([600.0, 600.0], [0.0, 0.0], (1, fell_back), (2, no_gpu)), "device")
    assert refused(it) == ["device"]
    assert it.refused[0].runs == ("g1", "g2")
    assert it.refused[0].values == {"gpu, round 1": "cpu", "gpu, round 2": None}
    assert (it.ratio, it.why_no_ratio()) == (None, "refused: device")
    assert compared.verdict(it) == (
        "No ratio is given (gpu can't be counted: it was to compute on the GPU, and its framework saw none): "
        "cpu 600.0 examples/s."
    )


def test_a_run_that_had_a_card_and_was_free_to_use_it_must_have_used_it() -> None:
    free = {"device": "auto"}
    made = [
        Arm(f"batch={n}", tuple(measured(f"{n}-{i}", 9.0, "cpu", {"batch": n, **free}) for i in (1, 2))) for n in (1, 2)
    ]
    assert refused(comparison(made, "batch")) == ["device"]
    told = [Arm(f"batch={n}", tuple(measured(f"{n}-{i}", 9.0, "cpu", {"batch": n}) for i in (1, 2))) for n in (1, 2)]
    assert refused(comparison(told, "batch")) == []


@pytest.mark.parametrize(("field", "summary"), [
    ("shared_gpu", Summary(examples_per_second=4000.0, shared_gpu=True)),
    ("throttled_share", Summary(examples_per_second=4000.0, throttled_share={"hw_thermal_slowdown": 0.1})),
    ("examples_per_second", Summary(steps=1)),
])  # fmt: skip
def test_a_shared_card_throttled_clocks_and_a_run_without_a_figure_are_refused(field: str, summary: Summary) -> None:
    other = measured("g1", 4000.0, "gpu", summary=summary)
    it = comparison(arms([600.0] * 2, [4680.0] * 2, (1, other)), "device")
    assert refused(it) == [field]
    assert it.why_no_ratio() == ONE_PAIR


@pytest.mark.parametrize("summary", [
    Summary(examples_per_second=4000.0, shared_gpu=False),
    Summary(examples_per_second=4000.0, throttled_share={"hw_thermal_slowdown": 0.09}),
    Summary(examples_per_second=4000.0, throttled_share={"sw_power_cap": 1.0, "gpu_idle": 0.5}),
])  # fmt: skip
def test_a_card_of_one_s_own_at_its_power_cap_is_compared(summary: Summary) -> None:
    other = measured("g1", 4000.0, "gpu", summary=summary)
    assert refused(comparison(arms([600.0] * 2, [4680.0] * 2, (1, other)), "device")) == []


def test_a_run_on_the_cpu_is_not_refused_for_what_its_card_did() -> None:
    busy = measured("c1", 600.0, summary=Summary(examples_per_second=600.0, shared_gpu=True))
    made = arms([600.0] * 2, [4680.0] * 2)
    it = comparison([replace(made[0], rounds=(busy, made[0].rounds[1])), made[1]], "device")
    assert refused(it) == []


@pytest.mark.parametrize("status", ["failed", "interrupted", "lost", "running"])
def test_a_run_that_did_not_reach_its_end_is_refused_with_its_reason(status: str) -> None:
    other = measured("g2", 4700.0, "gpu", status=status, reason="out of memory")
    it = comparison(arms([600.0] * 2, [4680.0] * 2, (2, other)), "device")
    assert [(one.field, one.why, one.values) for one in it.refused] == [
        ("status", "out of memory", {"gpu, round 2": status})
    ]


def test_a_round_without_one_of_its_runs_gives_no_ratio() -> None:
    made = arms([600.0, 600.0, 600.0], [4680.0, 4700.0])
    it = comparison(made, "device")
    assert [pair.ratio is None for pair in it.pairs] == [False, False, True]
    assert it.pairs[2].runs == ("c3", None)


def test_what_the_runs_were_held_back_by_is_the_arm_s_and_stands_once_with_its_advice_below() -> None:
    def busy(rule: str, percent: int) -> tuple[Finding, ...]:
        return (Finding(rule, f"The CPU is {percent} % busy.", advice="Try more threads:\n    --threads 8"),)

    cpu = tuple(measured(f"c{n}", 600.0, findings=busy("cpu", 99)) for n in (1, 2))
    gpu = tuple(measured(f"g{n}", 4000.0, "gpu", findings=busy("cpu", 47) + busy("other", 1)) for n in (1, 2))
    it = comparison([Arm("cpu", cpu, "cpu"), Arm("gpu", gpu, "gpu")], "device", ["said before"])
    advice = "\n  Try more threads:\n      --threads 8"
    assert it.diagnosis == (
        "said before",
        f"cpu: The CPU is 99 % busy.\ngpu: The CPU is 47 % busy.{advice}",
        f"gpu: The CPU is 1 % busy.{advice}",
    )


def test_rounds_far_apart_are_told() -> None:
    it = comparison(arms([600.0, 800.0], [4000.0, 4000.0]), "device")
    (said,) = it.diagnosis
    assert said.startswith("cpu: its rounds lie 33 % apart")
    verdict = compared.verdict(it)
    assert verdict.startswith("Something disturbed the rounds of cpu: measure again. The GPU ")
    assert verdict.endswith("times (5.00..6.67) the CPU's work.")
    assert "disturbed" not in compared.verdict(comparison(arms([600.0, 700.0], [4000.0, 4000.0]), "device"))


def test_too_many_threads_are_told_once_also_where_a_run_was_too_short_for_findings() -> None:
    found = (Finding("oversubscribed", "32 threads compute on 16 cores.", {}),)
    for findings, said in (((), "32 threads on 16 processors"), (found, "threads=32: 32 threads compute on 16 cores.")):
        made = [
            Arm(f"threads={n}", (measured(f"{n}", 9.0, workload={"threads": n}, findings=findings if n > 16 else ()),))
            for n in (1, 32)
        ]
        (told,) = comparison(made, "threads").diagnosis
        assert told.startswith(said)


def test_an_arm_that_was_refused_takes_no_ratio_from_the_others() -> None:
    made = [
        Arm(f"threads={n}", tuple(
            measured(f"{n}-{i}", 100.0 * n, workload={"threads": n}, status="failed" if n == 4 else "finished")
            for i in (1, 2)
        ))
        for n in (1, 2, 4)
    ]  # fmt: skip
    it = comparison(made, "threads")
    assert it.ratio is None
    assert compared.verdict(it) == (
        "Fastest with 2 threads: 2.00 times (2.00..2.00) the work of 1 thread. Left out: threads=4 failed."
    )


def test_an_arm_that_became_nan_is_named_and_the_others_are_answered() -> None:
    nan = {"status": "failed", "error": "nan", "reason": "nan: the loss of step 12 is NaN"}
    made = [
        Arm(f"batch={n}", tuple(
            measured(f"{n}-{i}", None if n == 4 else 10.0 * n, workload={"batch": n}, **(nan if n == 4 else {}))
            for i in (1, 2)
        ))
        for n in (4, 8, 64)
    ]  # fmt: skip
    assert compared.verdict(comparison(made, "batch")) == (
        "An epoch takes 8.00 times (8.00..8.00) as long with batches of 8 as with batches of 64. "
        "Left out: batch=4 failed: nan: the loss of step 12 is NaN."
    )


def test_energy_is_in_the_table_where_a_card_told_it() -> None:
    summary = Summary(examples_per_second=4000.0, examples_per_joule=64.0)
    it = comparison(arms([600.0], [0.0], (1, measured("g1", 4000.0, "gpu", summary=summary))), "device")
    head, cpu, gpu, *_ = text(it).splitlines()
    assert "EXAMPLES/J" in head
    assert (head.index("EXAMPLES/J"), cpu[head.index("EXAMPLES/J") :][:3]) == (gpu.index("64.00"), "n/a")
    assert "EXAMPLES/J" not in text(comparison(arms([600.0], [4680.0]), "device"))


def test_synthetic_data_is_said_wherever_figures_stand() -> None:
    made = [Arm("cpu", tuple(measured(f"c{n}", 9.0, dataset="synthetic", dataset_note="no network") for n in (1, 2)))]
    it = comparison(made, "device")
    assert "SYNTHETIC" in text(it)
    assert "no network" in text(it)
    assert it.as_json()["synthetic"] is True
    assert compared.verdict(it) == "Only the CPU was measured: 9.0 examples/s."


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
        named = {"name": workload}
        made = [
            Arm(f"{vary}={n}", tuple(measured(f"{n}-{i}", 9.0, workload={**named, vary: n}) for i in (1, 2)))
            for n in (8, 64)
        ]
        return text(comparison(made, vary))

    assert "published: cross-validation, batch 8: about 35 min on GeForce GTX 760 2 GB" in of("batch-sweep", "batch")
    assert "published: 222 frames: 40 to 50 s on Core i7 2.8 GHz" in of("inference", "batch")
    for workload, vary in (("cifar10", "batch"), ("cifar10", "threads"), ("fcn-s", "threads"), ("batch-sweep", "seed")):
        assert "published" not in of(workload, vary), (workload, vary)


def test_no_figure_of_a_training_stands_beside_batches_that_were_dropped() -> None:
    fed = {"start": {**START, "feed": "input"}, "workload": {"feed": "input"}}
    pair = [Arm(name, tuple(measured(f"{name}{n}", 9e5, name, **fed) for n in (1, 2)), name) for name in ("cpu", "gpu")]
    it = comparison(pair, "device")
    assert it.published is None
    assert "published" not in text(it)


def test_json_holds_in_json_and_has_what_was_promised() -> None:
    it = comparison(arms([600.0] * 3, [4680.0] * 3), "device")
    read = json.loads(json.dumps(it.as_json(), allow_nan=False))
    assert {"pairs", "ratio", "refused", "diagnosis", "arms", "published"} <= set(read)
    assert {"median", "min", "max"} <= set(read["ratio"])
    assert [pair["round"] for pair in read["pairs"]] == [1, 2, 3]


def test_nothing_at_all_gives_no_figure() -> None:
    it = comparison([Arm("cpu", ()), Arm("gpu", ())], "device")
    assert (it.pairs, it.ratio, it.synthetic, it.published) == ((), None, None, None)
    assert compared.verdict(it) == "No ratio is given (no round is whole): nothing was measured."
    assert "n/a" in text(it)


RATE = st.floats(1e-3, 1e6)


@given(st.lists(st.tuples(RATE, RATE), min_size=2, max_size=7))
def test_a_ratio_lies_within_its_spread_and_turns_with_the_arms(rounds: list[tuple[float, float]]) -> None:
    one = Arm("threads=1", tuple(measured(f"a{n}", a, workload={"threads": 1}) for n, (a, _) in enumerate(rounds)))
    two = Arm("threads=2", tuple(measured(f"b{n}", b, workload={"threads": 2}) for n, (_, b) in enumerate(rounds)))
    ratio, turned = comparison([one, two], "threads").ratio, comparison([two, one], "threads").ratio
    assert ratio is not None
    assert turned is not None
    assert ratio.min <= ratio.median <= ratio.max
    assert turned.min == pytest.approx(1 / ratio.max)
    assert turned.max == pytest.approx(1 / ratio.min)


def test_names_are_listed_as_people_do() -> None:
    assert [_listed(names) for names in (["a"], ["a", "b"], ["a", "b", "c"])] == ["a", "a and b", "a, b and c"]
