"""However a run ends, its record is closed and says how."""

from __future__ import annotations

import errno
import json
import os
import resource
from dataclasses import replace
from pathlib import Path

import pytest
from fakes import FakeJob, FakeShow, ready
from followed import FINISH, START, STEP, follow, recorded
from house import until

from ngcdl import launch
from ngcdl.catalog import failures
from ngcdl.engines.base import Chunk, Exit, Started
from ngcdl.errors import CommandNotFound, EngineHangs, EngineLost, EngineRefused, GpuHookFailed, GpuNotInside
from ngcdl.errors.gpu import GpuUnknown
from ngcdl.folder import EVENTS, LOG, RECORD, SAMPLES, lines
from ngcdl.store import Store


@pytest.fixture
def shelf(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


def test_a_run_that_ends_well_is_finished_and_nothing_is_left(shelf: Store) -> None:
    job = FakeJob()
    run, show = follow(shelf, job, START, STEP, FINISH)
    assert (run.status, run.exit_code, run.reason, run.finished) == ("finished", 0, None, 50.0)
    assert (run.dataset, run.device, run.dataset_note) == ("synthetic", "cpu", "no network")
    assert (run.summary.steps, run.summary.loss_first, run.container) == (1, 4.68, "c0ffee")
    assert job.asked == ["remove"]
    assert show.shown == b"step 0\n"
    folder = shelf.folder(run.id)
    assert (folder / "log.txt").read_bytes() == b"step 0\n"
    assert not (folder / "home").exists()


def test_a_run_is_measured_while_it_goes_on(shelf: Store) -> None:
    job = FakeJob(until_stopped=True)
    prepared, folder = ready(shelf, job)

    def measured() -> None:
        until(lambda: bool(list(lines(folder / SAMPLES))))
        job.ending.set()

    job.chunks = (measured,)
    assert (launch.follow(prepared, shelf, FakeShow()).summary.samples or 0) >= 1


def test_nothing_of_this_machine_is_taken_for_a_measure_of_another_s(shelf: Store) -> None:
    prepared, folder = ready(shelf, FakeJob(), is_here=False)
    run = launch.follow(prepared, shelf, FakeShow())
    assert (run.status, run.summary.samples, (folder / SAMPLES).exists()) == ("finished", None, False)
    assert run.notes == ("The engine is on another machine: nothing was measured there.",)


def test_a_home_that_something_was_left_in_is_kept(shelf: Store) -> None:
    prepared, folder = ready(shelf, FakeJob())
    (folder / "home/.bash_history").touch()
    launch.follow(prepared, shelf, FakeShow())
    assert (folder / "home/.bash_history").exists()


def test_a_run_that_fails_has_the_container_s_code(shelf: Store) -> None:
    run, _ = follow(shelf, FakeJob(exit=Exit(7, False)))
    assert (run.status, run.exit_code, run.reason) == ("failed", 7, None)


def test_the_trainer_s_own_reason_is_the_run_s(shelf: Store) -> None:
    error = {"event": "error", "t": 3.0, "kind": "nan", "message": "loss is NaN", "step": 5}
    run, _ = follow(shelf, FakeJob(exit=Exit(1, False)), START, STEP, error)
    assert (run.status, run.exit_code, run.reason) == ("failed", 1, "nan: loss is NaN")


def test_a_trainer_that_meets_no_gpu_is_the_same_as_no_gpu_inside(shelf: Store) -> None:
    prepared, folder = ready(shelf, FakeJob(exit=Exit(1, False)), gpus="all", way="none")
    error = {"event": "error", "t": 3.0, "kind": "no_gpu", "message": "tensorflow sees no GPU", "step": None}
    (folder / EVENTS).write_text(json.dumps(error) + "\n")
    with pytest.raises(GpuNotInside, match="tensorflow sees no GPU"):
        launch.follow(prepared, shelf, FakeShow())
    assert (recorded(shelf).status, recorded(shelf).exit_code) == ("failed", 125)


def test_the_engine_s_reason_comes_before_the_trainer_s(shelf: Store) -> None:
    error = {"event": "error", "t": 3.0, "kind": "crash", "message": "x"}
    run, _ = follow(shelf, FakeJob(exit=Exit(137, True, "out of memory: the kernel killed it")), START, error)
    assert (run.status, run.oom_killed, run.reason) == ("failed", True, "out of memory: the kernel killed it")


def test_a_training_out_of_memory_that_ends_with_0_has_failed(shelf: Store) -> None:
    run, _ = follow(shelf, FakeJob(exit=Exit(0, True, "out of memory")), START, STEP)
    assert (run.status, run.exit_code, run.oom_killed) == ("failed", 0, True)


def test_a_training_that_finished_is_finished_though_a_helper_was_killed(shelf: Store) -> None:
    run, _ = follow(shelf, FakeJob(exit=Exit(0, True, "out of memory")), START, STEP, FINISH)
    assert (run.status, run.oom_killed) == ("finished", True)


def test_a_command_of_one_s_own_that_ends_with_0_is_finished(shelf: Store) -> None:
    run, _ = follow(shelf, FakeJob(exit=Exit(0, True)), train=False)
    assert (run.status, run.oom_killed) == ("finished", True)


def test_notes_of_the_start_are_recorded_and_news_are_said(shelf: Store) -> None:
    run, show = follow(shelf, FakeJob(started=Started(("This host forbids memlock.", "It does so always."), ("New.",))))
    assert run.notes == ("This host forbids memlock.", "It does so always.")
    assert show.said == ["New."]


NO_KERNEL = b"RuntimeError: CUDA error: no kernel image is available for execution on the device\n"


def test_a_famous_failure_is_said_with_its_remedy_and_recorded_and_the_exit_code_stays(shelf: Store) -> None:
    run, show = follow(shelf, FakeJob((b"step 0\n", NO_KERNEL), exit=Exit(3, False)), train=False)
    assert (run.status, run.exit_code, run.reason) == ("failed", 3, None)
    assert run.diagnosis
    assert run.diagnosis.name == "no-kernel-image"
    assert [
        said for said in show.said if "no code for this GPU" in said and "\n      ngcdl images" in said
    ] == show.said


def test_a_failure_that_is_not_famous_and_a_run_that_ended_well_have_no_diagnosis(shelf: Store) -> None:
    run, show = follow(shelf, FakeJob((b"KeyError: 'labels'\n",), exit=Exit(1, False)))
    assert (run.diagnosis, show.said) == (None, [])
    run, show = follow(Store(shelf.root / "well"), FakeJob((NO_KERNEL,)))
    assert (run.status, run.diagnosis, show.said) == ("finished", None, [])


def test_a_run_that_ended_well_on_the_cpu_though_it_asked_for_a_gpu_is_told_why(shelf: Store) -> None:
    banner = b"WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.\n"
    for gpu_way, name in (("runtime", "driver-not-detected"), ("none", None)):
        prepared, _ = ready(Store(shelf.root / gpu_way), FakeJob((banner,)), train=False)
        prepared = replace(prepared, run=replace(prepared.run, gpu_way=gpu_way))
        show = FakeShow()
        run = launch.follow(prepared, Store(shelf.root / gpu_way), show)
        assert (run.status, run.exit_code) == ("finished", 0)
        assert (run.diagnosis.name if run.diagnosis else None) == name
        assert len(show.said) == (name is not None)


def test_what_the_error_s_own_hint_says_is_recorded_and_not_said_twice(shelf: Store) -> None:
    advice = next(row.advice for row in failures.table() if row.name == "driver-mismatch")
    error = GpuHookFailed("nvidia-container-cli: nvml error: driver/library version mismatch", advice)
    prepared, _ = ready(shelf, error)
    show = FakeShow()
    with pytest.raises(GpuHookFailed):
        launch.follow(prepared, shelf, show)
    known = recorded(shelf).diagnosis
    assert known
    assert (known.name, show.said) == ("driver-mismatch", [])


def test_what_the_error_s_own_hint_does_not_say_is_said(shelf: Store) -> None:
    job = FakeJob(gpus=GpuNotInside("Failed to initialize NVML: Unknown Error"), until_stopped=True)
    prepared, _ = ready(shelf, job, gpus="all")
    show = FakeShow()
    with pytest.raises(GpuNotInside):
        launch.follow(prepared, shelf, show)
    assert "systemctl daemon-reload" in show.said[-1]


def test_a_start_that_fails_is_recorded_with_its_code(shelf: Store) -> None:
    prepared, _ = ready(shelf, CommandNotFound("pyton"))
    with pytest.raises(CommandNotFound):
        launch.follow(prepared, shelf, FakeShow())
    run = recorded(shelf)
    assert (run.status, run.exit_code) == ("failed", 127)
    assert "pyton" in (run.reason or "")


@pytest.mark.parametrize(("is_cluster", "asked"), [(False, ["remove"]), (True, [])])
def test_what_an_engine_made_though_the_start_failed_is_removed_unless_a_cluster_has_it(
    shelf: Store, is_cluster: bool, asked: list[str]
) -> None:
    def hang() -> None:
        raise EngineHangs("unix:///x.sock", 60)

    job = FakeJob()
    prepared, _ = ready(shelf, job, at_start=hang, is_cluster=is_cluster)
    with pytest.raises(EngineHangs):
        launch.follow(prepared, shelf, FakeShow())
    assert job.asked == asked
    assert (recorded(shelf).status, recorded(shelf).exit_code) == ("failed", 125)


def test_a_run_whose_engine_is_lost_is_lost_and_its_container_left_alone(shelf: Store) -> None:
    job = FakeJob(exit=EngineLost("the run"))
    prepared, folder = ready(shelf, job)
    (folder / EVENTS).write_text(json.dumps(STEP) + "\n")
    with pytest.raises(EngineLost):
        launch.follow(prepared, shelf, FakeShow())
    run = recorded(shelf)
    assert (run.status, run.exit_code, run.container) == ("lost", None, "c0ffee")
    assert run.summary.loss_first == 4.68, "what it wrote is kept"
    assert job.asked == []


@pytest.mark.parametrize("train", [True, False])
def test_only_a_training_that_ran_is_told_to_go_on_from_its_checkpoint(shelf: Store, train: bool) -> None:
    for job, ran in ((FakeJob(exit=EngineLost("the run")), True), (EngineLost("the start"), False)):
        prepared, folder = ready(Store(shelf.root / str(ran)), job, train=train)
        with pytest.raises(EngineLost) as caught:
            launch.follow(prepared, Store(folder.parent), FakeShow())
        assert ("--resume last" in caught.value.hint) == (train and ran)
        assert "sudo systemctl start docker" in caught.value.hint


class KeptJob(FakeJob):
    """Its container is not removed: it alone has the end of its log."""

    def remove(self) -> None:
        raise EngineLost("a look at what the run wrote")


def test_a_container_that_alone_has_the_end_of_the_log_is_named_in_a_note(shelf: Store) -> None:
    prepared, _ = ready(shelf, KeptJob(exit=Exit(5, False)))
    show = FakeShow()
    run = launch.follow(prepared, shelf, show)
    assert (run.status, run.exit_code) == ("failed", 5)
    assert "log.txt may lack its end" in run.notes[-1]
    assert run.notes[-1].endswith("docker logs c0ffee")
    assert show.said == [run.notes[-1]]
    assert recorded(shelf) == run


def test_another_error_of_the_engine_kills_the_job(shelf: Store) -> None:
    job = FakeJob(gpus=EngineRefused("no"))
    prepared, _ = ready(shelf, job, gpus="all")
    with pytest.raises(EngineRefused):
        launch.follow(prepared, shelf, FakeShow())
    assert job.asked == ["kill", "remove"]
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


def test_a_log_that_can_t_be_written_is_said_once_and_the_run_goes_on(shelf: Store) -> None:
    prepared, folder = ready(shelf, FakeJob((b"a\n", b"b\n")))
    (folder / LOG).mkdir()
    show = FakeShow()
    run = launch.follow(prepared, shelf, show)
    assert (run.status, show.shown) == ("finished", b"a\nb\n")
    assert [line for line in show.said if "log.txt can't be written" in line] == show.said


def test_a_log_that_can_t_be_written_any_more_is_said_once(shelf: Store) -> None:
    least, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    job = FakeJob()
    prepared, _ = ready(shelf, job)

    def fill() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2, most))

    def make_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (least, most))

    job.chunks = (b"a\n", fill, b"b\n", b"c\n", make_room)
    show = FakeShow()
    try:
        assert launch.follow(prepared, shelf, show).status == "finished"
    finally:
        make_room()
    assert show.said == [f"log.txt can't be written any more ({os.strerror(errno.EFBIG)}); the run goes on without it."]


