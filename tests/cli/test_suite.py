"""`ngcdl suite`: each experiment is run, or reported as skipped and why."""

from __future__ import annotations

import json
import re
import signal
import socket
from pathlib import Path

import pytest
from house import TRAIN, House
from made_arms import arm

from ngcdl import trainings
from ngcdl.cli.suite import Experiment, estimates, estimates_in_words, experiments, is_failure, pace, too_late
from ngcdl.cli.typed import Typed
from ngcdl.errors import BadOption
from ngcdl.report.compared.comparison import Comparison, comparison
from ngcdl.report.measured.expected import ASSUMED_FLOPS, ASSUMED_SECONDS
from ngcdl.running.ending import TIME_IS_UP

ARTICLES = ("suite", "articles", "--engine", "local", "--data", "synthetic", "--repeat", "1", "--steps", "31")
NO_CARDS = "skipped, this host has no NVIDIA driver: scaling, gpus=1,2"


def test_the_experiments_that_there_are_run_each_with_its_own_question(trained: House) -> None:
    done = trained.run(*ARTICLES, "--json")
    assert done.returncode == 0, done.stderr
    outcomes = {outcome["workload"]: outcome for outcome in json.loads(done.stdout)}
    assert set(outcomes) <= set(trainings.names())
    assert {name: one["vary"] for name, one in outcomes.items()} == {
        name: trainings.bundled(name).vary for name in outcomes
    }
    assert {"cifar10", "cifar10-keras", "catdog"} <= set(outcomes)
    for name in ("cifar10", "cifar10-keras", "catdog"):
        assert outcomes[name]["verdict"] == "Only the CPU was measured: 512.0 examples/s."
    kept = outcomes["cifar10"]["comparison"]["id"]
    assert trained.run("compare", "--show", kept).returncode == 0
    lacking = {name: outcome["skipped"] for name, outcome in outcomes.items() if not outcome["comparison"]}
    assert set(lacking) <= {"scaling"}, "this machine has not the cards, which is no fault"
    runs = [
        run for name in outcomes.keys() - lacking for arm in outcomes[name]["comparison"]["arms"] for run in arm["runs"]
    ]
    assert sorted(runs) == sorted(trained.store.ids())
    assert done.stderr.count("for CPU against GPU (cifar10, cifar10-keras, catdog) only the CPU is measured") == 1
    assert "the GPU can't be measured here" not in done.stderr, "it is said once, for all of them"


def test_what_the_time_does_not_suffice_for_is_said_with_what_was_expected(trained: House) -> None:
    done = trained.run(*ARTICLES, "--budget", "0.00001")
    assert done.returncode == 0
    said = [line for line in done.stdout.splitlines() if line != NO_CARDS]
    assert said[0].startswith("skipped, the budget of 1e-05 min was used up: cifar10, CPU against GPU; ")
    assert len(said) == 1, "one line for all that have the same reason"
    assert "estimates, from the operation counts alone; what has to be fetched first comes on top:" in done.stderr
    assert re.search(r"  cifar10, CPU against GPU: \d+ s; not within the 1e-05 min", done.stderr)
    assert trained.store.ids() == []
    at = ARTICLES.index("local")
    of_nodes = trained.run(*ARTICLES[:at], "slurm", *ARTICLES[at + 1 :], "--budget", "0.00001")
    assert "scaling, gpus=1,2" in of_nodes.stdout, of_nodes.stderr
    assert "NVIDIA" not in of_nodes.stdout + of_nodes.stderr, "which cards its nodes have, this machine can't tell"


def test_what_probably_no_longer_fits_is_skipped_and_what_does_is_run(trained: House) -> None:
    assert trained.run(*TRAIN).returncode == 0, "it says how fast this machine is"
    done = trained.run(*ARTICLES, "--budget", "1")
    assert done.returncode == 0, done.stderr
    told = "cifar10, CPU against GPU, on SYNTHETIC data: Only the CPU was measured: 512.0 examples/s."
    assert (told in done.stdout, told in done.stderr) == (True, True)
    (skipped,) = [line for line in done.stdout.splitlines() if line.startswith("skipped") and line != NO_CARDS]
    assert skipped.startswith("skipped, the budget of 1 min was probably no longer enough: ")
    assert "catdog, CPU against GPU" in skipped, "its pictures cost 300 times as much"


@pytest.mark.parametrize(("left", "needed", "said"), [
    (0.0, None, "was used up"), (-1.0, 5.0, "was used up"), (5.0, None, None),
    (5.0, 5.0, None), (5.0, 5.1, "was probably no longer enough"),
])  # fmt: skip
def test_an_experiment_begins_only_where_what_is_left_suffices(
    left: float, needed: float | None, said: str | None
) -> None:
    assert too_late(left, needed) == said


def test_the_run_under_way_is_stopped_when_the_time_is_up_and_that_is_no_failure(trained: House) -> None:
    done = trained.run(*ARTICLES, "--budget", "0.05", "--json", env={"STAND_IN": "wait"})
    assert done.returncode == 0, done.stderr
    (first, *others) = json.loads(done.stdout)
    assert {one["skipped"] for one in others if one["workload"] != "scaling"} == {"the budget of 0.05 min was used up"}
    runs = [trained.store.load(run) for run in trained.store.ids()]
    assert [run.status for run in runs] in ([], ["interrupted"]), "a busy machine may not even have begun"
    if first["comparison"]:
        assert "the time is up: not all its runs were finished" in first["comparison"]["diagnosis"]
    else:
        assert (first["skipped"], runs) == ("the budget of 0.05 min was used up", [])


