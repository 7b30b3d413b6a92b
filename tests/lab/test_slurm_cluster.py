"""The lab's Slurm is a real one: it schedules, counts GPUs, cancels, keeps exit codes, and loses nodes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from house import until
from lab_parts.slurm import Cluster

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def cluster(lab: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("slurm") / "c", Path(lab["cache"])) as found:
        yield found


class Commands:
    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder

    def __call__(self, *words: str, fails: bool = False) -> str:
        done = subprocess.run(
            words, capture_output=True, text=True, timeout=240, cwd=self.folder,
            env={**os.environ, **self.cluster.environment()}, check=False,
        )  # fmt: skip
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else done.stdout.strip()

    def batch(self, script: str, *options: str) -> str:
        (self.folder / "job.sh").write_text(f"#!/bin/bash\n{script}\n")
        return self("sbatch", "--parsable", "--output=out.txt", *options, "job.sh")

    def wait(self, job: str, *states: str) -> str:
        squeue = ("squeue", "-h", "-t", "all", "-j", job, "-o", "%T")
        return str(until(lambda: (state := self(*squeue)) in states and state, f"job {job} {states}"))

    @property
    def out(self) -> str:
        return (self.folder / "out.txt").read_text()


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path) -> Commands:
    cluster.wait_idle()
    return Commands(cluster, tmp_path)


def test_a_job_of_two_nodes_gets_a_gpu_on_each(run: Commands) -> None:
    job = run.batch("srun bash -c 'echo $SLURMD_NODENAME gpu $CUDA_VISIBLE_DEVICES'", "-N2", "--gres=gpu:1")
    assert run.wait(job, "COMPLETED", "FAILED") == "COMPLETED"
    assert sorted(run.out.split("\n")) == ["", "n1 gpu 0", "n2 gpu 0"]


def test_what_no_node_has_is_refused_at_once(run: Commands) -> None:
    assert "not available" in run("sbatch", "-N1", "--gres=gpu:99", "--wrap", "true", fails=True)


def test_a_job_is_cancelled_and_another_s_exit_code_is_kept(run: Commands) -> None:
    long = run.batch("srun sleep 300", "-N2")
    run.wait(long, "RUNNING")
    run("scancel", long)
    run.wait(long, "CANCELLED")
    failed = run.batch("exit 3")
    run.wait(failed, "FAILED")
    assert "ExitCode=3:0" in run("scontrol", "show", "job", failed)


def test_the_options_of_pyxis_reach_every_node_and_what_they_say_is_written_down(run: Commands) -> None:
    run("srun", "-N2", "--container-image=nvcr.io#nvidia/pytorch:1", f"--container-mounts={run.folder}:/x:ro", "true")
    lines = [
        dict(word.split("=", 1) for word in line.split("\t")) for line in run.cluster.record.read_text().splitlines()
    ]
    assert sorted(line["node"] for line in lines) == ["n1", "n2"]
    assert {line["container-image"] for line in lines} == {"nvcr.io#nvidia/pytorch:1"}
    refused = run("srun", "--container-image=x", "--container-mounts=/nowhere:/x", "true", fails=True)
    assert "does not exist: /nowhere" in refused


def test_a_node_that_dies_is_noticed_its_job_queued_again_and_finished_by_the_next(run: Commands) -> None:
    script = """echo start ${SLURM_RESTART_COUNT:-0}
        srun --kill-on-bad-exit=1 bash -c 'echo began
            [ ${SLURM_RESTART_COUNT:-0} != 0 ] || sleep 300 || exit; echo done'
        code=$?
        [ $code = 0 ] || [ ${SLURM_RESTART_COUNT:-0} -gt 1 ] || scontrol requeue $SLURM_JOB_ID
        exit $code"""
    job = run.batch(script, "-N2", "--requeue", "--open-mode=append")
    until(lambda: (run.folder / "out.txt").exists() and run.out.count("began") == 2, "its tasks")
    run.cluster.kill_node("n2")
    run.wait(job, "PENDING")
    run.cluster.start_node("n2")
    run.cluster.wait_idle()
    # Slurm delays it by two minutes; within a second of the first attempt's end a node refuses: Job credential revoked
    run("scontrol", "update", f"JobId={job}", "StartTime=now+10")
    run.wait(job, "COMPLETED")
    assert run.out.count("done") == 2
    assert "start 1" in run.out
