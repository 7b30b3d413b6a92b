"""Which arms a typed comparison gets, and how many steps each arm has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ngcdl import trainings
from ngcdl.cli.compare import steps_of
from ngcdl.cli.varied import arms, check_images, scaling_of, with_chosen_tag
from ngcdl.errors import BadOption
from ngcdl.planning.asked import Asked
from ngcdl.preflight import meant
from ngcdl.spec import GpuRequest, ImageRef, Placement, RunSpec, Workload

REGISTRY = "nvcr.io"
BASE = Asked("auto", None, GpuRequest(), Workload("cifar10"))
TF, TORCH = ImageRef.parse("tensorflow:18.01-py2"), ImageRef.parse("pytorch:24.05-py3")


def test_without_vary_the_cpu_comes_first_and_only_the_device_differs() -> None:
    name, (cpu, gpu) = arms(BASE, None, [TF], REGISTRY)
    assert (name, cpu.name, gpu.name) == ("device", "cpu", "gpu")
    assert (cpu.device, gpu.device) == (cpu.asked.device, gpu.asked.device) == ("cpu", "gpu")
    assert cpu.asked.gpus == gpu.asked.gpus == BASE.gpus


@pytest.mark.parametrize(("engine", "typed", "given"), [
    ("docker", "auto", "all"), ("docker", "1", "1"), ("docker", "0,1", "0,1"),
    ("slurm", "auto", "1"), ("kubernetes", "2", "2"),
])  # fmt: skip
def test_a_command_gets_no_card_and_then_those_that_were_typed_or_all(engine: str, typed: str, given: str) -> None:
    asked = Asked(
        engine, ImageRef.parse("pytorch:24.05-py3"), GpuRequest.parse(typed), None, own=RunSpec(None, ("ls",))
    )
    name, made = arms(asked, None, [], REGISTRY)
    assert (name, [variant.device for variant in made]) == ("device", ["cpu", "gpu"])
    assert [str(variant.asked.gpus) for variant in made] == ["none", given]
    assert made[1].asked.gpus.demanded, "a comparison without it would answer nothing"
    assert [replace(variant.asked, gpus=asked.gpus) for variant in made] == [asked, asked]


def test_images_are_compared_by_name_also_two_of_one_framework() -> None:
    name, made = arms(BASE, None, [TF, TORCH], REGISTRY)
    assert (name, [arm.name for arm in made]) == ("image", ["tensorflow:18.01-py2", "pytorch:24.05-py3"])
    assert [arm.asked.image for arm in made] == [TF, TORCH]
    mirrored = ImageRef.parse("mirror.example/nvidia/tensorflow:18.01-py2")
    assert len({arm.name for arm in arms(BASE, None, [TF, mirrored], REGISTRY)[1]}) == 2
    _, typed = arms(BASE, "image=tensorflow:18.01-py2,pytorch:24.05-py3", [], REGISTRY)
    assert [arm.asked.image for arm in typed] == [TF, TORCH]


@pytest.mark.parametrize(("vary", "images", "said"), [
    (None, [TF, TF], "nvcr.io/nvidia/tensorflow:18.01-py2 would be compared with itself"),
    ("image=tensorflow:18.01-py2,nvcr.io/nvidia/tensorflow:18.01-py2", [], "would be compared with itself"),
    ("framework=tf,tensorflow", [TF, TORCH], "tf and tensorflow are the same"),
    ("seed=1,01", [], "1 and 01 are the same"),
])  # fmt: skip
def test_two_names_of_one_arm_are_refused(vary: str | None, images: list[ImageRef], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        arms(BASE, vary, images, REGISTRY)


def test_who_compares_an_image_with_itself_is_told_how_chance_is_measured() -> None:
    with pytest.raises(BadOption) as refused:
        check_images(BASE, [TORCH, TF, TF])
    assert refused.value.hint.endswith(f"    ngcdl compare {TF} --train cifar10 --vary seed=0,1")
    check_images(BASE, [TF, TORCH])


def test_an_arm_is_named_by_the_release_that_it_got() -> None:
    images = [meant.named(name, REGISTRY) for name in ("pytorch:24.05-py3", "pytorch")]
    _, (fixed, left_open) = arms(Asked("docker", images[0], GpuRequest(), Workload("cifar10")), None, images, REGISTRY)
    got = ImageRef.parse("pytorch:26.02-py3")
    assert [with_chosen_tag(variant, got).name for variant in (fixed, left_open)] == [
        "pytorch:24.05-py3",
        "pytorch:26.02-py3",
    ]
    asked = Asked("docker", images[1], GpuRequest(), None, own=RunSpec(None, ("ls",)))
    _, varied = arms(asked, "image=pytorch,tensorflow", images[1:], REGISTRY)
    assert with_chosen_tag(varied[0], got).name == "image=pytorch:26.02-py3"


def test_an_arm_whose_release_is_left_open_has_its_framework_s_name() -> None:
    newest = [replace(one, tag=None) for one in (TF, TORCH)]
    assert [arm.name for arm in arms(BASE, None, newest, REGISTRY)[1]] == ["tensorflow", "pytorch"]
    assert [arm.asked.image for arm in arms(BASE, "image=tensorflow,pytorch", [], REGISTRY)[1]] == newest


def test_frameworks_are_found_among_the_images_that_were_named() -> None:
    _, made = arms(BASE, "framework=torch,tf", [TF, TORCH], REGISTRY)
    assert [arm.asked.image for arm in made] == [TORCH, TF]
    for images in ([TF], [TF, TF, TORCH]):
        with pytest.raises(BadOption, match="of the images named"):
            arms(BASE, "framework=tf,torch", images, REGISTRY)


def test_numbers_of_cards_and_seeds_are_taken_one_by_one() -> None:
    assert [arm.asked.gpus.count for arm in arms(BASE, "gpus=1,2", [], REGISTRY)[1]] == [1, 2]
    seeds = [arm.asked.workload.seed for arm in arms(BASE, "seed=0,7", [], REGISTRY)[1] if arm.asked.workload]
    assert seeds == [0, 7]
    with pytest.raises(BadOption, match="takes one image"):
        arms(BASE, "batch=1,2", [TF, TORCH], REGISTRY)


ON_SLURM = replace(BASE, engine="slurm", placement=Placement(partition="main"), image=TORCH)


def test_an_arm_of_nodes_has_so_many_and_all_else_of_the_place_as_it_was_typed() -> None:
    name, made = arms(ON_SLURM, "nodes=1,2,4", [TORCH], REGISTRY)
    assert (name, [arm.name for arm in made]) == ("nodes", ["nodes=1", "nodes=2", "nodes=4"])
    assert [arm.asked for arm in made] == [
        replace(ON_SLURM, placement=Placement(nodes=nodes, partition="main")) for nodes in (1, 2, 4)
    ]


def test_with_weak_scaling_the_batch_is_each_replica_s_and_with_strong_it_is_that_of_all() -> None:
    def batches(vary: str, scaling: str | None, **more: Any) -> list[int]:
        made = arms(replace(ON_SLURM, **more), vary, [TORCH], REGISTRY, scaling)[1]
        return [arm.asked.workload.batch for arm in made if arm.asked.workload]

    assert batches("nodes=1,2", None) == batches("nodes=1,2", "strong") == [128, 128]
    assert batches("nodes=1,2", "weak") == [128, 256]
    assert batches("nodes=1,2", "weak", gpus=GpuRequest.parse("8")) == [1024, 2048]
    assert batches("gpus=1,4", "weak", placement=Placement(nodes=2)) == [256, 1024]
    assert batches("gpus=1,4", "weak", engine="auto", placement=None) == [128, 512]


@pytest.mark.parametrize(("vary", "more", "said"), [
    ("nodes=1,0", {}, "--nodes 0: must be a whole number"),
    ("nodes=1,two", {}, "whole numbers"),
    ("nodes=1,2", {"placement": Placement(nodes=2)}, "--nodes is what --vary varies"),
    ("nodes=1,2", {"workload": Workload("inference")}, "inference can run only as one replica"),
    ("gpus=1,2", {"workload": Workload("distill")}, "distill can run only as one replica"),
])  # fmt: skip
def test_nodes_and_cards_that_can_t_be_compared_are_refused(vary: str, more: dict[str, Any], said: str) -> None:
    with pytest.raises(BadOption, match=said):
        arms(replace(ON_SLURM, **more), vary, [TORCH], REGISTRY)


@pytest.mark.parametrize(("vary", "more", "images", "scaling"), [
    ("threads=1,2", {}, [TORCH, TORCH], None),
    ("gpus=none,1", {}, [TORCH], None),
    ("gpus=all,1", {"gpus": GpuRequest("all")}, [TORCH], "weak"),
])  # fmt: skip
def test_a_line_to_type_instead_names_a_training(
    vary: str, more: dict[str, Any], images: list[ImageRef], scaling: str | None
) -> None:
    with pytest.raises(BadOption) as refused:
        arms(replace(ON_SLURM, **more), vary, images, REGISTRY, scaling)
    assert " --train cifar10 " in refused.value.hint


def test_scaling_is_strong_unless_it_was_typed_and_nothing_else_has_it() -> None:
    assert [scaling_of(vary, None) for vary in ("nodes", "gpus", "batch", "")] == ["strong", "strong", None, None]
    assert scaling_of("nodes", "weak") == "weak"


@pytest.mark.parametrize(("vary", "changes"), [
    ("feed=plain,resident", [{"feed": "plain"}, {"feed": "resident"}]),
    ("precision=float32,amp", [{"precision": "float32"}, {"precision": "amp"}]),
    ("teacher=none,kept", [{"teacher": "none"}, {"teacher": "kept"}]),
    ("compile=off,on", [{"compile": False}, {"compile": True}]),
    ("channels=first,last", [{"channels_last": False}, {"channels_last": True}]),
])  # fmt: skip
def test_an_axis_varies_one_thing_of_the_training_and_leaves_the_rest(vary: str, changes: list[dict[str, Any]]) -> None:
    name, made = arms(BASE, vary, [], REGISTRY)
    assert (name, [arm.name for arm in made]) == (
        vary.partition("=")[0], [f"{name}={value}" for value in vary.partition("=")[2].split(",")],
    )  # fmt: skip
    assert [arm.asked for arm in made] == [
        replace(BASE, workload=replace(BASE.workload, **change)) for change in changes
    ]


@pytest.mark.parametrize(("vary", "said"), [
    ("compile=yes,no", "must be on or off"), ("channels=last,middle", "must be last or first"),
])  # fmt: skip
def test_a_value_that_an_axis_has_not_is_refused(vary: str, said: str) -> None:
    with pytest.raises(BadOption, match=said):
        arms(BASE, vary, [], REGISTRY)


@pytest.mark.parametrize(("workload", "steps"), [("cifar10", 200), ("resnet-50", 81), ("catdog", 60), ("fcn-s", 200)])
def test_a_big_network_gets_fewer_steps_where_none_were_asked_for(workload: str, steps: int) -> None:
    assert steps_of(trainings.bundled(workload), None) == steps


def test_a_tiny_network_gets_more_steps_and_of_several_batches_the_largest_counts() -> None:
    tiny = replace(trainings.bundled("cifar10"), flops_per_example=11_500_000, batch=8)
    assert steps_of(tiny, None) == 2000
    assert steps_of(tiny, "batch=8,64") == 1358
    assert steps_of(tiny, "batch=8,64", "8") == steps_of(tiny, "batch=64, 8")
    frames = replace(tiny, flops_per_example=11_422_336_192, batch=1)
    assert (steps_of(frames, None), steps_of(frames, "batch=1,32"), steps_of(frames, "feed=8,64")) == (200, 82, 200)
    assert steps_of(frames, "batch=1,many") == 200
