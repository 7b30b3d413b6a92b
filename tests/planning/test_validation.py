"""Options that a training can't take are refused before anything is fetched, with what to type instead."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from ngcdl import trainings
from ngcdl.errors import BadOption
from ngcdl.planning import validation
from ngcdl.spec import GpuRequest, ImageRef, Workload

CIFAR10 = Workload("cifar10", 7, 8, 9)


def test_a_folder_is_taken_by_what_reads_one_and_by_nothing_else() -> None:
    validation.check_workload(replace(CIFAR10, name="catdog", data="pets"))
    validation.check_workload(Workload("resnet-50", data="synthetic"))
    with pytest.raises(BadOption, match="--data pets: lstm makes its data up"):
        validation.check_workload(replace(CIFAR10, name="lstm", data="pets"))


@pytest.mark.parametrize("name", ["cifar10", "input-pipeline", "scaling", "alexnet-s", "fcn-s", "resnet-50", "lstm"])
def test_what_is_made_batch_by_batch_can_t_lie_on_the_device(name: str) -> None:
    with pytest.raises(BadOption, match=f"--feed resident: each batch of {name} is made on the CPU") as refused:
        validation.check_workload(Workload(name, feed="resident"))
    assert refused.value.hint.endswith("\n    ngcdl ... --feed constant  # without --feed resident")
    validation.check_workload(Workload(name, feed="ahead"))


def test_a_teacher_is_refused_where_there_is_none_and_those_that_have_one_are_named() -> None:
    with pytest.raises(BadOption, match="--teacher: cifar10 has none") as refused:
        validation.check_workload(replace(CIFAR10, teacher="kept"))
    assert refused.value.hint == "    ngcdl ... --train distill"
    validation.check_workload(Workload("distill", teacher="kept"))


@pytest.mark.parametrize("name", trainings.names())
def test_what_a_file_refuses_is_an_option_that_can_be_typed_and_has_its_reason(name: str) -> None:
    known = trainings.bundled(name)
    assert bool(known.refuses) == bool(known.because)
    for option in known.refuses:
        word, _, value = option.partition(" ")
        typed: dict[str, Any] = {"steps": known.steps + 1, "epochs": 1, "seconds": 1.0, "batch": known.batch + 1}
        typed |= {"largest_batch": True, "autotune": True, "times": 2, "clip": 1.0, "trace": 1, "resume": "older"}
        typed |= {"feed": "plain", "precision": "tf32"}
        typed |= {word.removeprefix("--"): value} if word in ("--feed", "--precision") and value else {}
        assert option in validation.typed_options(Workload(name, **typed), known)
        assert option not in validation.typed_options(Workload(name, known.steps, known.batch), known)


@pytest.mark.parametrize(("name", "gpus", "nodes", "least"), [
    ("cifar10", "none", 1, 1), ("cifar10", "9", 1, 9), ("cifar10", "2", 3, 6), ("inference", "none", 1, 1),
    ("resnet-56", "none", 1, 2), ("resnet-56", "GPU-1,GPU-2", 1, 4), ("resnet-56", "2", 3, 12),
    ("catdog", "none", 2, 4), ("distill", "4", 1, 2), ("cifar10-94", "none", 1, 2),
])  # fmt: skip
def test_each_replica_must_have_an_example_and_two_where_there_is_batch_norm(
    name: str, gpus: str, nodes: int, least: int
) -> None:
    asked, cards = Workload(name, batch=least), GpuRequest.parse(gpus)
    validation.check_workload(asked, nodes, cards)
    if least > 1:
        with pytest.raises(BadOption, match=f"--batch {least - 1}: too small") as refused:
            validation.check_workload(replace(asked, batch=least - 1), nodes, cards)
        assert refused.value.hint.startswith(f"    ngcdl ... --batch {least}  # without")
        assert ("batch norm" in str(refused.value)) == (name != "cifar10")
        assert ("examples in each." in str(refused.value)) == ("batch norm" in str(refused.value) and least > 2)


def test_what_several_cannot_train_is_refused_on_several_machines() -> None:
    validation.check_workload(Workload("inference"), 1)
    validation.check_workload(CIFAR10, 2)
    with pytest.raises(BadOption, match="--nodes 2: cifar10-94 can run only one replica"):
        validation.check_workload(Workload("cifar10-94"), 2)
    with pytest.raises(BadOption, match="--nodes 2: the search for the largest batch runs on one machine"):
        validation.check_workload(replace(CIFAR10, largest_batch=True), 2)
    validation.check_workload(replace(CIFAR10, largest_batch=True, resume="older"))


def test_several_machines_are_not_tuned_each_for_itself() -> None:
    with pytest.raises(BadOption, match="each machine would tune for itself"):
        validation.check_workload(replace(CIFAR10, autotune=True), 2)
    validation.check_workload(replace(CIFAR10, autotune=True), 1)


@pytest.mark.parametrize(("bad", "why"), [
    ({"name": "mnist9"}, "--train mnist9: choose"), ({"name": "__init__"}, "__init__: choose"),
    ({"name": "../cifar10"}, "cifar10: choose"), ({"name": "cifar10_keras"}, "cifar10_keras: choose"),
    ({"steps": 0}, "--steps must be"), ({"batch": 0}, "--batch must be"), ({"device": "tpu"}, "--device tpu"),
    ({"threads": 0}, "--threads must be"), ({"feed": "fast"}, "--feed fast"), ({"epochs": 0}, "--epochs must be"),
    ({"steps": 7, "epochs": 1}, "both set how long"), ({"epochs": 2}, "--epochs: cifar10 has no epochs"),
    ({"seconds": 0.0}, "--seconds must be"), ({"seconds": math.inf}, "--seconds must be"),
    ({"seconds": math.nan}, "--seconds must be"), ({"trace": 0}, "--trace must be"), ({"clip": 0.0}, "--clip must be"),
    ({"clip": math.nan}, "--clip must be"), ({"name": "inference", "clip": 5.0}, "inference trains nothing"),
    ({"feed": "input", "resume": "older"}, "can't resume"), ({"feed": "constant", "resume": "older"}, "can't resume"),
    ({"feed": "input", "autotune": True}, "nothing that could be tuned"), ({"times": 2}, "only once in a run"),
    ({"name": "catdog", "feed": "resident", "data": "pets"}, "decoded one by one"),
    ({"name": "cifar10-94", "batch": 2000, "times": 0}, "--times must be"),
])  # fmt: skip
def test_what_the_trainer_would_refuse_is_refused_before_anything_is_pulled(bad: dict[str, Any], why: str) -> None:
    with pytest.raises(BadOption, match=why):
        validation.check_workload(replace(CIFAR10, **{"steps": None, **bad}))
    validation.check_workload(replace(CIFAR10, clip=5.0))
    validation.check_workload(Workload("cifar10-keras", None, epochs=2))
    validation.check_workload(Workload("catdog", feed="resident", data="synthetic"))


@pytest.mark.parametrize(("typed", "meant"), [
    ("fp16", "amp"), ("BF16", "amp"), ("fp32", "float32"), ("fp8", None),
])  # fmt: skip
def test_a_precision_by_another_s_name_is_told_what_may_be_meant(typed: str, meant: str | None) -> None:
    with pytest.raises(BadOption, match=f"--precision {typed}: auto, float32, tf32 or amp") as refused:
        validation.check_workload(replace(CIFAR10, precision=typed))
    hint = f"Did you mean {meant}?\n    ngcdl ... --precision {meant}  # without --precision {typed}"
    assert refused.value.hint == (hint if meant else "")


@pytest.mark.parametrize(("typed", "option"), [
    ({"steps": 5}, "--steps"), ({"steps": None, "seconds": 3.0}, "--seconds"),
    ({"steps": None, "epochs": 2}, "--epochs"),
    ({"feed": "plain"}, "--feed"), ({"batch": 8}, "--batch"), ({"largest_batch": True}, "--batch"),
    ({"times": 3}, "--times"), ({"clip": 1.0}, "--clip"),
    ({"autotune": True, "feed": None}, "--autotune"),
])  # fmt: skip
def test_a_check_that_is_run_once_takes_nothing_of_a_training(typed: dict[str, Any], option: str) -> None:
    smoke = Workload("smoke", steps=1, batch=1)
    with pytest.raises(BadOption, match=f"{option}: smoke is a check that runs once") as refused:
        validation.check_workload(replace(smoke, **typed))
    assert refused.value.hint == f"    ngcdl ...  # without {option}{'' if option == '--autotune' else ' VALUE'}"
    validation.check_workload(smoke)


@pytest.mark.parametrize(
    ("typed", "option"),
    [
        ({"resume": "last"}, "--resume"),
        ({"seconds": 9.0}, "--seconds"),
        ({"clip": 5.0}, "--clip"),
        ({"largest_batch": True}, "--batch largest"),
        ({"feed": "plain"}, "--feed plain"),
        ({"precision": "tf32"}, "--precision tf32"),
        ({"autotune": True, "feed": None}, "--autotune"),
    ],
)
def test_what_is_over_within_seconds_takes_nothing_of_a_long_training(typed: dict[str, Any], option: str) -> None:
    race = Workload("cifar10-94", steps=250, batch=2000)
    with pytest.raises(BadOption, match=f"{option}: cifar10-94 follows a fixed schedule from"):
        validation.check_workload(replace(race, **typed))
    validation.check_workload(replace(race, feed="resident", precision="amp", times=20))


@pytest.mark.parametrize(
    ("asked", "image", "device", "said", "line"),
    [
        (replace(CIFAR10, precision="amp"), "tensorflow:18.01-py2", "gpu", "amp.*TensorFlow 1.4.0",
         "ngcdl resolve tensorflow"),
        (replace(CIFAR10, compile=True), "tensorflow:20.01-tf1-py3", "gpu", "--compile: not with TensorFlow 1.15",
         "ngcdl resolve tensorflow"),
        (CIFAR10, "tensorflow:17.05", "gpu", r"not before TensorFlow 1\.4; tensorflow:17\.05 has 1\.0\.1",
         "ngcdl ... tensorflow:18.01-py2  # without nvcr.io/nvidia/tensorflow:17.05"),
        (replace(CIFAR10, precision="tf32"), "pytorch:24.05-py3", "cpu", "computes on the CPU",
         "ngcdl ... --precision float32  # without --precision tf32"),
        (Workload("cifar10-94"), "tensorflow:24.05-tf2-py3", "gpu", "cifar10-94: only with PyTorch",
         "ngcdl ... pytorch  # without nvcr.io/nvidia/tensorflow:24.05-tf2-py3"),
        (replace(CIFAR10, channels_last=False), "tensorflow:24.05-tf2-py3", "gpu", "only with PyTorch",
         "ngcdl ... pytorch  # without nvcr.io/nvidia/tensorflow:24.05-tf2-py3"),
        (replace(CIFAR10, channels_last=False), None, "cpu", "--channels-first: only with PyTorch",
         "ngcdl ... pytorch  # without --engine NAME"),
    ],
)  # fmt: skip
def test_what_an_image_or_a_device_can_t_compute_is_refused_by_name(
    asked: Workload, image: str | None, device: str, said: str, line: str
) -> None:
    with pytest.raises(BadOption, match=said) as refused:
        validation.check_place(asked, ImageRef.parse(image) if image else None, device)
    assert refused.value.hint.splitlines()[-1] == f"    {line}"


def test_a_gpu_and_none_of_them_are_a_contradiction_before_anything_is_chosen() -> None:
    on_gpu = replace(CIFAR10, device="gpu")
    with pytest.raises(BadOption, match="--device gpu and --gpus none contradict each other") as refused:
        validation.check_workload(on_gpu, gpus=GpuRequest("none"))
    assert refused.value.hint == "Leave one of them out."
    validation.check_workload(on_gpu, gpus=GpuRequest("auto"))
    validation.check_workload(replace(CIFAR10, device="cpu"), gpus=GpuRequest("none"))


@pytest.mark.parametrize("image", ["tensorflow:24.05-tf2-py3", "pytorch:24.05-py3", "tensorflow:99.01-py3", None])
def test_an_image_that_can_or_that_nobody_knows_is_left_to_the_trainer(image: str | None) -> None:
    asked = replace(CIFAR10, precision="amp", compile=True, channels_last=True)
    validation.check_place(asked, ImageRef.parse(image) if image else None, "cpu")
    for tag in "18.01-py2", "18.11-py3", "17.12":  # TensorFlow 1.4.0, 1.12.0-rc2, unknown
        validation.check_place(CIFAR10, ImageRef.parse(f"tensorflow:{tag}"), "cpu")
    validation.check_place(Workload("cifar10-94"), ImageRef.parse("pytorch:24.05-py3"), "gpu")
