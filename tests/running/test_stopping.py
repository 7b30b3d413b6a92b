"""Who is asked to end a run, and how its record is closed, even on an engine that ngcdl does not come with."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from fakes import FakeEngine, FakeJob
from house import until

from ngcdl.engines.values import Exit
from ngcdl.errors import ClusterForbidden, RunElsewhere, RunOfOthers, RunOnHost, SlurmLost
from ngcdl.folder import LOG, RECORD
from ngcdl.processes import began
from ngcdl.record import Machine, Owner, Run
from ngcdl.running import stopping
from ngcdl.running.ending import STOPPED
from ngcdl.running.launch import MAY_BE_ACCEPTED
from ngcdl.running.owner import this_process
from ngcdl.running.reconcile import UNWATCHED, reconcile
from ngcdl.spec import KINDS, Kind
from ngcdl.storing import comparisons
from ngcdl.storing.comparisons import StoredComparison, Trial
from ngcdl.storing.store import Store

DEAD = Owner(2**22 + 1, 5, "another boot")
RUN = Run("20180216-182126-test-beef01", "running", 1.0, engine="apptainer", engine_id="7TWA:KOZU", owner=DEAD)


class Job(FakeJob):
    """A job that runs until it is asked to end."""

    def ended(self) -> Exit | None:
        return self.wait() if self.ending.is_set() else None


class Refused(Job):
    def stop(self, grace_seconds: float) -> None:
        raise ClusterForbidden("no")


def added(monkeypatch: pytest.MonkeyPatch, job: FakeJob, kind: Kind) -> FakeEngine:
    """Add an engine that has `job`, a module in engines/ and a row in the table of kinds, and return it."""
    engine = FakeEngine(job, name="apptainer", is_cluster=kind.is_cluster)
    monkeypatch.setitem(KINDS, "apptainer", kind)
    monkeypatch.setitem(sys.modules, "ngcdl.engines.apptainer", SimpleNamespace(connect=lambda: engine))
    return engine


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    """A job on an added engine."""
    job = Job(chunks=(b"step 1\n",), until_stopped=True)
    added(monkeypatch, job, Kind(choose="Load its module, that of {its}:"))
    return job


def test_an_engine_that_was_added_is_asked_how_a_run_stands_that_nobody_watches(store: Store, job: Job) -> None:
    store.create(RUN)
    assert reconcile(store, RUN) == RUN.noting(UNWATCHED)
    job.exit = Exit(3, False, None, 50.0)
    job.ending.set()
    found = reconcile(store, RUN)
    assert (found.status, found.exit_code, found.owner) == ("failed", 3, None)
    assert (store.folder(RUN.id) / LOG).read_bytes() == b"step 1\n"
    assert job.asked == ["remove"]


@pytest.mark.parametrize(("spec", "seconds"), [({"workload": {"name": "cifar10"}}, 60), (None, 10)])
def test_what_runs_without_its_watcher_is_stopped_where_it_runs_a_training_with_time_for_its_checkpoint(
    store: Store, job: Job, spec: dict[str, object] | None, seconds: int
) -> None:
    run = replace(RUN, spec=spec)
    store.create(run)
    done = stopping.stopped(store, run)
    assert (done.status, done.exit_code, done.reason) == ("interrupted", 143, "stopped by ngcdl stop")
    assert job.asked == [f"stop {seconds}", "remove"]


def test_a_suspended_watcher_hears_of_the_stop(store: Store) -> None:
    """Ctrl-Z suspends a watcher; so does the terminal if a watcher in the background uses it."""
    record = store.create(RUN) / RECORD
    code = f"""
import json, pathlib, signal, time
record, draft = pathlib.Path({str(record)!r}), pathlib.Path({str(record)!r} + ".draft")
def end(*_):
    draft.write_text(json.dumps(json.loads(record.read_text()) | {{"status": "interrupted", "owner": None}}))
    draft.replace(record)  # a stop reads it meanwhile
    raise SystemExit
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
while True: time.sleep(0.1)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as watcher:
        assert watcher.stdout
        watcher.stdout.readline()
        run = replace(RUN, owner=replace(this_process(), pid=watcher.pid, ticks=began(watcher.pid)))
        store.save(run)
        os.kill(watcher.pid, signal.SIGSTOP)
        waiting = threading.Timer(120, watcher.kill)  # without SIGCONT the watcher would never end
        waiting.start()
        done = stopping.stopped(store, run)
        waiting.cancel()
    assert done.status == "interrupted"


