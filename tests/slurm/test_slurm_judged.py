"""Before a job is submitted, its image is judged for the nodes of a real Slurm, by the types of their GPUs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cluster_user import Someone
from lab_parts.slurm import Cluster

pytestmark = pytest.mark.lab
# From Turing on: n1's V100 can't run it, n2's H100 can.
TRAIN = ("run", "pytorch:26.07-py3", "--train", "cifar10", "--engine", "slurm", "--data", "synthetic", "--gpus", "1")


@pytest.fixture(scope="module")
def cluster(lab: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("slurm") / "c", Path(lab["cache"]), types=("v100", "h100")) as found:
        yield found


def test_a_run_comes_to_the_node_that_can_run_its_image(someone: Someone) -> None:
    done = someone.run(*TRAIN)
    assert done.returncode == 0, done.stderr
    assert "n1 (v100) can't run" in done.stderr
    assert "the run is kept off them" in done.stderr
    assert "(127.0.0.1:1 can't be reached: connection refused): the nodes get the tag." in done.stderr
    run = someone.record()
    assert run["spec"]["placement"]["gpu_type"] == "h100"
    assert someone.slurm("squeue", "-h", "-t", "all", "-j", someone.job(run["id"]), "-o", "%N") == "n2"
    assert "#SBATCH --gres=gpu:h100:1\n" in (someone.folder(run["id"]) / "job.sh").read_text()


def test_where_too_few_nodes_can_nothing_is_handed_in(someone: Someone) -> None:
    done = someone.run(*TRAIN, "--nodes", "2")
    assert done.returncode == 125
    assert "can't run on more than 1 of the cluster's nodes: n1 (v100): " in done.stderr
    _, _, instead = done.stderr.partition("The newest one that can, judging by its kernels")
    assert re.search(r"\n +ngcdl run \S+/nvidia/\S+:\S+ .*--nodes 2\n", instead)
    assert someone.store.ids() == []
    forced = someone.run(*TRAIN, "--nodes", "2", "--force", "--dry-run")
    assert "Going on because of --force." in forced.stderr
    assert "#SBATCH --gres=gpu:1\n" in forced.stdout
