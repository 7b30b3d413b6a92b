"""Comparisons on a real two-node Slurm: all submitted at once, run one at a time, if need be without ngcdl."""

from __future__ import annotations

import json
import signal
from typing import Any

import pytest
from cluster_user import IMAGE, Someone
from house import until

pytestmark = pytest.mark.lab

COMPARE = ("compare", IMAGE, "--train", "cifar10", "--engine", "slurm", "--data", "synthetic")
NODES = (*COMPARE, "--gpus", "none", "--vary", "nodes=1,2", "--repeat", "2")


def shown(someone: Someone, name: str = "last") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(someone.run("compare", "--show", name, "--json").stdout)
    return found


def in_records(someone: Someone) -> list[str | None]:
    """Return the job of each run, None if its record does not have it yet."""
    return [someone.store.load(run).container for run in someone.store.ids()]


def test_all_runs_of_a_comparison_wait_for_each_other_and_end_in_order_also_where_ngcdl_was_killed(
    someone: Someone,
) -> None:
    go = someone.home / "go"
    process = someone.popen(*NODES, env={"STAND_IN": "go", "STAND_IN_GO": str(go)})
    until(lambda: len(jobs := in_records(someone)) == 4 and all(jobs), "the last job, in its record")
    assert someone.slurm("squeue", "-h", "-o", "%T %r").count("Dependency") == 3
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=240)
    assert "it is still running: 0 of 4 runs have ended" in someone.run("compare", "--show", "last").stdout
    go.touch()
    found = until(lambda: (it := shown(someone))["ratio"] and it["ratio"]["pairs"] == 2 and it, "the end")
    assert (found["vary"], found["scaling"], found["ratio"]["arm"], found["refused"]) == (
        "nodes", "strong", "nodes=2", []
    )  # fmt: skip
    runs = [trial["run"] for trial in found["trials"]]
    assert [trial["arm"] for trial in found["trials"]] == ["nodes=1", "nodes=2", "nodes=2", "nodes=1"]
    ended = [json.loads((someone.folder(run) / "exit.json").read_text())["t"] for run in runs]
    began = [someone.events(run)[0]["t"] for run in runs]
    assert all(end <= begin for end, begin in zip(ended, began[1:], strict=False)), "one at a time"


def test_a_comparison_that_was_left_to_slurm_is_stopped_as_a_whole(someone: Someone) -> None:
    left = someone.run(*NODES, "--detach", env={"STAND_IN": "wait"})
    assert left.returncode == 0, left.stderr
    name = left.stdout.strip()
    first, *others = [trial["run"] for trial in shown(someone, name)["trials"]]
    someone.begun(first)
    assert someone.run("stop", name).stderr.count("stopped by ngcdl stop") == 4
    assert someone.events(first)[-1]["kind"] == "interrupted"
    assert [someone.events(run) for run in others] == [[], [], []], "none of them began"
    someone.sees_an_empty_queue()  # Slurm completes the first yet


def test_ctrl_c_ends_the_run_under_way_and_withdraws_the_others(someone: Someone) -> None:
    process = someone.popen(*NODES, env={"STAND_IN": "wait"})
    until(lambda: len(jobs := in_records(someone)) == 4 and all(jobs), "the last job, in its record")
    someone.begun(shown(someone)["trials"][0]["run"])
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    assert "nodes=1 was interrupted" in out
    someone.sees_an_empty_queue()
    runs = [trial["run"] for trial in shown(someone)["trials"]]
    assert {someone.record(run)["status"] for run in runs} == {"interrupted"}
    assert [someone.events(run) for run in runs[1:]] == [[], [], []], "none of them began"


@pytest.mark.parametrize("words", [("--gpus", "none", "--vary", "nodes=1,4"), ("--vary", "gpus=1,9")])
def test_more_than_the_cluster_has_is_told_with_what_there_is_before_anything_starts(
    someone: Someone, words: tuple[str, ...]
) -> None:
    done = someone.run(*COMPARE, *words)
    assert (done.returncode, done.stdout) == (125, "")
    assert "Requested node configuration is not available" in done.stderr
    assert "main*: 2 nodes, " in done.stderr
    assert someone.store.ids() == []
