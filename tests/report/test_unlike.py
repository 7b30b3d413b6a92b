"""Runs that differ in a field that must be the same are refused, naming the field; what is varied may differ."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_arms import CARD, MACHINE, OLD_START, START, WORKLOAD, arm, arms, measured, refused, text

from ngcdl.record import GpuSummary, Image, Machine, Summary
from ngcdl.report.compared import in_words
from ngcdl.report.compared.comparison import ONE_PAIR, Arm, comparison
from ngcdl.report.compared.unlike import BECAUSE_OF, TOO_FEW_STEPS, MeasuredRun, written

SPEC = {"workload": {**WORKLOAD, "device": "gpu"}, "mounts": ["/a:/b:ro"], "environment": {}}


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
    ("mounts", {"spec": {**SPEC, "mounts": ["/c:/b:ro"]}}),
    ("cpu_limit", {"spec": {**SPEC, "cpu_limit": 2}}),
    ("memory_bytes", {"spec": {**SPEC, "memory_bytes": 2}}),
    ("environment", {"spec": {**SPEC, "environment": {"LR": "2"}}}),
    ("gpus", {"gpus": ("GPU-2",)}),
    ("engine", {"engine": "local"}),
    ("packages", {"packages": ("einops>=1",)}),
    ("gpu_way", {"gpu_way": "cdi"}),
    ("driver", {"machine": replace(MACHINE, driver="535.1")}),
    ("machine", {"machine": replace(MACHINE, hostname="other")}),
    ("ngcdl", {"ngcdl": "0.9"}),
])  # fmt: skip
def test_what_must_be_the_same_and_is_not_is_refused_by_its_name(field: str, change: dict[str, Any]) -> None:
    other = measured("g2", 4700.0, "gpu", **change)
    it = comparison(arms([600.0] * 3, [4680.0] * 3, (2, other)), "device")
    assert refused(it) == [field]
    assert it.refused[0].runs == ("g2",)
    assert len(it.refused[0].values) == 2, "what it is, and what it is elsewhere"
    assert [(pair.ratio is None, pair.refused) for pair in it.pairs] == [(False, ()), (True, (field,)), (False, ())]
    assert it.ratio is not None
    assert it.ratio.times.rounds == 2
    assert f"refused, {it.refused[0].name}: it must be the same" in text(it)
    assert "['" not in text(it), "a list is written as readers write one"
    assert "{'" not in text(it)
    assert "_" not in it.refused[0].name


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
    one, other = arm("one", 100.0), arm("other", 200.0, workload=workload, **changed)
    assert refused(comparison([one, other], vary)) == []
    assert vary in BECAUSE_OF
    assert refused(comparison([one, other], "device")), "of another comparison it is a difference"
    mixed = Arm("other", (other.rounds[0], measured("b2", 200.0)))
    assert refused(comparison([one, mixed], vary)), "an arm's own rounds must agree"


@pytest.mark.parametrize(("way", "field"), [({"threads": 1}, "threads"), ({"onednn": False}, "oneDNN")])
def test_what_a_trial_chose_differs_as_if_it_had_been_typed(way: dict[str, Any], field: str) -> None:
    tuned = arm("b", 200.0, workload={"autotune": True}, start={**START, "autotune": {"chosen": way}})
    assert refused(comparison([arm("a", 100.0), tuned], "batch")) == [field]
    same = arm("b", 200.0, start={**START, "autotune": {"chosen": {}}})
    assert refused(comparison([arm("a", 100.0), same], "batch")) == []


def on_slurm(run_id: str, rate: float, nodes: int, batch: int = 128, card: str = "H100", **place: Any) -> MeasuredRun:
    """A run on `nodes` with a GPU each."""
    one = measured(run_id, rate, "gpu", engine="slurm", gpus=None, machine=Machine())
    spec = {"workload": {**WORKLOAD, "batch": batch}, "placement": {"nodes": nodes, "partition": "main", **place}}
    summary = replace(one.run.summary, gpus=(GpuSummary(name=card),) * nodes)
    return MeasuredRun(replace(one.run, spec=spec, summary=summary), {**START, "batch": batch, "replicas": nodes})


def of_nodes(*others: MeasuredRun) -> list[Arm]:
    return [Arm("nodes=1", tuple(on_slurm(f"a{n}", 100.0, 1) for n in (1, 2))), Arm("nodes=2", others)]


def test_nodes_are_compared_and_the_answer_says_which_scaling_it_was() -> None:
    it = comparison(of_nodes(*(on_slurm(f"b{n}", 180.0, 2) for n in (1, 2))), "nodes", scaling="strong")
    assert refused(it) == []
    assert in_words.verdict(it) == (
        "Strong scaling, a batch of 128 in all: 2 nodes do 180.0 examples/s, 1.80 times (1.80..1.80) the work of "
        "1 node, an efficiency of 90 % (90..90)."
    )
    assert it.as_json()["scaling"] == "strong"


def test_another_batch_is_let_through_with_weak_scaling_alone() -> None:
    made = of_nodes(*(on_slurm(f"b{n}", 190.0, 2, batch=256) for n in (1, 2)))
    weak = comparison(made, "nodes", scaling="weak")
    assert refused(weak) == []
    assert "Weak scaling, a batch of 128 per replica: 2 nodes do 190.0 examples/s" in in_words.verdict(weak)
    assert refused(comparison(made, "nodes", scaling="strong")) == ["batch"]


@pytest.mark.parametrize(("field", "other"), [
    ("partition", {"partition": "old"}), ("hardware", {"card": "A100"}),
])  # fmt: skip
def test_nodes_of_another_kind_are_refused_by_its_name(field: str, other: dict[str, Any]) -> None:
    made = of_nodes(*(on_slurm(f"b{n}", 180.0, 2, **other) for n in (1, 2)))
    assert refused(comparison(made, "nodes")) == [field]


@pytest.mark.parametrize("devices", [4, "cuda:0", None, [4]])
def test_devices_that_are_no_names_are_no_hardware(devices: Any) -> None:
    first, *others = (on_slurm(f"a{n}", 100.0, 1) for n in (1, 2))
    silent = replace(first.run, summary=replace(first.run.summary, gpus=()))
    it = comparison([Arm("a", (MeasuredRun(silent, {**first.start, "devices": devices}), *others))], "nodes")
    assert refused(it) == []


def test_where_no_card_was_sampled_the_devices_that_the_trainer_told_are_the_hardware() -> None:
    runs = [on_slurm(f"a{n}", 100.0, 1, card="") for n in (1, 2)]
    named = [
        replace(one, start={**one.start, "devices": [kind]}) for one, kind in zip(runs, ("Xeon", "EPYC"), strict=True)
    ]
    assert refused(comparison([Arm("a", tuple(named))], "nodes")) == ["hardware"]


def test_on_one_host_the_kind_of_hardware_differs_with_the_device() -> None:
    on_card = Summary(examples_per_second=4700.0, gpus=(GpuSummary(name="H100"),), shared_gpu=False)
    gpu = arm("gpu", 4700.0, "gpu", summary=on_card)
    assert refused(comparison([arm("cpu", 600.0, start={**START, "devices": ["Xeon"]}), gpu], "device")) == []


CPU, GPU = {**START, "precision": "float32"}, {**START, "precision": "tf32"}


def test_a_card_may_compute_in_tf32_beside_the_cpu_where_nothing_else_was_asked_for() -> None:
    cpu, gpu = arm("cpu", 100.0, start=CPU), arm("gpu", 200.0, "gpu", start=GPU)
    assert refused(comparison([cpu, gpu], "device")) == []
    amp = arm("gpu", 200.0, "gpu", {"precision": "amp"}, start=GPU)
    assert refused(comparison([cpu, amp], "device")) == ["precision"]


def test_images_that_compute_in_another_precision_are_refused_with_what_makes_it_the_same() -> None:
    it = comparison([arm("a", 100.0, "gpu", start=CPU), arm("b", 200.0, "gpu", start=GPU)], "image")
    assert refused(it) == ["precision"]
    assert "the same in all: --precision float32" in text(it)
    assert (it.refused[0].values["a, round 1"], it.refused[0].values["b, round 1"]) == ("float32", "tf32")


@pytest.mark.parametrize("vary", ["device", "precision", "image", "framework"])
def test_how_pictures_are_laid_may_differ_with_it_unless_somebody_said_how(vary: str) -> None:
    """On a card PyTorch lays images out channels first in plain float32, and channels last in 16 bits."""

    def laid(name: str, said: bool | None) -> Arm:
        return arm(name, 100.0, "gpu", {"channels_last": said}, start={**GPU, "channels_last": name == "a"})

    assert refused(comparison([laid("a", None), laid("b", None)], vary)) == []
    assert refused(comparison([laid("a", True), laid("b", None)], vary)) == ["channels_last"]
    assert refused(comparison([laid("a", None), laid("b", None)], "batch")) == ["channels_last"]


def test_what_an_older_record_does_not_tell_is_no_difference() -> None:
    told = {**CPU, "feed": "ahead", "compiled": False, "channels_last": True, "teacher": None, "batch": 128}
    whole = {"feed": "ahead", "precision": "auto", "compile": False, "evaluate": True, "largest_batch": False}
    old, new = arm("a", 100.0, start=OLD_START), arm("b", 200.0, workload=whole, start=told)
    assert refused(comparison([old, new], "threads")) == []


def test_a_fall_back_to_the_cpu_is_refused_as_the_device() -> None:
    fell_back = measured("g1", 590.0, "cpu", {"device": "auto"})
    no_gpu = measured("g2", None, None, status="failed", exit_code=125, error="no_gpu")
    it = comparison(arms([600.0, 600.0], [0.0, 0.0], (1, fell_back), (2, no_gpu)), "device")
    assert refused(it) == ["device"]
    assert it.refused[0].runs == ("g1", "g2")
    assert it.refused[0].values == {"gpu, round 1": "cpu", "gpu, round 2": None}
    assert (it.ratio, it.why_no_ratio()) == (None, "refused: device")
    assert in_words.verdict(it) == (
        "No ratio is given (gpu can't be counted: it was meant to compute on the GPU, but its framework saw none): "
        "cpu 600.0 examples/s."
    )


def test_a_run_that_had_a_card_and_was_free_to_use_it_must_have_used_it() -> None:
    made = [arm(f"batch={n}", 9.0, workload={"batch": n, "device": "auto"}) for n in (1, 2)]
    assert refused(comparison(made, "batch")) == ["device"]
    told = [arm(f"batch={n}", 9.0, workload={"batch": n}) for n in (1, 2)]
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
    assert ("(gpu, round 1: hw_thermal_slowdown=0.1)" in text(it)) == (field == "throttled_share")
    assert (it.refused[0].why == TOO_FEW_STEPS) == (field == "examples_per_second")


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


def test_an_earlier_attempt_s_error_is_not_held_against_the_one_that_went_well() -> None:
    run, no_gpu = measured("g1", 4700.0, "gpu").run, {"event": "error", "kind": "no_gpu"}
    assert MeasuredRun.of(run, [START, no_gpu, START, {"event": "finish"}]).error is None
    assert MeasuredRun.of(run, [START, START, no_gpu]).error == "no_gpu"


def test_a_run_that_trained_nothing_has_no_speed_and_is_not_said_to_have_had_too_few_steps() -> None:
    command = measured("g1", None, "gpu", spec={"image": "t:1", "command": ["true"]}, start={})
    it = comparison(arms([600.0] * 2, [4680.0] * 2, (1, command)), "device")
    assert [one.why for one in it.refused if one.field == "examples_per_second"] == ["no speed was reported"]


def test_values_are_written_as_readers_would() -> None:
    values = (True, False, None, (), ["a", 1], {"LR": 2, "X": None})
    assert [*map(written, values)] == ["yes", "no", "n/a", "none", "a, 1", "LR=2, X=n/a"]


def test_of_arms_that_have_no_end_for_the_same_reason_each_has_its_own_status() -> None:
    slow = Arm("cpu", (measured("c1", 600.0, status="running"),), "cpu")
    fast = Arm("gpu", (measured("g1", 4700.0, "gpu", status="failed"),), "gpu")
    it = comparison([slow, fast], "device")
    assert [one.values for one in it.refused] == [{"cpu, round 1": "running"}, {"gpu, round 1": "failed"}]
    assert "No ratio is given (cpu is still running; gpu failed)" in in_words.verdict(it)
    waiting = Arm("cpu", (measured("c1", 600.0, status="running", reason="Priority"),), "cpu")
    assert "No ratio is given (cpu is waiting: Priority; " in in_words.verdict(comparison([waiting, fast], "device"))


def test_more_rounds_are_advised_only_where_none_was_refused() -> None:
    bad = [(n, measured(f"g{n}", 4700.0, "gpu", status="failed", reason="it crashed")) for n in (2, 3)]
    several = in_words.verdict(comparison(arms([600.0] * 3, [4680.0] * 3, *bad), "device"))
    assert "(one pair, no spread: gpu failed: it crashed)" in several
    one = in_words.verdict(comparison(arms([600.0], [4680.0]), "device"))
    assert "(one pair, no spread: use --repeat 2 or more)" in one


@pytest.mark.parametrize("status", ["failed", "interrupted", "lost", "running"])
def test_a_run_that_did_not_reach_its_end_is_refused_with_its_reason(status: str) -> None:
    other = measured("g2", 4700.0, "gpu", status=status, reason="out of memory")
    it = comparison(arms([600.0] * 2, [4680.0] * 2, (2, other)), "device")
    assert [(one.field, one.why, one.values) for one in it.refused] == [
        ("status", "out of memory", {"gpu, round 2": status})
    ]
