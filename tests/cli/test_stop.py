"""`ngcdl stop`: what can be stopped from here, and what can't."""

from __future__ import annotations

import os
import time

import pytest
from house import House, until

from ngcdl.record import Machine, Owner, Run
from ngcdl.running.owner import this_process
from ngcdl.storing import comparisons
from ngcdl.storing.comparisons import StoredComparison


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
        lines += "  All of them:\n      ngcdl stop --all\n" if count > 1 else ""
        assert done.stderr == f"ngcdl: stop: which run? {said}\n{lines}"
        assert house.store.load(run_id).status == "running"


def test_all_are_stopped_after_one_question_and_those_that_can_t_be_are_named(house: House) -> None:
    assert house.run("stop", "--all", "--yes").stderr == "ngcdl: nothing is running\n"
    both = "touch $$.told; until [ $(ls *.told | wc -l) = 2 ]; do sleep 0.05; done; exit 7"  # needs to be at once
    for _ in range(2):
        house.popen("run", "--", "sh", "-c", f"trap '{both}' TERM; touch $$.up; sleep 3600 & wait")
    its = until(lambda: len(house.store.ids()) == 2 and house.store.ids())
    until(lambda: all(house.store.load(one).container for one in its) and len([*house.home.glob("*.up")]) == 2)
    there = Machine(hostname="node7")
    house.store.create(Run("there", "running", time.time(), engine="local", owner=Owner(1, 5), machine=there))
    house.store.create(Run("composed", "running", time.time(), engine="compose"))
    kept = StoredComparison("20260101-000000-compare-aaa001", "x", 2, (("a", None),), 1.0, owner=this_process())
    comparisons.save(kept, house.store)
    done = house.run("stop", "--all")
    assert (done.returncode, done.stdout, done.stderr.endswith("ngcdl stop --all --yes\n")) == (2, "", True)
    assert house.run("stop", "last", "-a").returncode == 2
    code, seen = house.answer("stop", "--all", answer="n\n")
    assert (code, "nothing was stopped" in seen, "local on node7" in seen) == (0, True, True)
    assert {house.store.load(one).status for one in its} == {"running"}
    code, seen = house.answer("stop", "-a", answer="y\n")
    assert (code, comparisons.load(kept.id, house.store).remarks) == (125, (comparisons.STOPPED,))
    assert {(run.status, run.exit_code) for run in map(house.store.load, its)} == {("interrupted", 7)}
    for said in (*its, f"{kept.id}: no further run of it starts", "runs on node7", "not stopped: there, composed"):
        assert said in seen
