"""However a run ends, its record is closed and says how."""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import pytest
from fakes import FakeJob, FakeShow, LeftJob, ready
from followed import FINISH, START, STEP, follow, recorded
from house import until

from ngcdl.engines.values import Chunk, Exit, Started
from ngcdl.errors import CommandNotFound, EngineHangs, EngineLost, EngineRefused
from ngcdl.folder import EVENTS, SAMPLES, lines
from ngcdl.running import launch, meanwhile, silence
from ngcdl.storing.store import Store


def test_a_run_that_ends_well_is_finished_and_nothing_is_left(store: Store) -> None:
    job = FakeJob()
    run, show = follow(store, job, START, STEP, FINISH)
    assert (run.status, run.exit_code, run.reason, run.finished) == ("finished", 0, None, 50.0)
    assert (run.dataset, run.device, run.dataset_note) == ("synthetic", "cpu", "no network")
    assert (run.summary.steps, run.summary.loss_first, run.container) == (1, 4.68, "c0ffee")
    assert job.asked == ["remove"]
    assert show.shown == b"step 0\n"
    folder = store.folder(run.id)
    assert (folder / "log.txt").read_bytes() == b"step 0\n"
    assert not (folder / "home").exists()


def test_a_run_is_measured_while_it_goes_on(store: Store) -> None:
    job = FakeJob(until_stopped=True)
    prepared, folder = ready(store, job)

    def measured() -> None:
        until(lambda: bool(list(lines(folder / SAMPLES))))
        job.ending.set()

    job.chunks = (measured,)
    assert (launch.follow(prepared, store, FakeShow()).summary.samples or 0) >= 1


def test_a_run_is_sampled_as_often_as_was_asked_for(store: Store) -> None:
    job = FakeJob(until_stopped=True)
    prepared, folder = ready(store, job)
    order = replace(prepared.order, spec=replace(prepared.order.spec, sample_seconds=0.1))

    def measured() -> None:
        until(lambda: len(list(lines(folder / SAMPLES))) > 6)
        job.ending.set()

    job.chunks = (measured,)
    launch.follow(replace(prepared, order=order), store, FakeShow())
    found = list(lines(folder / SAMPLES))
    assert min(later["seconds"] - one["seconds"] for one, later in pairwise(found)) < 0.5
    assert ["host_cpu_percent" in found[0], all("host_cpu_percent" in one for one in found)] == [True, False]


def test_nothing_of_this_machine_is_taken_for_a_measure_of_another_s(store: Store) -> None:
    prepared, folder = ready(store, FakeJob(), is_here=False)
    run = launch.follow(prepared, store, FakeShow())
    assert (run.status, run.summary.samples, (folder / SAMPLES).exists()) == ("finished", None, False)
    assert run.notes == ("The engine is on another machine: nothing was measured there.",)


def test_a_home_that_something_was_left_in_is_kept(store: Store) -> None:
    prepared, folder = ready(store, FakeJob())
    (folder / "home/.bash_history").touch()
    launch.follow(prepared, store, FakeShow())
    assert (folder / "home/.bash_history").exists()


@pytest.mark.parametrize(("is_cluster", "finished"), [(False, 1050.0), (True, 4650.0)])
def test_what_the_clock_was_set_meanwhile_is_no_part_of_a_run_s_duration(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_cluster: bool, finished: float
) -> None:
    """Comparisons of commands use durations. An end that a cluster reports is by that machine's clock."""
    now = time.time
    job = FakeJob((lambda: monkeypatch.setattr(time, "time", lambda: now() + 3600.0),))
    job.exit = Exit(0, False, None, 4650.0)
    run, _ = follow(store, job, is_here=not is_cluster, is_cluster=is_cluster)
    assert run.finished == finished


@pytest.mark.parametrize("set_seconds", [0.0, 3600.0])
def test_a_run_on_an_engine_with_a_clock_of_its_own_is_timed_by_this_host_s(
    store: Store, monkeypatch: pytest.MonkeyPatch, set_seconds: float
) -> None:
    """Docker Desktop's virtual machine, whose clock may have stood still while the host was suspended."""
    now = time.time
    job = FakeJob((lambda: monkeypatch.setattr(time, "time", lambda: now() + set_seconds),))
    run, _ = follow(store, job, is_here=False)
    assert run.finished == pytest.approx(now(), abs=60.0), "and not 50, as the engine reports"
    assert run.seconds is not None


def test_a_run_that_fails_has_the_container_s_code(store: Store) -> None:
    run, _ = follow(store, FakeJob(exit=Exit(7, False)))
    assert (run.status, run.exit_code, run.reason) == ("failed", 7, None)


def test_the_trainer_s_own_reason_is_the_run_s(store: Store) -> None:
    error = {"event": "error", "t": 3.0, "kind": "nan", "message": "loss is NaN", "step": 5}
    run, _ = follow(store, FakeJob(exit=Exit(1, False)), START, STEP, error)
    assert (run.status, run.exit_code, run.reason) == ("failed", 1, "nan: loss is NaN")


