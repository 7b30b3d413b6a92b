"""A run that was given GPUs sees them in its container, or ngcdl says that they are missing."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fakes import FakeEngine, FakeJob, FakeShow, ready
from followed import follow, recorded
from house import until

from ngcdl.engines.values import EngineFacts, Exit
from ngcdl.errors import GpuError, GpuNotInside
from ngcdl.errors.gpu import GpuUnknown
from ngcdl.folder import EVENTS, SAMPLES
from ngcdl.record import Machine
from ngcdl.running import launch, meanwhile
from ngcdl.running.prepare import Ready
from ngcdl.spec import Workload
from ngcdl.storing.store import Store
from ngcdl.telemetry.sampler_process import SamplerProcess


@pytest.mark.parametrize(
    ("engine", "look"),
    [
        ("docker", "docker info "),
        ("local", "ngcdl gpu\nThe "),
        ("slurm", "--engine slurm --gpus 1 -- "),
        ("kubernetes", "get runtimeclasses\n"),
    ],
)
def test_a_trainer_that_meets_no_gpu_is_the_same_as_no_gpu_inside(store: Store, engine: str, look: str) -> None:
    prepared, folder = ready(store, FakeJob(exit=Exit(1, False)), gpus="all", way="none")
    prepared = replace(prepared, run=replace(prepared.run, engine=engine))
    error = {"event": "error", "t": 3.0, "kind": "no_gpu", "message": "tensorflow sees no GPU", "step": None}
    (folder / EVENTS).write_text(json.dumps(error) + "\n")
    with pytest.raises(GpuNotInside, match="tensorflow sees no GPU") as refused:
        launch.follow(prepared, store, FakeShow())
    assert look in refused.value.hint
    assert (recorded(store).status, recorded(store).exit_code) == ("failed", 125)


@pytest.mark.parametrize("inside", [GpuNotInside("nvidia-smi is missing"), ()])
def test_a_gpu_that_was_demanded_and_is_not_inside_stops_the_run(
    store: Store, inside: GpuNotInside | tuple[str, ...]
) -> None:
    job = FakeJob(gpus=inside, until_stopped=True)
    prepared, _ = ready(store, job, gpus="all")
    with pytest.raises(GpuNotInside):
        launch.follow(prepared, store, FakeShow())
    run = recorded(store)
    assert job.asked == ["kill", "remove"]
    assert (run.status, run.exit_code) == ("failed", 125)
    assert "sees none" in (run.reason or "")


@pytest.mark.parametrize("inside", [GpuNotInside("nvidia-smi is missing"), ()])
def test_a_gpu_that_was_not_demanded_and_is_not_inside_is_told_loudly(
    store: Store, inside: GpuNotInside | tuple[str, ...]
) -> None:
    run, show = follow(store, FakeJob(gpus=inside), gpus="auto")
    assert (run.status, run.gpus) == ("finished", ())
    why = "nvidia-smi is missing" if inside else "nvidia-smi lists no card"
    said = f"WARNING: the container sees no GPU and computes on the CPU: {why}. ngcdl doctor says more."
    assert (run.notes[0], show.said) == (said, [said])


def test_the_gpus_inside_are_the_run_s(store: Store) -> None:
    run, _ = follow(store, FakeJob(gpus=("GPU-1",)), gpus="all")
    assert run.gpus == ("GPU-1",)


@pytest.mark.parametrize(
    ("given", "gpus", "inside", "kept"),
    [
        (("GPU-1",), "GPU-1", ("GPU-1", "GPU-2"), ("GPU-1",)),
        (("GPU-1",), "auto:GPU-1", ("GPU-2", "GPU-1"), ("GPU-1",)),
        (None, "GPU-2", ("GPU-1", "GPU-2a"), ("GPU-2a",)),
        (None, "0,", ("GPU-1", "GPU-2"), None),
        (None, "1", ("GPU-1", "GPU-2"), None),
        (("GPU-1",), "0:1", ("MIG-1",), ("MIG-1",)),
    ],
)
def test_of_more_gpus_inside_than_were_asked_for_only_those_are_the_run_s_and_it_is_said(
    store: Store, given: tuple[str, ...] | None, gpus: str, inside: tuple[str, ...], kept: tuple[str, ...] | None
) -> None:
    prepared, _ = ready(store, FakeJob(gpus=inside), gpus=gpus, is_here=False)
    show = FakeShow()
    run = launch.follow(replace(prepared, run=replace(prepared.run, gpus=given)), store, show)
    assert (run.status, run.gpus) == ("finished", kept)
    assert show.said == [note for note in run.notes if "more GPUs than" in note]
    assert bool(show.said) == (len(inside) > 1)


CARDS = tuple(f"GPU-{number}" for number in range(8))
MIG_DEVICES = ("MIG-1", "MIG-2", "GPU-2")


def among(store: Store, given: tuple[str, ...] | None, gpus: str, inside: tuple[str, ...]) -> tuple[Ready, FakeJob]:
    """Return a run that was `given` cards, and its job, whose container sees the cards `inside`."""
    job = FakeJob(gpus=inside)
    prepared, _ = ready(store, job, gpus=gpus, is_here=given is not None)
    return replace(prepared, run=replace(prepared.run, gpus=given)), job


@pytest.mark.parametrize(
    ("given", "gpus", "inside"),
    [
        (CARDS, "all", CARDS[:7]),
        (CARDS, ",".join(CARDS), CARDS[1:]),
        (MIG_DEVICES, "all", ("MIG-1", "GPU-2")),
        (None, "8", CARDS[:7]),
        (None, "0,1", ("GPU-1",)),
    ],
)
def test_fewer_gpus_inside_than_were_demanded_stop_the_run_and_it_says_how_many(
    store: Store, given: tuple[str, ...] | None, gpus: str, inside: tuple[str, ...]
) -> None:
    prepared, job = among(store, given, gpus, inside)
    with pytest.raises(GpuError, match=f"fewer GPUs than the run was given, {len(inside)} instead of"):
        launch.follow(prepared, store, FakeShow())
    assert job.asked == ["kill", "remove"]
    assert (recorded(store).status, recorded(store).exit_code) == ("failed", 125)


@pytest.mark.parametrize(
    ("given", "gpus", "inside"),
    [
        (CARDS[:2], "all", CARDS[:3]),  # MIG devices that this user may not see
        (MIG_DEVICES, "all", MIG_DEVICES),
        (("GPU-1", "GPU-1"), "0,GPU-1", ("GPU-1",)),  # one card, by two names
        (("54d0709b-558d-5a59-9c65-0c5fc14a21a4",), "0,", ("GPU-54d0",)),  # a Jetson's may have another name inside
        (None, "all", ("GPU-1",)),  # on another machine, whose number of cards is not known
    ],
)
def test_as_many_gpus_inside_as_were_demanded_are_enough_by_whatever_names(
    store: Store, given: tuple[str, ...] | None, gpus: str, inside: tuple[str, ...]
) -> None:
    prepared, _ = among(store, given, gpus, inside)
    run = launch.follow(prepared, store, FakeShow())
    assert (run.status, run.gpus, [note for note in run.notes if "GPUs" in note]) == ("finished", inside, [])


def test_under_auto_fewer_gpus_inside_than_the_host_has_are_told(store: Store) -> None:
    prepared, _ = among(store, CARDS, "auto", CARDS[:7])
    show = FakeShow()
    run = launch.follow(prepared, store, show)
    assert (run.status, run.gpus) == ("finished", CARDS[:7])
    assert show.said == [note for note in run.notes if "fewer GPUs" in note]
    assert "7 instead of 8" in show.said[0]


@pytest.mark.parametrize("gpus", ["all", "auto"])
def test_a_run_into_which_nobody_can_look_goes_on_with_the_gpus_it_was_given(store: Store, gpus: str) -> None:
    prepared, _ = ready(store, FakeJob(gpus=GpuUnknown("nvidia-smi is missing")), gpus=gpus, is_here=False)
    show = FakeShow()
    run = launch.follow(replace(prepared, run=replace(prepared.run, gpus=("GPU-1",))), store, show)
    assert (run.status, run.gpus) == ("finished", ("GPU-1",))
    assert "is not known: nvidia-smi is missing" in run.notes[0]
    assert show.said == [run.notes[0]]


def test_a_run_that_ended_before_it_could_be_asked_for_gpus_says_so(store: Store) -> None:
    run, _ = follow(store, FakeJob(gpus=None, exit=Exit(3, False)), gpus="all")
    assert (run.status, run.exit_code, run.gpus) == ("failed", 3, None)
    assert "before the GPUs" in run.notes[0]


IDLE = {"gpus": [{"uuid": "GPU-1", "gpu_percent": 0, "memory_used_bytes": 0}]}


SHARED = {"gpus": [{"uuid": "GPU-1", "gpu_percent": 77, "memory_used_bytes": 0, "foreign_processes": 1}]}


def said_of_cards(
    store: Store, command: tuple[str, ...], sample: dict[str, Any], gpus: str = "all", **how: Any
) -> list[str]:
    """Return what is said about a run on whose only card each sample is `sample`, for longer than it may be idle."""
    prepared, folder = ready(store, FakeJob(), gpus, train=False, **how.pop("engine", {}))
    (folder / SAMPLES).write_text((json.dumps(sample) + "\n") * 20)
    often: dict[str, Any] = {"sample_seconds": 0.01}
    order = replace(prepared.order, spec=replace(prepared.order.spec, command=command, **often | how))
    show, run = FakeShow(), replace(prepared.run, gpus=("GPU-1",), spec=order.spec.as_json())
    with meanwhile.watched_cards(replace(prepared, order=order), run, show, seconds=(0.0, 0.01)):
        until(lambda: show.said or not any("watched" in thread.name for thread in threading.enumerate()))
    return show.said


def test_a_command_that_leaves_its_gpu_idle_is_told_while_it_runs(store: Store) -> None:
    (said,) = said_of_cards(store, ("python", "train.py"), IDLE, tty=True)
    assert "its GPU idle" in said
    assert "computing on the CPU?" in said


@pytest.mark.parametrize(
    ("command", "how"),
    [
        ((), {"tty": True}),
        (("bash",), {"tty": True}),
        (("make",), {"gpus": "auto", "engine": {"has_containers": False}}),
        (("python", "train.py"), {"engine": {"is_here": False}}),
        (("python", "-m", "trainer"), {"workload": Workload("cifar10")}),
    ],
)
@pytest.mark.parametrize("sample", [IDLE, SHARED])
def test_a_shell_a_training_and_what_asked_for_no_gpu_hear_nothing(
    store: Store, command: tuple[str, ...], how: dict[str, Any], sample: dict[str, Any]
) -> None:
    assert said_of_cards(store, command, sample, **how) == []


@pytest.mark.parametrize(("gpus", "wait"), [("auto", "--gpus 1 --wait"), ("all", "--wait")])
def test_a_command_whose_gpu_others_use_is_told_while_it_runs(store: Store, gpus: str, wait: str) -> None:
    (said,) = said_of_cards(store, ("python", "train.py"), SHARED, gpus)
    assert said.startswith("others compute on its GPU, too, ")
    assert said.endswith(f":\n    ngcdl gpu\n    ngcdl run ... {wait}")


@pytest.mark.parametrize("is_wsl", [True, False])
def test_the_cards_of_a_run_of_docker_desktop_are_measured_under_wsl(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_wsl: bool
) -> None:
    monkeypatch.setattr("ngcdl.telemetry.driver.DXG", tmp_path if is_wsl else tmp_path / "dxg")
    monkeypatch.setattr(FakeEngine, "facts", lambda _: EngineFacts(is_desktop=True))
    prepared, _ = ready(store, FakeJob(), gpus="all", is_here=False)
    prepared = replace(prepared, run=replace(prepared.run, machine=Machine("docker-desktop")))
    with meanwhile.sampling(prepared, FakeJob(), ("GPU-1",)) as taken:
        assert isinstance(taken, SamplerProcess if is_wsl else meanwhile.Unmeasured)
