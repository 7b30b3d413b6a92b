"""`ngcdl suite`: each experiment is run, or said to be left out and why."""

from __future__ import annotations

import json

import pytest
from house import House

from ngcdl import plan
from ngcdl.cli.suite import experiments
from ngcdl.errors import BadOption

SEEDS = ("suite", "seeds", "--engine", "local", "--data", "synthetic", "--repeat", "1", "--steps", "31")


def test_the_experiments_that_are_workloads_run_and_the_others_are_said(trained: House) -> None:
    done = trained.run(*SEEDS, "--json")
    assert done.returncode == 0, done.stderr
    outcomes = {outcome["workload"]: outcome for outcome in json.loads(done.stdout)}
    for name in ("cifar10", "cifar10-keras", "catdog"):
        assert outcomes[name]["verdict"] == "Only the CPU was measured: 512.0 examples/s."
        assert trained.run("compare", "--show", outcomes[name]["comparison"]["id"]).returncode == 0
    for name in set(outcomes) - set(plan.workloads()):
        assert outcomes[name]["skipped"] == "this ngcdl has no such workload"
    assert len(trained.shelf.ids()) == sum(1 for outcome in outcomes.values() if outcome["comparison"])


def test_what_the_time_does_not_suffice_for_is_said(trained: House) -> None:
    done = trained.run(*SEEDS, "--budget", "0.00001")
    assert done.returncode == 0
    assert "cifar10, CPU against GPU: skipped, the budget of 1e-05 min was used up" in done.stdout
    assert "skipped" not in done.stderr, "what did not run is told once, at the end"
    assert "published: 7.81 times, GeForce GTX 1050 Ti against Intel Xeon" in done.stdout
    assert trained.shelf.ids() == []


def test_an_experiment_that_fails_does_not_end_the_others_and_the_exit_code_tells(trained: House) -> None:
    done = trained.run(*SEEDS, "--json", env={"STAND_IN": "fail"})
    assert done.returncode == 1
    tried = [outcome for outcome in json.loads(done.stdout) if outcome["comparison"]]
    assert len(tried) >= 3
    assert {outcome["comparison"]["refused"][0]["field"] for outcome in tried} == {"status"}


@pytest.mark.parametrize("words", [("suite", "table9"), (*SEEDS, "--budget", "0"), (*SEEDS, "--gpus", "none")])
def test_a_suite_that_can_t_be_meant_is_refused(trained: House, words: tuple[str, ...]) -> None:
    done = trained.run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert trained.shelf.ids() == []


def test_table_7_is_a_sweep_of_threads_and_cpu_against_gpu_of_seven_networks() -> None:
    listed = experiments("table7", 6, None)
    assert len(listed) == 14
    assert {one.vary for one in listed} == {"threads=1,2,4", None}
    assert not [one.skip for one in listed if one.workload in plan.workloads() and one.skip]
    bare = experiments("table7", 1, "this machine has no NVIDIA GPU")
    assert {one.skip for one in bare} == {"this machine has one processor", "this machine has no NVIDIA GPU"}
    with pytest.raises(BadOption, match="seeds and table7"):
        experiments("mine", 1, None)


def test_what_wants_a_gpu_is_left_out_where_none_was_asked_for_and_the_rest_is_told(trained: House) -> None:
    words = ("suite", "table7", "--engine", "local", "--repeat", "1", "--steps", "31", "--gpus", "none", "--json")
    done = trained.run(*words)
    assert done.returncode == 0, done.stderr
    skipped = {one["experiment"]: one["skipped"] for one in json.loads(done.stdout) if one["vary"] is None}
    assert len(skipped) == 7
    assert set(skipped.values()) == {"no GPU was asked for"}