def test_the_engine_s_reason_comes_before_the_trainer_s(store: Store) -> None:
    error = {"event": "error", "t": 3.0, "kind": "crash", "message": "x"}
    run, _ = follow(store, FakeJob(exit=Exit(137, True, "out of memory: the kernel killed it")), START, error)
    assert (run.status, run.oom_killed, run.reason) == ("failed", True, "out of memory: the kernel killed it")


def test_a_training_out_of_memory_that_ends_with_0_has_failed(store: Store) -> None:
    run, _ = follow(store, FakeJob(exit=Exit(0, True, "out of memory")), START, STEP)
    assert (run.status, run.exit_code, run.oom_killed) == ("failed", 0, True)


def test_a_training_that_finished_is_finished_though_a_helper_was_killed(store: Store) -> None:
    run, _ = follow(store, FakeJob(exit=Exit(0, True, "out of memory")), START, STEP, FINISH)
    assert (run.status, run.oom_killed) == ("finished", True)


def test_a_command_of_one_s_own_that_ends_with_0_is_finished(store: Store) -> None:
    run, _ = follow(store, FakeJob(exit=Exit(0, True)), train=False)
    assert (run.status, run.oom_killed) == ("finished", True)


def test_notes_of_the_start_are_recorded_and_news_are_said(store: Store) -> None:
    run, show = follow(store, FakeJob(started=Started(("This host forbids memlock.", "It does so always."), ("New.",))))
    assert run.notes == ("This host forbids memlock.", "It does so always.")
    assert show.said == ["New."]


def test_a_start_that_fails_is_recorded_with_its_code(store: Store) -> None:
    prepared, _ = ready(store, CommandNotFound("pyton"))
    with pytest.raises(CommandNotFound):
        launch.follow(prepared, store, FakeShow())
    run = recorded(store)
    assert (run.status, run.exit_code) == ("failed", 127)
    assert "pyton" in (run.reason or "")


@pytest.mark.parametrize(("is_cluster", "asked"), [(False, ["remove"]), (True, [])])
def test_what_an_engine_made_though_the_start_failed_is_removed_unless_a_cluster_has_it(
    store: Store, is_cluster: bool, asked: list[str]
) -> None:
    def hang() -> None:
        raise EngineHangs("unix:///x.sock", 60)

    job = FakeJob()
    prepared, _ = ready(store, job, at_start=hang, is_cluster=is_cluster)
    with pytest.raises(EngineHangs):
        launch.follow(prepared, store, FakeShow())
    assert job.asked == asked
    assert (recorded(store).status, recorded(store).exit_code) == ("failed", 125)


def test_a_run_whose_engine_is_lost_is_lost_and_its_container_left_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    unmeasured = meanwhile.Unmeasured(problems=("no samples",))
    monkeypatch.setattr(meanwhile, "sampling", lambda *_: contextlib.nullcontext(unmeasured))
    job = FakeJob(exit=EngineLost("waited for the run"))
    prepared, folder = ready(store, job)
    (folder / EVENTS).write_text(json.dumps(STEP) + "\n")
    with pytest.raises(EngineLost):
        launch.follow(prepared, store, FakeShow())
    run = recorded(store)
    assert (run.status, run.exit_code, run.container) == ("lost", None, "c0ffee")
    assert run.summary.loss_first == 4.68, "what it wrote is kept"
    assert "no samples" in run.notes
    assert job.asked == []


@pytest.mark.parametrize("train", [True, False])
def test_only_a_training_that_ran_is_told_to_go_on_from_its_checkpoint(store: Store, train: bool) -> None:
    for job, ran in (
        (FakeJob(exit=EngineLost("waited for the run")), True),
        (EngineLost("was starting the run"), False),
    ):
        prepared, folder = ready(Store(store.root / str(ran)), job, train=train)
        with pytest.raises(EngineLost) as caught:
            launch.follow(prepared, Store(folder.parent), FakeShow())
        assert ("--resume last" in caught.value.hint) == (train and ran)
        assert "sudo systemctl start docker" in caught.value.hint


class KeptJob(FakeJob):
    """A job whose container can't be removed, so that the container alone has the end of the log."""

    def remove(self) -> None:
        raise EngineLost("read the run's output")


def test_a_container_that_alone_has_the_end_of_the_log_is_named_in_a_note(store: Store) -> None:
    prepared, _ = ready(store, KeptJob(exit=Exit(5, False)))
    show = FakeShow()
    run = launch.follow(prepared, store, show)
    assert (run.status, run.exit_code) == ("failed", 5)
    assert "log.txt may lack its end" in run.notes[-1]
    assert run.notes[-1].endswith("docker logs c0ffee")
    assert show.said == [run.notes[-1]]
    assert recorded(store) == run


