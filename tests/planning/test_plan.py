"""What was typed becomes a RunSpec."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fakes import IMAGE

from ngcdl import trainings
from ngcdl.planning import plan
from ngcdl.planning.plan import _computed
from ngcdl.spec import GpuRequest, Mount, RunSpec, Workload

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


def test_a_training_that_is_bounded_by_time_or_epochs_has_no_number_of_steps() -> None:
    line = " ".join(plan.training(IMAGE, Workload("cifar10", None, 8, seconds=30), ALL, None, None).command)
    assert "--device auto --batch 8 --seed 0 --seconds 30 --data synthetic" in line
    assert "--batch largest --seed 9" in " ".join(
        plan.training(IMAGE, replace(CIFAR10, largest_batch=True), ALL, None, None).command
    )


def test_a_training_keeps_nvidia_s_documented_flags() -> None:
    spec, documented = plan.training(IMAGE, CIFAR10, ALL, None, None), RunSpec(None)
    assert (spec.shm_bytes, spec.ulimits) == (documented.shm_bytes, documented.ulimits)


def test_a_training_that_makes_its_data_up_is_given_none() -> None:
    spec = plan.training(IMAGE, Workload("resnet-50"), ALL, Path("/cache/cifar10"), None)
    assert "--data synthetic" in " ".join(spec.command)
    assert [mount.container for mount in spec.mounts] == ["/ngcdl/trainer"]


@pytest.mark.parametrize(
    ("terminal", "piped", "tty", "stdin"), [(1, 0, 1, 1), (0, 1, 0, 1), (0, 0, 0, 0), (1, 1, 1, 1)]
)
def test_a_command_has_a_terminal_only_on_a_terminal(terminal: int, piped: int, tty: int, stdin: int) -> None:
    spec = plan.command(IMAGE, ("ls", "-l"), ALL, bool(terminal), bool(piped))
    assert (spec.tty, spec.stdin, spec.command) == (bool(tty), bool(stdin), ("ls", "-l"))


def test_what_a_script_prints_is_in_the_log_at_once_but_on_this_host_as_without_ngcdl() -> None:
    at_once = (("PYTHONUNBUFFERED", "1"),)
    assert plan.command(IMAGE, ("ls",), ALL, False, False).environment == at_once
    assert plan.command(IMAGE, ("ls",), ALL, True, False).environment == ()  # a terminal gets whole lines at once
    assert [plan.command(None, ("ls",), ALL, False, False, left).environment for left in (False, True)] == [(), at_once]


def test_the_caller_s_folder_is_at_hand_and_a_working_directory_that_was_typed_stays() -> None:
    spec = plan.with_folder_mounted(plan.command(IMAGE, (), ALL, True, False), Path("/home/me/x"))
    assert (spec.mounts, spec.workdir) == ((Mount("/home/me/x", "/work", True),), "/work")
    own = replace(spec, mounts=(), workdir="/mine")
    assert plan.with_folder_mounted(own, Path("/x")).workdir == "/mine"