def test_an_experiment_that_fails_does_not_end_the_others_and_the_exit_code_tells(trained: House) -> None:
    done = trained.run(*ARTICLES, "--json", env={"STAND_IN": "fail"})
    assert done.returncode == 1
    tried = [outcome for outcome in json.loads(done.stdout) if outcome["comparison"]]
    assert len(tried) >= 3
    assert {outcome["comparison"]["refused"][0]["field"] for outcome in tried} == {"status"}


@pytest.mark.parametrize("words", [
    ("suite", "table9"), (*ARTICLES, "--budget", "0"), (*ARTICLES, "--repeat", "0"), (*ARTICLES, "--budget", "inf"),
    (*ARTICLES, "--budget", "nan"), (*ARTICLES, "--budget", "1e8"), (*ARTICLES, "--steps", "3"),
])  # fmt: skip
def test_a_suite_that_can_t_be_meant_is_refused(trained: House, words: tuple[str, ...]) -> None:
    done = trained.run(*words)
    assert (done.returncode, done.stdout, "estimates" in done.stderr) == (2, "", False)
    assert trained.store.ids() == []


def test_what_no_experiment_can_do_without_is_advised_once(trained: House) -> None:
    done = trained.run("suite", "articles", "--engine", "docker", env={"DOCKER_HOST": "unix:///nonexistent"})
    assert (done.returncode, done.stderr.count("    unset DOCKER_HOST\n")) == (1, 1)
    assert "skipped, No Docker engine answers at unix:///nonexistent: there is no socket: cifar10, CPU" in done.stdout


def test_table_7_is_a_sweep_of_threads_and_cpu_against_gpu_of_seven_networks() -> None:
    listed = experiments("table7", 6, None)
    assert {one.device for one in listed if one.vary} == {"cpu"}
    assert len(listed) == 14
    assert {one.vary for one in listed} == {"threads=1,2,4", None}
    assert not [one.skip for one in listed if one.workload in trainings.names() and one.skip]
    bare = experiments("table7", 1, "this machine has no NVIDIA GPU")
    assert {one.skip for one in bare} == {"this machine has one processor", "this machine has no NVIDIA GPU"}
    with pytest.raises(BadOption, match="articles or table7"):
        experiments("mine", 1, None)


def test_what_wants_a_gpu_is_left_out_where_none_was_asked_for_and_the_rest_is_told(trained: House) -> None:
    words = ("suite", "table7", "--engine", "local", "--repeat", "1", "--steps", "31", "--gpus", "none")
    done = trained.run(*words)
    assert done.returncode == 0, done.stderr
    (skipped,) = [line for line in done.stdout.splitlines() if line.startswith("skipped")]
    assert skipped.startswith("skipped, no GPU was asked for: alexnet-r, CPU against GPU; ")
    assert skipped.count("CPU against GPU") == 7


def test_an_estimate_counts_the_arms_with_their_batches_and_the_rounds(house: House) -> None:
    tiny = Experiment("cifar10", "batch=8,64")
    both = Experiment("cifar10")
    skipped = Experiment("catdog", skip="no")
    typed = Typed(steps=100)
    found = estimates([tiny, both, skipped], typed, 2, pace(house.store), "no GPU")
    flops = trainings.bundled("cifar10").flops_per_example
    assert found == {
        tiny: pytest.approx(2 * (2 * ASSUMED_SECONDS + 100 * 72 * flops / ASSUMED_FLOPS["cpu"])),
        both: pytest.approx(2 * (ASSUMED_SECONDS + 100 * 128 * flops / ASSUMED_FLOPS["cpu"])),
    }
    said = list(estimates_in_words([tiny, both, skipped], {tiny: 50.0, both: 30.0}, 1.0, is_measured=True))
    assert said == [
        "estimates, from the operation counts and earlier trainings here:",
        "  cifar10, batch=8,64: 50 s; within the 1 min", "  cifar10, CPU against GPU: 30 s; not within the 1 min"
    ]  # fmt: skip


def test_a_signal_during_a_preparation_leaves_the_summary_of_what_ran_and_what_did_not(
    trained: House, tmp_path: Path
) -> None:
    with socket.socket(socket.AF_UNIX) as silent:  # the first experiment waits for a Docker that never answers
        silent.bind(str(tmp_path / "d.sock"))
        silent.listen()
        silent.settimeout(60)
        words = ("suite", "articles", "--engine", "docker", "--data", "synthetic")
        env = {"DOCKER_HOST": f"unix://{tmp_path}/d.sock"}
        with trained.popen(*words, env=env) as process, silent.accept()[0]:
            process.send_signal(signal.SIGTERM)
            out, err = process.communicate(timeout=240)
    assert (process.returncode, "Traceback" in err) == (143, False), err
    assert "skipped, stopped: cifar10, CPU against GPU; " in out


def test_an_error_before_the_time_was_up_is_a_failure_and_running_out_of_time_is_not() -> None:
    def ended(status: str, reason: str) -> Comparison:
        return comparison([arm("cpu", None, status=status, reason=reason)], "device", ())

    late, failed = ended("interrupted", TIME_IS_UP), ended("failed", "exit code 1")
    assert [is_failure(late, True), is_failure(failed, True), is_failure(late, False)] == [False, True, True]
