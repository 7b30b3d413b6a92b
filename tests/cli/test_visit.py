"""`ngcdl exec`: which runs can't be entered from here, each with what to type instead."""

from __future__ import annotations

import os
import time

import pytest
from house import House

from ngcdl.record import Run
from ngcdl.running.owner import this_process

MINE = this_process()
SRUN = "    srun --jobid=7 --overlap --nodes=1 --ntasks=1 --pty"


@pytest.mark.parametrize(("run", "said", "to_type"), [
    (Run("x", "finished", 1.0, exit_code=0), "it has ended.", "    ngcdl show x\n"),
    (Run("x", "running", 1.0, engine="docker", owner=MINE, reason="waits for a card"), "it has not started: waits",
     "    ngcdl show x\n"),
    (Run("x", "running", 1.0, engine="local", owner=MINE), "it has no container.", "    ngcdl show x --watch 1\n"),
    (Run("x", "running", time.time(), engine="compose"), "compose started it",
     "    docker compose exec SERVICE bash\n"),
    (Run("x", "running", 1.0, engine="slurm", container="slurm:7"), "only the cluster's own program", f"{SRUN} bash\n"),
    (Run("x", "running", 1.0, engine="slurm", container="slurm:7", spec={"placement": {"container": "podman"}}),
     "only the cluster's own program", f"{SRUN} podman exec -it ngcdl-7-0 nvidia-smi -L\n"),
    (Run("x", "running", 1.0, engine="kubernetes", container="kubernetes:ml/x"), "only the cluster's own program",
     "    kubectl exec -it --namespace=ml job/ngcdl-x -c run -- nvidia-smi -L\n"),
    (Run("x", "running", 1.0, engine="slurm", engine_id="west", container="slurm:7"), "on another engine",
     "    ngcdl exec x\n"),
])  # fmt: skip
def test_a_run_that_can_t_be_entered_is_told_with_what_to_type(house: House, run: Run, said: str, to_type: str) -> None:
    folder = house.store.create(run)
    (folder / "job.yaml").write_text("kind: Job\nmetadata:\n  name: ngcdl-x\n  namespace: ml\n")
    programs = house.home / "bin"
    programs.mkdir()
    job = '{"items": [{"kind": "Job", "metadata": {"name": "ngcdl-x"}, "spec": {}, "status": {}}]}'
    says = {"kubectl": job, "scontrol": "ClusterName = east", "squeue": "RUNNING|"}
    for name, words in says.items():
        (programs / name).write_text(f"#!/bin/sh\necho '{words}'\n")
        (programs / name).chmod(0o755)
    env = {"PATH": f"{programs}:{os.environ['PATH']}"}
    done = house.run("exec", "x", "--", "nvidia-smi", "-L", env=env)
    assert (done.returncode, done.stdout) == (125, "")
    assert said in done.stderr
    assert to_type in done.stderr
