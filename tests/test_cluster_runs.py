"""Runs on a cluster: unwatched, others may write their record, and they continue where none can be asked."""

from __future__ import annotations

import json
import signal
from dataclasses import replace

import pytest
from fakes import FakeJob, FakeShow, ready

from ngcdl.engines.values import Exit, Started
from ngcdl.errors import ClusterLost, EngineRefused, SlurmLost
from ngcdl.folder import LOG, SAMPLES
from ngcdl.running import launch
from ngcdl.running.ending import STOPPED
from ngcdl.running.interrupt import Stopper
from ngcdl.running.signals import Interrupted
from ngcdl.storing.store import Store


def test_what_is_left_on_a_cluster_runs_on_with_nobody_to_watch_it(store: Store) -> None:
    job = FakeJob(until_stopped=True)
    prepared, _ = ready(store, job, is_cluster=True)
    run = launch.follow(prepared, store, FakeShow(), leave=True)
    assert store.load(run.id) == run
    assert (run.status, run.owner, run.container) == ("running", None, "c0ffee")
    assert job.asked == []


def test_a_signal_in_the_moment_before_kills_it_and_a_kill_that_fails_is_said(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent() -> None:
        raise SlurmLost("scancel", "connect failure")

    job, show = FakeJob(), FakeShow()
    monkeypatch.setattr(job, "kill", silent)
    prepared, _ = ready(store, job, is_cluster=True)
    stopper = Stopper(1, show.say)
    course = launch.Course(prepared, store, show, stopper)
    course.start()
    stopper.afterwards = signal.SIGINT
    with pytest.raises(Interrupted):
        course.left()
    assert show.said[0].startswith("its end is not confirmed (")
    assert show.said[0].endswith(f"to stop it:  ngcdl stop {prepared.run.id}")


def test_one_that_is_refused_has_a_closed_record(store: Store) -> None:
    prepared, _ = ready(store, EngineRefused("no such partition"), is_cluster=True)
    with pytest.raises(EngineRefused):
        launch.follow(prepared, store, FakeShow(), leave=True)
    run = store.load(prepared.run.id)
    assert (run.status, run.owner) == ("failed", None)


@pytest.mark.parametrize("lost", [SlurmLost("squeue", "connect failure"), ClusterLost("was following the job")])
def test_one_whose_cluster_does_not_answer_is_said_and_left_running(store: Store, lost: SlurmLost) -> None:
    job = FakeJob(exit=lost)
    prepared, _ = ready(store, job, is_cluster=True)
    with pytest.raises(type(lost)) as raised:
        launch.follow(prepared, store, FakeShow())
    assert raised.value is lost, "its own words"
    assert store.load(prepared.run.id).status == "running"
    assert job.asked == [], "nothing was killed"


def test_what_others_bring_into_the_log_is_shown_and_not_written_twice(store: Store) -> None:
    prepared, folder = ready(store, FakeJob(started=Started(keeps_log=True)), is_cluster=True)
    (folder / LOG).write_text("step 0\n")
    show = FakeShow()
    launch.follow(prepared, store, show)
    assert show.shown == b"step 0\n"
    assert (folder / LOG).read_text() == "step 0\n"


class FarJob(FakeJob):
    """A job that can't be asked for its GPUs, like a cluster's."""

    gpus_inside = None  # type: ignore[assignment]


def test_nothing_is_measured_from_here_and_no_gpu_is_looked_for(store: Store) -> None:
    job = FarJob()
    prepared, folder = ready(store, job, gpus="1", way="gres", is_cluster=True)
    run = launch.follow(prepared, store, FakeShow())
    assert (run.status, run.gpus) == ("finished", None)
    assert not (folder / SAMPLES).exists()


def test_a_stop_that_another_ngcdl_asked_for_is_in_the_record(store: Store) -> None:
    job = FakeJob()
    prepared, _ = ready(store, job, is_cluster=True)

    def another_asks() -> None:
        store.save(store.load(prepared.run.id).noting(STOPPED))
        job.exit = Exit(143, False, None, 50.0)

    job.chunks = (another_asks,)
    run = launch.follow(prepared, store, FakeShow())
    assert (run.status, run.exit_code, run.reason) == ("interrupted", 143, "stopped by ngcdl stop")


def test_one_that_somebody_ended_is_interrupted_with_the_engine_s_words(store: Store) -> None:
    job = FakeJob(exit=Exit(None, None, "Slurm: PREEMPTED", 50.0, is_stopped=True))
    prepared, folder = ready(store, job, is_cluster=True)
    run = launch.follow(prepared, store, FakeShow())
    assert (run.status, run.reason) == ("interrupted", "Slurm: PREEMPTED")
    assert json.loads((folder / "run.json").read_text())["owner"] is None
    assert replace(run, owner=None) == store.load(run.id)
