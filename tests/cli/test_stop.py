"""`ngcdl stop`: what can be stopped from here, and what can't."""

from __future__ import annotations

import os
import time

import pytest
from house import House

from ngcdl.record import Run
from ngcdl.running.owner import this_process


def test_a_run_that_has_ended_can_t_be_stopped_and_that_is_no_error(kept: House) -> None:
    done = kept.run("stop", "last")
    assert done.returncode == 0
    assert "already ended: finished" in done.stderr


def test_a_run_that_compose_started_is_not_stopped_and_that_is_an_error(house: House) -> None:
    house.store.create(Run("x", "running", time.time(), engine="compose"))
    done = house.run("stop", "x")
    assert (done.returncode, done.stdout) == (125, "")
    assert "x was started by compose, not by ngcdl, which can't stop it." in done.stderr
    assert "docker compose stop" in done.stderr


@pytest.mark.parametrize(("engine", "remedy"), [("kubernetes", "use-context west"), ("slurm", "talks to west")])
def test_a_run_on_another_cluster_is_not_stopped_from_here_nor_a_job_of_its_number(
    house: House, engine: str, remedy: str
) -> None:
    folder = house.store.create(Run("x", "running", 1.0, engine=engine, engine_id="west", container="slurm:7"))
    (folder / "job.yaml").write_text("kind: Job\nmetadata:\n  name: x\n")
    programs, asked = house.home / "bin", house.home / "asked"
    programs.mkdir()
    says = {"kubectl": "east", "scontrol": "ClusterName = east", "squeue": "RUNNING|", "scancel": ""}
    for name, words in says.items():
        (programs / name).write_text(f"#!/bin/sh\necho {name} $* >>{asked}\necho '{words}'\n")
        (programs / name).chmod(0o755)
    done = house.run("stop", "x", env={"PATH": f"{programs}:{os.environ['PATH']}"})
    assert (done.returncode, done.stdout) == (125, "")
    assert remedy in done.stderr
    assert set(asked.read_text().splitlines()) in (
        {"kubectl --request-timeout=30s config current-context"}, {"scontrol show config"}
    )  # fmt: skip
    assert house.store.load("x").notes == ()


def test_a_run_of_an_image_called_compare_is_stopped_as_a_run(house: House) -> None:
    run_id = "20180216-182126-compare-x-beef01"
    house.store.create(Run(run_id, "finished", 1.0, exit_code=0))
    for name in (run_id, "compare-x-beef01"):
        done = house.run("stop", name)
        assert (done.returncode, f"{run_id} has already ended: finished" in done.stderr) == (0, True), done.stderr
    assert "There is no comparison" in house.run("stop", "20180216-182126-compare-beef02").stderr


def test_a_stop_without_a_name_names_what_is_running_and_stops_nothing(house: House) -> None:
    assert house.run("stop").stderr == "ngcdl: stop: which run? None is running.\n      ngcdl runs\n"
    ids = ["20260102-000000-cifar10-aaa001", "20260101-000000-cifar10-aaa002"]
    house.store.create(Run("20260103-000000-cifar10-aaa003", "finished", 1.0, 2.0, 0))
    for count, run_id in enumerate(ids, 1):
        spec = {"workload": {"name": "cifar10"}}
        house.store.create(Run(run_id, "running", time.time(), engine="local", owner=this_process(), spec=spec))
        done = house.run("stop")
        assert (done.returncode, done.stdout) == (2, "")
        said = "One is running: cifar10." if count == 1 else "2 are running."
        lines = "".join(f"      ngcdl stop {one}\n" for one in ids[:count])
        assert done.stderr == f"ngcdl: stop: which run? {said}\n{lines}"
        assert house.store.load(run_id).status == "running"
