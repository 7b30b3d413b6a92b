"""A run that was given GPUs has them inside, or says it does not."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from fakes import FakeJob, FakeShow, ready
from followed import follow, recorded

from ngcdl.engines.base import Exit
from ngcdl.errors import GpuNotInside
from ngcdl.errors.gpu import GpuUnknown
from ngcdl.folder import EVENTS
from ngcdl.running import launch
from ngcdl.storing.store import Store


def test_a_trainer_that_meets_no_gpu_is_the_same_as_no_gpu_inside(shelf: Store) -> None:
    prepared, folder = ready(shelf, FakeJob(exit=Exit(1, False)), gpus="all", way="none")
    error = {"event": "error", "t": 3.0, "kind": "no_gpu", "message": "tensorflow sees no GPU", "step": None}
    (folder / EVENTS).write_text(json.dumps(error) + "\n")
    with pytest.raises(GpuNotInside, match="tensorflow sees no GPU"):
        launch.follow(prepared, shelf, FakeShow())
    assert (recorded(shelf).status, recorded(shelf).exit_code) == ("failed", 125)


@pytest.mark.parametrize("inside", [GpuNotInside("nvidia-smi is missing"), ()])
def test_a_gpu_that_was_demanded_and_is_not_inside_stops_the_run(
    shelf: Store, inside: GpuNotInside | tuple[str, ...]
) -> None:
    job = FakeJob(gpus=inside, until_stopped=True)
    prepared, _ = ready(shelf, job, gpus="all")
    with pytest.raises(GpuNotInside):
        launch.follow(prepared, shelf, FakeShow())
    run = recorded(shelf)
    assert job.asked == ["kill", "remove"]
    assert (run.status, run.exit_code) == ("failed", 125)
    assert "sees none" in (run.reason or "")


@pytest.mark.parametrize("inside", [GpuNotInside("nvidia-smi is missing"), ()])
def test_a_gpu_that_was_not_demanded_and_is_not_inside_is_told_loudly(
    shelf: Store, inside: GpuNotInside | tuple[str, ...]
) -> None:
    run, show = follow(shelf, FakeJob(gpus=inside), gpus="auto")
    assert (run.status, run.gpus) == ("finished", ())
    assert "WARNING" in run.notes[0]
    assert "CPU" in run.notes[0]
    assert show.said == [run.notes[0]]


def test_the_gpus_inside_are_the_run_s(shelf: Store) -> None:
    run, _ = follow(shelf, FakeJob(gpus=("GPU-1",)), gpus="all")
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
    shelf: Store, given: tuple[str, ...] | None, gpus: str, inside: tuple[str, ...], kept: tuple[str, ...] | None
) -> None:
    prepared, _ = ready(shelf, FakeJob(gpus=inside), gpus=gpus, is_here=False)
    show = FakeShow()
    run = launch.follow(replace(prepared, run=replace(prepared.run, gpus=given)), shelf, show)
    assert (run.status, run.gpus) == ("finished", kept)
    assert show.said == [note for note in run.notes if "more GPUs than" in note]
    assert bool(show.said) == (len(inside) > 1)


@pytest.mark.parametrize("gpus", ["all", "auto"])
def test_a_run_into_which_nobody_can_look_goes_on_with_the_gpus_it_was_given(shelf: Store, gpus: str) -> None:
    prepared, _ = ready(shelf, FakeJob(gpus=GpuUnknown("nvidia-smi is missing")), gpus=gpus, is_here=False)
    show = FakeShow()
    run = launch.follow(replace(prepared, run=replace(prepared.run, gpus=("GPU-1",))), shelf, show)
    assert (run.status, run.gpus) == ("finished", ("GPU-1",))
    assert "is not known: nvidia-smi is missing" in run.notes[0]
    assert show.said == [run.notes[0]]


def test_a_run_that_ended_before_it_could_be_asked_for_gpus_says_so(shelf: Store) -> None:
    run, _ = follow(shelf, FakeJob(gpus=None, exit=Exit(3, False)), gpus="all")
    assert (run.status, run.exit_code, run.gpus) == ("failed", 3, None)
    assert "before the GPUs" in run.notes[0]
