"""If a cluster may have accepted a run without ngcdl knowing, the run's record stays open until this is known."""

from __future__ import annotations

import signal

import pytest
from fakes import FakeJob, FakeShow, ready
from followed import FINISH, START, STEP, by_signal, follow, recorded

from ngcdl.engines.base import Job
from ngcdl.errors import ClusterForbidden, EngineError, NgcdlError, SlurmLost
from ngcdl.running import launch
from ngcdl.running.signals import Interrupted
from ngcdl.storing.store import Store


class Unremoved(FakeJob):
    def remove(self) -> None:
        raise SlurmLost("scancel", "nothing within 30 s")


def second_signal() -> Job | None:
    by_signal(signal.SIGTERM)()
    return None


def no_answer() -> Job | None:
    raise SlurmLost("squeue", "nothing within 30 s")


@pytest.mark.parametrize("error", [ClusterForbidden("no"), SlurmLost("squeue", "no answer")])
def test_a_job_that_stays_on_its_cluster_is_told_and_the_run_has_finished_all_the_same(
    store: Store, error: EngineError, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise error

    job = FakeJob()
    monkeypatch.setattr(job, "remove", refuse)
    run, show = follow(store, job, START, STEP, FINISH, is_cluster=True)
    assert (run.status, run.exit_code) == ("finished", 0)
    assert run.notes[-1] == show.said[-1] == f"The cluster may still have its job: {error.message}"


@pytest.mark.parametrize("find", [lambda: None, no_answer, Unremoved, second_signal])
def test_a_submission_that_was_given_up_stays_open_unless_its_job_is_known_to_be_removed(
    store: Store, find: object
) -> None:
    """If sbatch is killed while a busy controller has its request, Slurm may still accept the job."""
    prepared, _ = ready(store, FakeJob(), at_start=by_signal(signal.SIGINT), is_cluster=True)
    prepared.engine.find = lambda _: find()  # type: ignore[method-assign, operator]
    show = FakeShow()
    with pytest.raises(Interrupted) as caught:
        launch.follow(prepared, store, show)
    run = recorded(store)
    assert (caught.value.number, run.status, run.finished) == (signal.SIGINT, "running", None)
    assert run.notes == (launch.MAY_BE_ACCEPTED,)
    look = f"What became of it, 3 min from now:  ngcdl show {run.id}; to stop it:  ngcdl stop {run.id}"
    assert show.said == [f"{run.notes[0]} {look}"]


def test_a_job_that_a_cluster_accepted_before_the_start_was_given_up_is_removed(store: Store) -> None:
    class Remembered(FakeJob):
        """A cancelled job that Slurm still lists."""

        def remove(self) -> None:
            self.asked.append("cancelled")

    job, show = Remembered(), FakeShow()
    prepared, _ = ready(store, job, at_start=by_signal(signal.SIGINT), is_cluster=True)
    with pytest.raises(Interrupted):
        launch.follow(prepared, store, show)
    run = recorded(store)
    assert (job.asked, run.status, run.exit_code, run.owner) == (["cancelled"], "interrupted", 130, None)
    assert show.said == []


@pytest.mark.parametrize(("error", "status"), [
    (SlurmLost("sbatch", "nothing within 120 s"), "running"),
    (NgcdlError("refused"), "failed"),
])  # fmt: skip
def test_only_a_submission_without_an_answer_leaves_the_record_open(
    store: Store, error: NgcdlError, status: str
) -> None:
    prepared, _ = ready(store, error, is_cluster=True)
    with pytest.raises(type(error)):
        launch.follow(prepared, store, FakeShow())
    assert recorded(store).status == status