def test_a_process_that_a_run_wrote_into_its_record_is_not_killed(
    store: Store, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(grace_seconds: float) -> None:
        Job.stop(job, grace_seconds)
        store.save(replace(forged, status="interrupted", owner=None))

    monkeypatch.setattr(job, "stop", stop)
    store.create(RUN)
    with subprocess.Popen(["sleep", "60"]) as another:
        forged = replace(RUN, owner=replace(this_process(), pid=another.pid, ticks=began(another.pid)))
        store.save(forged, known=False)
        stopping.stopped(store, forged)
        assert (another.poll(), job.asked) == (None, ["stop 10"])
        another.kill()


def test_a_watcher_that_ends_at_that_moment_is_no_error(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    store.create(replace(RUN, owner=this_process()))

    def kill(pid: int, number: int) -> None:
        store.save(replace(RUN, status="finished", owner=None))
        raise ProcessLookupError

    monkeypatch.setattr(os, "kill", kill)
    assert stopping.stopped(store, replace(RUN, owner=this_process())).status == "finished"


def test_a_run_that_is_closed_while_its_engine_is_asked_to_stop_it_stays_as_it_ended(
    store: Store, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create(RUN)
    ended = RUN.closed("finished", 0, None, 50.0)

    def find(_: str) -> Job:
        store.save(ended)  # by another command, or by an ngcdl that follows it on its cluster
        return job

    monkeypatch.setattr(sys.modules["ngcdl.engines.apptainer"].connect(), "find", find)
    assert (stopping.stopped(store, RUN), store.load(RUN.id), job.asked) == (ended, ended, [])


def test_a_run_on_another_engine_is_left_alone_with_how_that_is_chosen(store: Store, job: Job) -> None:
    run = replace(RUN, engine_id="west")
    store.create(run)
    with pytest.raises(RunElsewhere, match=r"on another engine \(Apptainer: west\)") as caught:
        stopping.stopped(store, run)
    assert "Load its module, that of west:\n    ngcdl stop" in caught.value.hint
    assert (job.asked, store.load(run.id).notes) == ([], ())


def test_a_run_on_another_host_that_shares_this_home_is_left_alone_with_where_to_stop_it(store: Store) -> None:
    run = replace(RUN, engine="local", engine_id=None, machine=Machine(hostname="node-7"), container="pid:1:5")
    store.create(run)
    with pytest.raises(RunOnHost, match=f"{run.id} runs on node-7; this is ") as caught:
        stopping.stopped(store, run)
    assert caught.value.hint == f"Nothing was stopped. On node-7:\n    ngcdl stop {run.id}"
    assert store.load(run.id) == run


def test_a_run_in_another_sandbox_is_left_alone_with_where_to_stop_it(store: Store) -> None:
    here, owner = Machine(hostname=socket.gethostname()), replace(this_process(), namespace="pid:[1]")
    run = replace(RUN, engine="local", engine_id=None, machine=here, container="pid:1:5", owner=owner)
    store.create(run)
    with pytest.raises(RunOnHost, match="runs in another sandbox or container, whose processes") as caught:
        stopping.stopped(store, run)
    assert caught.value.hint == f"Nothing was stopped. There:\n    ngcdl stop {run.id}"
    assert store.load(run.id) == run


def test_a_run_that_something_else_started_is_refused(store: Store) -> None:
    run = replace(RUN, engine="compose", engine_id=None, owner=None)
    store.create(run)
    with pytest.raises(RunOfOthers, match="was started by compose, not by ngcdl"):
        stopping.stopped(store, run)


def test_what_was_killed_because_it_did_not_listen_to_a_stop_was_interrupted(store: Store) -> None:
    run = replace(RUN, engine="local", engine_id=None).noting(STOPPED)
    store.create(run)
    found = reconcile(store, run)
    assert (found.status, found.reason) == ("interrupted", "stopped by ngcdl stop")


def test_a_stop_that_takes_long_says_what_it_waits_for(store: Store, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    store.create(RUN)
    said: list[str] = []

    def stop(grace_seconds: float) -> None:
        until(lambda: len(said) >= 2, "two lines")
        Job.stop(job, grace_seconds)

    monkeypatch.setattr(job, "stop", stop)
    assert stopping.stopped(store, RUN, said.append, 0.01).status == "interrupted"
    assert {line.partition(" (")[0] for line in said} == {f"waiting for {RUN.id} to end"}
    assert all(line.endswith("; Ctrl-C only ends this command") for line in said), "the run was told to stop"


def test_a_cluster_that_does_not_answer_after_a_stop_is_waited_for_and_that_is_said(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = replace(RUN, owner=None, container="c0ffee")
    store.create(run)
    said: list[str] = []
    lost = SlurmLost("squeue", "connect failure")
    told = f"waiting for {RUN.id} to end ({lost.message.removesuffix('.')})"

    class Away(Job):
        def ended(self) -> Exit | None:
            if not any(told in line for line in said):
                raise lost
            return super().ended()

    added(monkeypatch, Away(), Kind(is_cluster=True))
    assert stopping.stopped(store, run, said.append, 0.1).status == "interrupted"
    assert any(line.startswith(f"{told} (") for line in said)


@pytest.mark.parametrize("trouble", [None, SlurmLost("squeue", "connect failure")])
@pytest.mark.parametrize("is_found", [False, True])  # Kubernetes finds a Job by its manifest, even if there is none
def test_a_job_that_a_cluster_accepts_while_its_run_is_stopped_is_stopped_when_it_turns_up(
    store: Store, monkeypatch: pytest.MonkeyPatch, is_found: bool, trouble: SlurmLost | None
) -> None:
    run = replace(RUN, owner=None, started=time.time()).noting(MAY_BE_ACCEPTED)
    store.create(run)
    looks: list[int] = []

    class Late(Job):
        def ended(self) -> Exit | None:
            if len(looks) < 4 and not self.asked:
                return Exit(None, reason="its Job is gone from the cluster")
            return super().ended()

    job = Late(until_stopped=True)

    def find(_: str) -> Job | None:
        looks.append(1)
        if trouble and len(looks) == 2:
            raise trouble
        return job if is_found or len(looks) >= 4 else None

    engine = added(monkeypatch, job, Kind(is_cluster=True))
    monkeypatch.setattr(engine, "find", find)
    done = stopping.stopped(store, run, look_seconds=0)
    assert (done.status, done.reason, done.container) == ("interrupted", "stopped by ngcdl stop", job.identity)
    assert job.asked == ["stop 10", "remove"]


@pytest.mark.parametrize("found", [Exit(143), None, "no job"])
def test_a_run_that_the_ngcdl_that_follows_it_closes_while_another_asks_its_cluster_stays_as_it_was_closed(
    store: Store, monkeypatch: pytest.MonkeyPatch, found: Exit | str | None
) -> None:
    run = replace(RUN, owner=None)
    store.create(run)
    closed = run.closed("interrupted", 143, "stopped by SIGTERM", 50.0)

    job = Job(pending="Priority")

    def ended() -> Exit | None:
        store.save(closed)
        return found if isinstance(found, Exit) else None

    monkeypatch.setattr(job, "ended", ended)
    engine = added(monkeypatch, job, Kind(is_cluster=True))
    if found == "no job":  # that ngcdl has removed it
        monkeypatch.setattr(engine, "find", lambda _: ended())
    assert (reconcile(store, run), store.load(run.id), job.asked) == (closed, closed, [])


def test_a_run_whose_job_may_not_be_removed_from_its_cluster_has_ended_all_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = replace(RUN, owner=None, container="c0ffee")
    store.create(run)

    def refuse() -> None:
        raise ClusterForbidden("no")

    job = FakeJob(exit=Exit(3, False, None, 50.0))
    monkeypatch.setattr(job, "remove", refuse)
    added(monkeypatch, job, Kind(is_cluster=True))
    found = reconcile(store, run)
    assert (found.status, found) == ("failed", store.load(run.id))
    assert found.notes == (f"The cluster may still have its job: {ClusterForbidden('no').message}",)


def test_a_job_that_a_cluster_accepted_late_and_that_may_not_be_stopped_is_an_error(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = replace(RUN, owner=None, started=time.time())
    store.create(run)
    looks: list[Job | None] = [None, Refused(until_stopped=True)]
    engine = added(monkeypatch, Job(), Kind(is_cluster=True))
    monkeypatch.setattr(engine, "find", lambda _: looks.pop(0))
    with pytest.raises(ClusterForbidden):
        stopping.stopped(store, run, look_seconds=0)


def test_a_run_that_begins_while_its_comparison_is_stopped_is_stopped_with_it(store: Store, job: Job) -> None:
    kept = StoredComparison("20180216-182120-compare-aaa111", "device", 4, (("cpu", "cpu"),), 1.0)
    store.create(RUN)
    comparisons.save(replace(kept, trials=(Trial("cpu", 1, RUN.id),)), store)
    assert [run.status for run in stopping.comparison(store, kept)] == ["interrupted"]
    assert [trial.run for trial in comparisons.load(kept.id, store).trials] == [RUN.id]


def test_of_a_comparison_the_last_is_stopped_first_and_no_other_run_begins(store: Store, job: Job) -> None:
    runs = [replace(RUN, id=f"20180216-18212{n}-test-beef0{n}") for n in (1, 2, 3)]
    for run in (replace(runs[0], status="finished"), *runs[1:]):
        store.create(run)
    trials = tuple(Trial("cpu", n, run.id) for n, run in enumerate(runs, start=1))
    kept = StoredComparison("20180216-182120-compare-aaa111", "device", 4, (("cpu", "cpu"),), 1.0, trials=trials)
    comparisons.save(kept, store)
    assert not stopping.is_over(store, kept)
    ended = []
    for run in stopping.comparison(store, kept):
        ended.append(run)
        job.asked.clear()  # the next run has its own container
    assert [run.id for run in ended] == [runs[2].id, runs[1].id]
    assert {run.status for run in ended} == {"interrupted"}
    closed = comparisons.load(kept.id, store)
    assert closed.finished is not None
    assert stopping.is_over(store, closed)