@pytest.mark.parametrize("planted", ["link", "pipe"])
def test_a_log_that_the_run_made_another_file_of_is_not_written(shelf: Store, tmp_path: Path, planted: str) -> None:
    """The folder is bound into the container: a link there would be followed with the caller's rights."""
    precious = tmp_path / "authorized_keys"
    precious.write_text("mine\n")
    prepared, folder = ready(shelf, FakeJob((b"theirs\n",)))
    if planted == "link":
        (folder / LOG).symlink_to(precious)
    else:
        os.mkfifo(folder / LOG)
    show = FakeShow()
    assert launch.follow(prepared, shelf, show).status == "finished"
    assert [line for line in show.said if "log.txt can't be written" in line] == show.said
    assert len(show.said) == 1
    assert precious.read_text() == "mine\n"


def test_samples_that_can_t_be_written_are_a_note(shelf: Store) -> None:
    prepared, folder = ready(shelf, FakeJob())
    (folder / SAMPLES).mkdir()
    run = launch.follow(prepared, shelf, FakeShow())
    assert run.status == "finished"
    assert "no samples" in run.notes[0]


def test_a_record_that_can_t_be_written_at_the_close_is_said_and_the_run_s_end_given(shelf: Store) -> None:
    job = FakeJob()
    prepared, folder = ready(shelf, job)

    def gone() -> None:
        folder.rename(folder.with_name("gone"))

    job.chunks = (gone,)
    show = FakeShow()
    run = launch.follow(prepared, shelf, show)
    assert (run.status, run.exit_code) == ("finished", 0)
    assert "Its record is not up to date" in show.said[-1]
    assert job.asked == [], "the engine's word on how it ended is all there is, and stays for the next command"


