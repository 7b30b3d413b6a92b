"""Later commands ask a run's cluster how the run ended, as soon as the cluster can know the run."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest
from house import TRAIN, House
from stand_ins import stand_in
from unwatched import RUN
from unwatched import house as house

from ngcdl.engines.slurm.script import job_name
from ngcdl.record import Run
from ngcdl.running.reconcile import SUBMISSION_SECONDS, reconcile, standing
from ngcdl.storing.store import Store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    (tmp_path / "bin").mkdir()
    return Store(tmp_path / "ngcdl" / "runs")


@pytest.mark.parametrize("command", [("runs",), ("runs", "--json"), TRAIN])
def test_a_cluster_that_does_not_answer_is_asked_once_by_a_command_and_said(
    house: House, command: tuple[str, ...]
) -> None:
    for run_id in ("20180216-182126-a-beef", "20180216-182127-b-beef", "20180216-182128-c-beef"):
        folder = house.store.create(replace(RUN, id=run_id, engine="kubernetes", owner=None, engine_id="lab"))
        (folder / "job.yaml").write_text(f"kind: Job\nmetadata:\n  name: {run_id}\n")
    kubectl, asked = house.home / "bin/kubectl", house.home / "asked"
    kubectl.parent.mkdir()
    kubectl.write_text(
        f'#!/bin/sh\nif [ "$2" = config ]; then echo lab; exit; fi\necho "$*" >>{asked}\n'
        "echo 'Unable to connect to the server: dial tcp 10.0.0.1:6443: i/o timeout' >&2\nexit 1\n"
    )
    kubectl.chmod(0o755)
    done = house.run(*command, env={"PATH": f"{kubectl.parent}:{os.environ['PATH']}"})
    assert done.returncode == 0, done.stderr
    assert len(asked.read_text().splitlines()) == 1
    assert done.stderr.count("No Kubernetes cluster answers") == 1
    assert all(house.store.load(run_id).status == "running" for run_id in house.store.ids() if run_id < "2019")


def test_a_cluster_is_asked_ever_less_often_and_at_once_where_an_end_was_written(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = house.store.create(Run("x", "running", 1.0, engine="kubernetes", engine_id="west"))
    (folder / "job.yaml").write_text("kind: Job\nmetadata:\n  name: x\n")
    kubectl, asked, now = house.home / "bin/kubectl", house.home / "asked", [0.0]
    kubectl.parent.mkdir()
    kubectl.write_text(
        f'#!/bin/sh\necho "$*" >>{asked}\n[ "$2" != config ] || exec echo west\n'
        """echo '{"items": [{"kind": "Job", "metadata": {"name": "x"}}]}'\n"""
    )
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(kubectl.parent), prepend=":")
    monkeypatch.setenv("XDG_STATE_HOME", str(house.home / "state"))

    def looks() -> int:
        return asked.read_text().count("config current-context")

    def sleep(seconds: float) -> None:
        now[0] += seconds

    told = standing(house.store, "x", lambda: now[0], sleep)
    while next(told).status == "running" and now[0] < 60:
        pass
    before = looks()
    assert 8 <= before <= 12, "pauses of 0.5 s, each half as long again, up to 15 s"
    (folder / "exit.json").write_text("{}")
    assert next(told).status == "running", "its Job says when it is over"
    assert looks() == before + 1


@pytest.mark.parametrize(("seconds", "status"), [(1, "running"), (SUBMISSION_SECONDS + 1, "interrupted")])
def test_a_run_that_is_being_submitted_to_kubernetes_is_left_to_whoever_submits_it(
    store: Store, tmp_path: Path, seconds: float, status: str
) -> None:
    """The manifest is written before the Job is created, so a missing Job proves nothing."""
    asked = tmp_path / "asked"
    stand_in(
        tmp_path / "bin",
        "kubectl",
        f'echo "$*" >>{asked}\n[ "$2" != config ] || exec echo lab\necho \'{{"items": []}}\'',
    )
    run = Run("x", "running", time.time() - seconds, engine="kubernetes", engine_id="lab")
    (store.create(run) / "job.yaml").write_text("kind: Job\nmetadata:\n  name: x\n")
    asked.touch()
    found = reconcile(store, run)
    assert found.status == status
    assert (found == run) == (status == "running")
    assert (" delete " in asked.read_text()) == (status != "running")


@pytest.mark.parametrize(("seconds", "status"), [
    (1, "running"), (-60, "running"), (SUBMISSION_SECONDS + 1, "lost"), (-3600, "lost"),
])  # fmt: skip
def test_a_run_that_is_being_submitted_to_slurm_is_left_to_whoever_submits_it(
    store: Store, tmp_path: Path, seconds: float, status: str
) -> None:
    for program in ("scontrol", "squeue", "sacct"):
        stand_in(tmp_path / "bin", program, "")
    run = Run("x", "running", time.time() - seconds, engine="slurm")
    store.create(run)
    assert reconcile(store, run).status == status
    assert store.load(run.id).status == status


def test_a_job_whose_submission_nobody_waited_for_is_found_by_its_name(store: Store, tmp_path: Path) -> None:
    said = f'case "$*" in *--name={job_name("x")}*) echo 4711;; *) echo "PENDING|Priority";; esac'
    stand_in(tmp_path / "bin", "squeue", said)
    stand_in(tmp_path / "bin", "scontrol", "")
    run = Run("x", "running", 1.0, engine="slurm")
    store.create(run)
    found = reconcile(store, run)
    assert (found.status, found.container) == ("running", "slurm:4711")
    assert "other jobs are ahead of it" in (found.reason or "")
    assert reconcile(store, replace(found, reason=None)) == found