def test_a_container_that_is_left_is_told_with_the_command_that_removes_it(store: Store) -> None:
    prepared, _ = ready(store, LeftJob())
    show = FakeShow()
    run = launch.follow(prepared, store, show)
    left = "The container c0ffee could not be removed (Docker said: device or resource busy):  docker rm -f c0ffee"
    assert (run.status, run.notes[-1:], show.said) == ("finished", (left,), [left])
    assert recorded(store) == run


def test_what_a_refused_start_left_and_docker_does_not_remove_is_the_next_command_s(store: Store) -> None:
    def refuses() -> None:
        raise EngineRefused("no such device")

    prepared, _ = ready(store, LeftJob(), at_start=refuses)
    show = FakeShow()
    with pytest.raises(EngineRefused):
        launch.follow(prepared, store, show)
    assert (recorded(store).status, recorded(store).owner) == ("failed", prepared.run.owner)
    assert show.said[0].endswith("the next ngcdl run or runs removes it")


class OutlivingJob(FakeJob):
    """A job whose engine was away, and came back."""

    def say(self, text: str) -> None:
        raise AssertionError("nobody was told")

    def output(self) -> Iterator[Chunk]:
        self.say("the engine is away")
        yield from super().output()

    def absences(self) -> str | None:
        return "The engine did not answer for 3 s."


def test_an_engine_that_was_away_for_a_while_is_said_and_noted(store: Store) -> None:
    run, show = follow(store, OutlivingJob())
    assert show.said == ["the engine is away"]
    assert (run.status, run.notes) == ("finished", ("The engine did not answer for 3 s.",))


def test_a_training_that_falls_silent_is_said_to_whoever_follows_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent training writes no output, so no chunk makes ngcdl look at its events."""
    monkeypatch.setattr(silence, "LOOK_SECONDS", 0.01)
    job = FakeJob()
    prepared, folder = ready(store, job)
    (folder / EVENTS).write_text(json.dumps(STEP) + "\n")
    os.utime(folder / EVENTS, (time.time() - 720,) * 2)
    show = FakeShow()
    job.chunks = (lambda: until(lambda: show.said),)
    launch.follow(prepared, store, show)
    assert f"no step for 12 min; check with: ngcdl gpu or ngcdl logs {prepared.run.id}" in show.said[0]


@pytest.mark.parametrize(("is_cluster", "asked"), [(False, ["kill"]), (True, ["stop 60", "kill"])])
def test_another_error_of_the_engine_ends_the_job_and_nodes_of_a_cluster_may_save_what_they_have(
    store: Store, is_cluster: bool, asked: list[str]
) -> None:
    def refuse() -> None:
        raise EngineRefused("no")

    job = FakeJob(chunks=(refuse,))
    prepared, _ = ready(store, job, is_cluster=is_cluster)
    with pytest.raises(EngineRefused):
        launch.follow(prepared, store, FakeShow())
    assert job.asked == [*asked, "remove"]
    assert (recorded(store).status, recorded(store).exit_code) == ("failed", 125)


@pytest.mark.parametrize(("is_cluster", "status", "said"), [
    (False, "failed", "the next ngcdl run or runs removes it"),
    (True, "running", "to stop it:  ngcdl stop 20180216-182126-test-beef"),
])  # fmt: skip
def test_a_job_whose_kill_is_not_confirmed_is_told_and_its_record_stays_open(
    store: Store, is_cluster: bool, status: str, said: str
) -> None:
    class Broken(FakeShow):
        def chunk(self, chunk: Chunk) -> None:
            raise RuntimeError("a fault")

    prepared, _ = ready(store, FakeJob(exit=EngineLost("waited for the run")), is_cluster=is_cluster)
    show = Broken()
    with pytest.raises(RuntimeError, match="a fault"):
        launch.follow(prepared, store, show)
    assert (recorded(store).status, recorded(store).is_open) == (status, True)
    assert show.said[-1].endswith(said)


def test_a_fault_of_ngcdl_itself_kills_the_job_closes_the_record_and_is_shown(store: Store) -> None:
    class Broken(FakeShow):
        def chunk(self, chunk: Chunk) -> None:
            raise RuntimeError("a fault")

    job = FakeJob()
    prepared, _ = ready(store, job)
    with pytest.raises(RuntimeError, match="a fault"):
        launch.follow(prepared, store, Broken())
    run = recorded(store)
    assert job.asked == ["kill", "remove"]
    assert (run.status, run.exit_code, run.reason, run.owner) == ("failed", 125, "RuntimeError: a fault", None)


def test_a_start_event_of_another_shape_leaves_what_was_known(store: Store) -> None:
    start = {"event": "start", "dataset": 5, "device": ["gpu"], "dataset_note": {}}
    run, _ = follow(store, FakeJob(), start, {"event": ["start"]})
    assert (run.status, run.dataset, run.device, run.dataset_note) == ("finished", None, None, None)