def test_a_record_that_can_t_be_written_meanwhile_costs_nothing_when_it_can_at_the_close(shelf: Store) -> None:
    job = FakeJob()
    prepared, folder = ready(shelf, job)
    record = folder / RECORD
    record.unlink()
    record.mkdir()
    job.chunks = (record.rmdir,)
    show = FakeShow()
    run = launch.follow(prepared, shelf, show)
    assert "The run goes on" in show.said[0]
    assert (shelf.load(run.id), job.asked) == (run, ["remove"])


def test_a_fault_of_ngcdl_itself_kills_the_job_closes_the_record_and_is_shown(shelf: Store) -> None:
    class Broken(FakeShow):
        def chunk(self, chunk: Chunk) -> None:
            raise RuntimeError("a fault")

    job = FakeJob()
    prepared, _ = ready(shelf, job)
    with pytest.raises(RuntimeError, match="a fault"):
        launch.follow(prepared, shelf, Broken())
    run = recorded(shelf)
    assert job.asked == ["kill", "remove"]
    assert (run.status, run.exit_code, run.reason, run.owner) == ("failed", 125, "RuntimeError: a fault", None)


def test_a_start_event_of_another_shape_leaves_what_was_known(shelf: Store) -> None:
    start = {"event": "start", "dataset": 5, "device": ["gpu"], "dataset_note": {}}
    run, _ = follow(shelf, FakeJob(), start, {"event": ["start"]})
    assert (run.status, run.dataset, run.device, run.dataset_note) == ("finished", None, None, None)
