"""What was typed becomes a RunSpec."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import IMAGE

from ngcdl import plan, trainings
from ngcdl.errors import BadOption
from ngcdl.plan import _computed
from ngcdl.spec import GpuRequest, ImageRef, Mount, RunSpec, Workload

CIFAR10 = Workload("cifar10", 7, 8, 9)
ALL = GpuRequest("all")


def test_a_training_in_an_image_mounts_the_trainer_and_the_data_read_only() -> None:
    spec = plan.training(IMAGE, CIFAR10, ALL, Path("/cache/cifar10"), None)
    assert " ".join(spec.command) == (
        "python -m trainer cifar10 --out /ngcdl/run --device auto --steps 7 --batch 8 --seed 9 --data /ngcdl/data"
    )
    trainer = str(trainings.containers_folder() / "trainer")
    assert spec.mounts == (Mount(trainer, "/ngcdl/trainer"), Mount("/cache/cifar10", "/ngcdl/data"))
    assert (spec.workdir, spec.gpus, spec.workload) == ("/ngcdl", ALL, CIFAR10)


def test_a_training_on_this_host_names_this_host_s_folders() -> None:
    spec = plan.training(None, CIFAR10, ALL, Path("/cache/cifar10"), Path("/runs/older"))
    line = " ".join(spec.command)
    assert "--data /cache/cifar10 --resume /runs/older" in line
    assert "--out /ngcdl/run" in line, "the engine puts the run's folder here"
    assert (spec.mounts, spec.workdir) == ((), str(trainings.containers_folder()))


def test_a_resumed_training_sees_the_older_run_read_only() -> None:
    spec = plan.training(IMAGE, CIFAR10, ALL, None, Path("/runs/older"))
    assert Mount("/runs/older", "/ngcdl/resume") in spec.mounts
    assert "--data synthetic --resume /ngcdl/resume" in " ".join(spec.command)


def test_cats_and_dogs_may_be_somebody_s_own_pictures() -> None:
    spec = plan.training(IMAGE, replace(CIFAR10, name="catdog", data="pets"), ALL, Path("/home/me/pets"), None)
    assert Mount("/home/me/pets", "/ngcdl/data") in spec.mounts
    plan.check_workload(replace(CIFAR10, name="catdog", data="pets"))
    with pytest.raises(BadOption, match="lstm makes its data up"):
        plan.check_workload(replace(CIFAR10, name="lstm", data="pets"))


def test_no_evaluation_and_the_device_are_passed_on() -> None:
    spec = plan.training(IMAGE, replace(CIFAR10, evaluate=False, device="gpu"), ALL, None, None)
    assert "--device gpu" in " ".join(spec.command)
    assert spec.command[-1] == "--no-eval"


@pytest.mark.parametrize(
    ("gpus", "many"),
    [("auto", 1), ("auto:GPU-1", 1), ("none", 1), ("1", 1), ("2", 2), ("GPU-1,GPU-2,GPU-3", 3)],
)
def test_a_training_has_a_replica_for_each_card_that_was_asked_for(gpus: str, many: int) -> None:
    words = plan.training(IMAGE, CIFAR10, GpuRequest.parse(gpus), None, None).command
    assert (("--replicas", str(many)) == words[-4:-2]) == (many > 1)
    assert ("--replicas" in words) == (many > 1)


def test_what_several_cannot_train_has_one_replica() -> None:
    names = ("inference", "distill", "smoke", "cifar10-94")
    for alone in (*map(Workload, names), replace(CIFAR10, feed="input")):
        assert "--replicas" not in plan.training(IMAGE, alone, GpuRequest("count", count=2), None, None).command
    taught = plan.training(IMAGE, Workload("distill", teacher="none"), GpuRequest("count", count=2), None, None)
    assert "--replicas" in taught.command


@pytest.mark.parametrize(("name", "gpus", "nodes", "least"), [
    ("cifar10", "none", 1, 1), ("cifar10", "9", 1, 9), ("cifar10", "2", 3, 6), ("inference", "none", 1, 1),
    ("resnet-56", "none", 1, 2), ("resnet-56", "GPU-1,GPU-2", 1, 4), ("resnet-56", "2", 3, 12),
    ("catdog", "none", 2, 4), ("distill", "4", 1, 2), ("cifar10-94", "none", 1, 2),
])  # fmt: skip
def test_each_replica_must_have_an_example_and_two_where_there_is_batch_norm(
    name: str, gpus: str, nodes: int, least: int
) -> None:
    asked, cards = Workload(name, batch=least), GpuRequest.parse(gpus)
    plan.check_workload(asked, nodes, cards)
    if least > 1:
        with pytest.raises(BadOption, match=f"--batch {least - 1}: too small") as refused:
            plan.check_workload(replace(asked, batch=least - 1), nodes, cards)
        assert refused.value.hint == f"    --batch {least}"
        assert ("batch norm" in str(refused.value)) == (name != "cifar10")


def test_what_several_cannot_train_is_refused_on_several_machines() -> None:
    plan.check_workload(Workload("inference"), 1)
    plan.check_workload(CIFAR10, 2)
    with pytest.raises(BadOption, match="--nodes 2: of cifar10-94 only one replica can run"):
        plan.check_workload(Workload("cifar10-94"), 2)
    with pytest.raises(BadOption, match="--nodes 2: the largest batch is looked for on one machine"):
        plan.check_workload(replace(CIFAR10, largest_batch=True), 2)
    plan.check_workload(replace(CIFAR10, largest_batch=True, resume="older"))


def test_threads_are_passed_on_where_they_were_asked_for() -> None:
    spec = plan.training(IMAGE, replace(CIFAR10, threads=4), ALL, None, None)
    assert "--seed 9 --threads 4 --data synthetic" in " ".join(spec.command)


def test_what_was_asked_of_how_it_computes_is_passed_on_and_nothing_else() -> None:
    asked = Workload(
        "distill", None, 8, feed="plain", precision="amp", compile=True, channels_last=False, seconds=90.5,
        teacher="kept",
    )  # fmt: skip
    line = " ".join(_computed(asked))
    assert line == "--feed plain --precision amp --compile --channels-first --seconds 90.5 --teacher kept"
    assert _computed(CIFAR10) == []
    assert _computed(replace(CIFAR10, channels_last=True, epochs=3)) == ["--channels-last", "--epochs", "3"]
    assert _computed(Workload("cifar10-94", times=20)) == ["--times", "20"]
    assert _computed(replace(CIFAR10, clip=2.5, trace=9)) == ["--clip", "2.5", "--trace", "9"]


def test_a_training_that_is_tuned_has_a_folder_that_outlives_it_and_keeps_what_was_typed(tmp_path: Path) -> None:
    tuned = replace(CIFAR10, autotune=True, feed=None)
    spec = plan.training(IMAGE, tuned, ALL, None, None, tmp_path)
    assert "--autotune --data synthetic --choices /ngcdl/choices" in " ".join(spec.command)
    assert "--feed" not in spec.command
    assert str(spec.mounts[-1]) == f"{tmp_path}:/ngcdl/choices"
    spec = plan.training(None, replace(tuned, feed="ahead"), ALL, None, None, tmp_path)
    assert "--feed ahead --autotune" in " ".join(spec.command)
    assert spec.command[-2:] == ("--choices", str(tmp_path))
    assert "--choices" not in plan.training(IMAGE, CIFAR10, ALL, None, None).command


def test_several_machines_are_not_tuned_each_for_itself() -> None:
    with pytest.raises(BadOption, match="each machine would choose for itself"):
        plan.check_workload(replace(CIFAR10, autotune=True), 2)
    plan.check_workload(replace(CIFAR10, autotune=True), 1)


def test_a_training_that_is_bounded_by_time_or_epochs_has_no_number_of_steps() -> None:
    line = " ".join(plan.training(IMAGE, Workload("cifar10", None, 8, seconds=30), ALL, None, None).command)
    assert "--device auto --batch 8 --seed 0 --seconds 30 --data synthetic" in line
    assert "--batch largest --seed 9" in " ".join(
        plan.training(IMAGE, replace(CIFAR10, largest_batch=True), ALL, None, None).command
    )


def test_a_training_keeps_nvidia_s_documented_flags() -> None:
    spec, documented = plan.training(IMAGE, CIFAR10, ALL, None, None), RunSpec(None)
    assert (spec.shm_bytes, spec.ulimits) == (documented.shm_bytes, documented.ulimits)


def test_the_trainings_are_the_files_of_the_trainer() -> None:
    assert "cifar10" in trainings.names()
    assert not [name for name in trainings.names() if name.startswith("_")]


def test_what_a_training_is_stands_in_its_file_and_is_read_without_running_it() -> None:
    keras = trainings.bundled("cifar10-keras")
    assert (keras.parameters, keras.forward_macs, keras.flops_per_example) == (1_667_594, 14_439_424, 84_867_072)
    assert (keras.batch, keras.input, keras.data, keras.unit) == (32, (32, 32, 3), "cifar10", "images")
    for name in trainings.names():
        known = trainings.bundled(name)
        least = 4 if known.trains else 2  # backward is up to twice forward, at 2 FLOP a MAC
        assert known.flops_per_example >= least * known.forward_macs > 0
        assert set(known.frameworks) <= {"pytorch", "tf1", "tf2"}
        assert known.source


def test_a_training_that_makes_its_data_up_is_given_none() -> None:
    spec = plan.training(IMAGE, Workload("resnet-50"), ALL, Path("/cache/cifar10"), None)
    assert "--data synthetic" in " ".join(spec.command)
    assert [mount.container for mount in spec.mounts] == ["/ngcdl/trainer"]
    plan.check_workload(Workload("resnet-50", data="synthetic"))


@pytest.mark.parametrize(
    "bad", [Workload("mnist9"), Workload("__init__"), Workload("cifar10", steps=0), Workload("cifar10", batch=-1),
            Workload("cifar10", device="tpu"), Workload("cifar10", threads=0), Workload("../cifar10"),
            Workload("cifar10_keras"), Workload("fcn-s", data="/cifar10"),
            Workload("cifar10", feed="fast"), Workload("cifar10", precision="fp16"), Workload("cifar10", epochs=0),
            Workload("resnet-50", epochs=2),
            Workload("cifar10", seconds=0.0), Workload("cifar10", seconds=float("inf")),
            Workload("cifar10", seconds=float("nan")), Workload("cifar10", 7, epochs=1),
            Workload("cifar10", teacher="kept"), Workload("cifar10", feed="resident"),
            Workload("cifar10", feed="input", resume="older"), Workload("cifar10", feed="constant", resume="older"),
            Workload("cifar10", feed="input", autotune=True),
            Workload("catdog", feed="resident", data="pets"),
            Workload("cifar10", trace=0), Workload("cifar10", clip=0.0),
            Workload("cifar10", clip=float("nan")), Workload("inference", clip=5.0),
            Workload("cifar10", times=2), Workload("cifar10-94", batch=2000, times=0)]
)  # fmt: skip
def test_what_the_trainer_would_refuse_is_refused_before_anything_is_pulled(bad: Workload) -> None:
    with pytest.raises(BadOption):
        plan.check_workload(bad)
    plan.check_workload(CIFAR10)
    plan.check_workload(Workload("catdog", feed="resident", data="synthetic"))


@pytest.mark.parametrize(("typed", "hint"), [
    ("fp16", "Did you mean --precision amp?"), ("BF16", "Did you mean --precision amp?"),
    ("fp32", "Did you mean --precision float32?"), ("fp8", ""),
])  # fmt: skip
def test_a_precision_by_another_s_name_is_told_what_may_be_meant(typed: str, hint: str) -> None:
    with pytest.raises(BadOption, match=f"--precision {typed}: auto, float32, tf32 or amp") as refused:
        plan.check_workload(replace(CIFAR10, precision=typed))
    assert refused.value.hint == hint


@pytest.mark.parametrize(("typed", "option"), [
    ({"steps": 5}, "--steps"), ({"steps": None, "seconds": 3.0}, "--seconds"),
    ({"steps": None, "epochs": 2}, "--epochs"),
    ({"feed": "plain"}, "--feed"), ({"batch": 8}, "--batch"), ({"largest_batch": True}, "--batch"),
    ({"times": 3}, "--times"), ({"clip": 1.0}, "--clip"),
    ({"autotune": True, "feed": None}, "--autotune"),
])  # fmt: skip
def test_a_check_that_is_run_once_takes_nothing_of_a_training(typed: dict[str, Any], option: str) -> None:
    smoke = Workload("smoke", steps=1, batch=1)
    with pytest.raises(BadOption, match=f"{option}: smoke is a check that is run once") as refused:
        plan.check_workload(replace(smoke, **typed))
    assert refused.value.hint == "    ngcdl run --train smoke"
    plan.check_workload(smoke)


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
    race = Workload("cifar10-94", steps=225, batch=2000)
    with pytest.raises(BadOption, match=f"{option}: cifar10-94 has a plan of its own from"):
        plan.check_workload(replace(race, **typed))
    plan.check_workload(replace(race, feed="resident", precision="amp", times=20))


@pytest.mark.parametrize(
    ("asked", "image", "device", "said"),
    [
        (replace(CIFAR10, precision="amp"), "tensorflow:18.01-py2", "gpu", "amp.*TensorFlow 1.4.0"),
        (replace(CIFAR10, compile=True), "tensorflow:20.01-tf1-py3", "gpu", "--compile: not with TensorFlow 1.15"),
        (replace(CIFAR10, precision="tf32"), "pytorch:24.05-py3", "cpu", "computes on the CPU"),
        (Workload("cifar10-94"), "tensorflow:24.05-tf2-py3", "gpu", "cifar10-94: with PyTorch alone"),
        (replace(CIFAR10, channels_last=False), "tensorflow:24.05-tf2-py3", "gpu", "with PyTorch alone"),
        (replace(CIFAR10, channels_last=False), None, "cpu", "--channels-first: with PyTorch alone"),
    ],
)
def test_what_an_image_or_a_device_can_t_compute_is_refused_by_name(
    asked: Workload, image: str | None, device: str, said: str
) -> None:
    with pytest.raises(BadOption, match=said):
        plan.check_place(asked, ImageRef.parse(image) if image else None, device)


def test_a_gpu_and_none_of_them_are_a_contradiction_before_anything_is_chosen() -> None:
    on_gpu = replace(CIFAR10, device="gpu")
    with pytest.raises(BadOption, match="--device gpu and --gpus none contradict each other") as refused:
        plan.check_workload(on_gpu, gpus=GpuRequest("none"))
    assert refused.value.hint == "Leave one of them out."
    plan.check_workload(on_gpu)
    plan.check_workload(replace(CIFAR10, device="cpu"), gpus=GpuRequest("none"))


@pytest.mark.parametrize("image", ["tensorflow:24.05-tf2-py3", "pytorch:24.05-py3", "tensorflow:99.01-py3", None])
def test_an_image_that_can_or_that_nobody_knows_is_left_to_the_trainer(image: str | None) -> None:
    asked = replace(CIFAR10, precision="amp", compile=True, channels_last=True)
    plan.check_place(asked, ImageRef.parse(image) if image else None, "cpu")
    plan.check_place(CIFAR10, ImageRef.parse("tensorflow:18.01-py2"), "cpu")
    plan.check_place(Workload("cifar10-94"), ImageRef.parse("pytorch:24.05-py3"), "gpu")


@pytest.mark.parametrize(
    ("terminal", "piped", "tty", "stdin"), [(1, 0, 1, 1), (0, 1, 0, 1), (0, 0, 0, 0), (1, 1, 1, 1)]
)
def test_a_command_has_a_terminal_only_on_a_terminal(terminal: int, piped: int, tty: int, stdin: int) -> None:
    spec = plan.command(IMAGE, ("ls", "-l"), ALL, bool(terminal), bool(piped))
    assert (spec.tty, spec.stdin, spec.command) == (bool(tty), bool(stdin), ("ls", "-l"))


def test_the_caller_s_folder_is_at_hand_and_a_working_directory_that_was_typed_stays() -> None:
    spec = plan.at_hand(plan.command(IMAGE, (), ALL, True, False), Path("/home/me/x"))
    assert (spec.mounts, spec.workdir) == ((Mount("/home/me/x", "/work", True),), "/work")
    own = replace(spec, mounts=(), workdir="/mine")
    assert plan.at_hand(own, Path("/x")).workdir == "/mine"


@pytest.mark.parametrize("typed", ["batchsweep", "batch_sweep", "Batch-Sweep"])
def test_a_misspelt_training_is_told_what_may_be_meant(typed: str) -> None:
    with pytest.raises(BadOption, match=f"--train {typed}: there is alexnet-r, ") as refused:
        trainings.bundled(typed)
    assert refused.value.hint == "Did you mean --train batch-sweep?\n    ngcdl workloads"
