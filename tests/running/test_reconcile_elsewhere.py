"""The record of a run on another machine or engine is left to those who can know how the run ended."""

from __future__ import annotations

import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from docker_socket import Daemon, serving
from unwatched import DEAD, ELSEWHERE, ENDED, RUN, SAID, STEP, left, quiet
from unwatched import unwatched as unwatched

from ngcdl.errors import RunElsewhere
from ngcdl.folder import EVENTS, SAMPLES
from ngcdl.record import Machine, Owner, Run
from ngcdl.running.owner import this_process
from ngcdl.running.reconcile import UNWATCHED, reconcile, still_runs
from ngcdl.running.recorded_job import unread_output
from ngcdl.storing.store import Store


@pytest.mark.parametrize(("engine_id", "status"), [("its-own", "running"), ("this-one", "lost"), (None, "lost")])
def test_a_run_of_another_engine_stays_as_it_is(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine_id: str | None, status: str
) -> None:
    """If DOCKER_HOST has changed since, a container that this engine lacks proves nothing."""
    with serving(Daemon(tmp_path / "docker.sock", info={"ID": "this-one"})) as daemon:
        monkeypatch.setenv("DOCKER_HOST", daemon.host)
        for run_id, before in (("a", "running"), ("b", "lost")):
            run = replace(RUN, id=run_id, engine="docker", container="c0ffee", engine_id=engine_id, status=before)
            found = left(store, run)
            assert found.status == ("lost" if before == "lost" else status)
            assert (found == run) == (engine_id == "its-own")


@pytest.mark.parametrize(("more", "runs"), [
    ({}, True), ({"status": "failed"}, False), ({"machine": ELSEWHERE}, False), ({"owner": DEAD}, False),
    ({"machine": ELSEWHERE, "engine": "slurm"}, True),
    ({"machine": ELSEWHERE, "owner": this_process()}, True), ({"owner": None, "machine": ELSEWHERE}, False),
])  # fmt: skip
def test_a_run_of_a_machine_that_can_t_be_asked_counts_as_dead_when_it_was_silent_for_long(
    store: Store, more: dict[str, Any], runs: bool
) -> None:
    """The home is shared by several machines, or by a new machine in place of one that was removed."""
    now = time.time()
    run = replace(RUN, **{"owner": replace(DEAD, boot=this_process().boot), "started": now - 400, **more})
    events = store.create(run) / EVENTS
    events.touch()
    assert still_runs(store, run) == (run.status == "running")
    for path in events.parent.iterdir():
        os.utime(path, (now - 400, now - 400))
    assert still_runs(store, run) == runs


def test_what_another_engine_s_container_writes_is_not_looked_for_here(unwatched: tuple[Daemon, Run, Path]) -> None:
    _, run, log = unwatched
    with log.open("rb") as file, pytest.raises(RunElsewhere) as caught:
        list(unread_output(replace(run, engine_id="its-own"), file))
    assert f"    ngcdl logs -f {run.id}" in caught.value.hint
    assert "stopped" not in caught.value.hint


@pytest.mark.parametrize(
    ("last", "status", "owner"),
    [(STEP, "running", DEAD), ({"event": "finish", "t": 9.0, "step": 4}, "finished", None)],
)
def test_a_run_of_another_machine_that_is_quiet_is_closed_where_its_trainer_told_its_end(
    store: Store, last: dict[str, Any], status: str, owner: Owner | None
) -> None:
    """If several machines share a home, the run's own machine may still learn how the run ended."""
    run = left(store, replace(RUN, started=time.time(), machine=ELSEWHERE), last)
    assert (run.status, run.owner) == ("running", DEAD)
    found = reconcile(store, quiet(store, run))
    assert (found.status, found.owner) == (status, owner)


@pytest.mark.parametrize(("more", "quiet_seconds", "status"), [
    ({}, 0, "running"), ({}, 29, "running"), ({}, 33, "lost"),
    ({"spec": {"sample_seconds": 30.0}}, 33, "running"),
    ({"reason": "waits since 2026-11-29 02:47 for 1 free GPU"}, 1000, "running"),
])  # fmt: skip
def test_a_run_whose_ngcdl_is_in_another_sandbox_goes_on_while_that_writes_samples_or_waits(
    store: Store, more: dict[str, Any], quiet_seconds: float, status: str
) -> None:
    """The sandbox of an editor, and many a dev container, have home and hostname of the host, but PIDs of their own."""
    owner = replace(this_process(), namespace="pid:[1]")
    run = replace(RUN, owner=owner, started=time.time() - 1000, machine=Machine(socket.gethostname()), **more)
    samples = store.create(run) / SAMPLES
    samples.touch()
    os.utime(samples, (time.time() - quiet_seconds,) * 2)
    assert reconcile(store, run).status == status


def test_a_container_is_asked_for_though_its_machine_is_called_otherwise_by_now(
    store: Store, unwatched: tuple[Daemon, Run, Path]
) -> None:
    daemon, run, log = unwatched
    daemon.state = {"Running": True}
    run = quiet(store, run, "this-one")
    assert reconcile(store, run) == run.noting(UNWATCHED), "a command may have nothing to say"
    daemon.state = ENDED
    found = reconcile(store, run)
    assert (found.status, found.exit_code, found.owner) == ("failed", 1, None)
    assert (log.read_bytes(), daemon.state) == (SAID, None)


@pytest.mark.parametrize(("engine_id", "is_written"), [("its-own", False), (None, False), ("this-one", True)])
def test_a_run_of_another_machine_s_engine_or_watcher_is_left_to_it(
    store: Store, unwatched: tuple[Daemon, Run, Path], engine_id: str | None, is_written: bool
) -> None:
    daemon, run, log = unwatched
    run = quiet(store, run, engine_id)
    if is_written:
        log.with_name(SAMPLES).touch()
    assert reconcile(store, run) == run
    assert daemon.state == ENDED
