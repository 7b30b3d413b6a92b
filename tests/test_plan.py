"""What was typed becomes a RunSpec."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import IMAGE

from ngcdl import plan
from ngcdl.errors import BadOption
from ngcdl.spec import GpuRequest, Mount, RunSpec, Workload

CIFAR10 = Workload("cifar10", 7, 8, 9)
ALL = GpuRequest("all")


def test_a_training_in_an_image_mounts_the_trainer_and_the_data_read_only() -> None:
    spec = plan.training(IMAGE, CIFAR10, ALL, Path("/cache/cifar10"), None)
    assert " ".join(spec.command) == (
        "python -m trainer cifar10 --out /ngcdl/run --device auto --steps 7 --batch 8 --seed 9 --data /ngcdl/data"
    )
    trainer = str(plan.containers_folder() / "trainer")
    assert spec.mounts == (Mount(trainer, "/ngcdl/trainer"), Mount("/cache/cifar10", "/ngcdl/data"))
    assert (spec.workdir, spec.gpus, spec.workload) == ("/ngcdl", ALL, CIFAR10)


def test_a_training_on_this_host_names_this_host_s_folders() -> None:
    spec = plan.training(None, CIFAR10, ALL, Path("/cache/cifar10"), Path("/runs/older"))
    line = " ".join(spec.command)
    assert "--data /cache/cifar10 --resume /runs/older" in line
    assert "--out /ngcdl/run" in line, "the engine puts the run's folder here"
    assert (spec.mounts, spec.workdir) == ((), str(plan.containers_folder()))


def test_a_resumed_training_sees_the_older_run_read_only() -> None:
    spec = plan.training(IMAGE, CIFAR10, ALL, None, Path("/runs/older"))
    assert Mount("/runs/older", "/ngcdl/resume") in spec.mounts
    assert "--data synthetic --resume /ngcdl/resume" in " ".join(spec.command)


def test_no_evaluation_and_the_device_are_passed_on() -> None:
    spec = plan.training(IMAGE, replace(CIFAR10, evaluate=False, device="gpu"), ALL, None, None)
    assert "--device gpu" in " ".join(spec.command)
    assert spec.command[-1] == "--no-eval"


def test_threads_are_passed_on_where_they_were_asked_for() -> None:
    spec = plan.training(IMAGE, replace(CIFAR10, threads=4), ALL, None, None)
    assert "--seed 9 --threads 4 --data synthetic" in " ".join(spec.command)


def test_a_training_keeps_nvidia_s_documented_flags() -> None:
    spec, documented = plan.training(IMAGE, CIFAR10, ALL, None, None), RunSpec(None)
    assert (spec.shm_bytes, spec.ulimits) == (documented.shm_bytes, documented.ulimits)


def test_the_trainings_are_the_files_of_the_trainer() -> None:
    assert "cifar10" in plan.workloads()
    assert not [name for name in plan.workloads() if name.startswith("_")]


def test_what_a_training_is_stands_in_its_file_and_is_read_without_running_it() -> None:
    keras = plan.bundled("cifar10-keras")
    assert (keras.parameters, keras.forward_macs, keras.flops_per_example) == (1_667_594, 14_439_424, 84_867_072)
    assert (keras.batch, keras.input, keras.data, keras.unit) == (32, (32, 32, 3), "cifar10", "images")
    for name in plan.workloads():
        known = plan.bundled(name)
        assert known.flops_per_example > 4 * known.forward_macs > 0, "backward is up to twice forward, at 2 FLOP a MAC"
        assert set(known.frameworks) <= {"pytorch", "tf1", "tf2"}
        assert known.source.startswith("seed 00")


def test_a_training_that_makes_its_data_up_is_given_none() -> None:
    spec = plan.training(IMAGE, Workload("resnet-50"), ALL, Path("/cache/cifar10"), None)
    assert "--data synthetic" in " ".join(spec.command)
    assert [mount.container for mount in spec.mounts] == ["/ngcdl/trainer"]
    plan.check_workload(Workload("resnet-50", data="synthetic"))


@pytest.mark.parametrize(
    "bad", [Workload("mnist9"), Workload("__init__"), Workload("cifar10", steps=0), Workload("cifar10", batch=-1),
            Workload("cifar10", device="tpu"), Workload("cifar10", threads=0), Workload("../cifar10"),
            Workload("cifar10_keras"), Workload("fcn-s", data="/cifar10")]
)  # fmt: skip
def test_what_the_trainer_would_refuse_is_refused_before_anything_is_pulled(bad: Workload) -> None:
    with pytest.raises(BadOption):
        plan.check_workload(bad)
    plan.check_workload(CIFAR10)


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
