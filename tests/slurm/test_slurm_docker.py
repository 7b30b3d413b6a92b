"""Runs on Slurm nodes that run images with a real Docker: each node's container, its GPU, and nothing left behind."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cluster_user import Cluster, Someone
from house import until

pytestmark = pytest.mark.lab

BUSYBOX = ("run", "busybox:1", "--engine", "slurm", "--container", "docker")
# Ignores even SIGTERM, which reaches it through its init.
DEAF = ("--", "sh", "-c", "trap '' TERM; echo deaf; while :; do sleep 1; done")


@dataclass(frozen=True)
class WithDocker(Someone):
    lab: dict[str, Any]

    def environment(self, **more: str) -> dict[str, str]:
        mine = {"DOCKER_HOST": self.lab["engine"]["host"], "NGCDL_REGISTRY": self.lab["registry"]["host"]}
        return super().environment(**mine, **more)

    def containers(self, run_id: str) -> list[str]:
        name = f"name=ngcdl-{self.job(run_id)}-"
        return self.slurm("docker", "ps", "--all", "--filter", name, "--format", "{{.Names}} {{.State}}").split("\n")


@pytest.fixture
def user(lab: dict[str, Any], cluster: Cluster, tmp_path: Path) -> Iterator[WithDocker]:
    one = WithDocker(tmp_path, cluster, lab)
    one.brings("docker", lab["docker_cli"])
    assert one.run("login", env={"NGC_API_KEY": lab["registry"]["key"]}).returncode == 0
    pulled = one.run("pull", "busybox:1")
    assert pulled.returncode == 0, pulled.stderr
    cluster.wait_idle()
    yield one
    one.slurm("scancel", "--user", str(os.geteuid()))


def test_each_node_runs_the_image_by_its_digest_with_its_gpu_as_the_caller(user: WithDocker) -> None:
    code = user.home / "code"
    code.mkdir()
    done = user.run(
        *BUSYBOX, "--nodes", "2", "--gpus", "1", "-e", "MY_TOKEN=hush", "--",
        "sh", "-c", "echo node $NGCDL_NODE of 2: $MY_TOKEN $(nvidia-smi -L) $(pwd) ${CUDA_VISIBLE_DEVICES-}.",
        cwd=code,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + done.stdout
    run = user.record()
    log = (user.folder(run["id"]) / "log.txt").read_text()
    lines = sorted(line for line in log.splitlines() if line.startswith("node"))
    assert [line.split(": ")[0] for line in lines] == ["node 0 of 2", "node 1 of 2"]
    assert all("hush GPU 0: " in line and line.endswith(" /work .") for line in lines), lines
    assert log.count("forbids --ulimit memlock=-1") in (0, 2), "where the host forbids it each node says so once"
    assert run["image"]["digest"] == user.lab["images"]["busybox:1"]
    assert user.containers(run["id"]) == [""]


def test_what_is_stopped_or_cancelled_leaves_no_container_though_it_is_deaf(user: WithDocker) -> None:
    run_id = user.run(*BUSYBOX, "--nodes", "2", "--gpus", "none", "--detach", *DEAF).stdout.strip()
    until(lambda: (user.folder(run_id) / "log.txt").read_text().count("deaf") == 2, "both")
    assert len(user.containers(run_id)) == 2
    user.slurm("scancel", user.job(run_id))
    run = user.ended(run_id)
    assert run["status"] == "interrupted"
    until(lambda: user.containers(run_id) == [""], "nothing left")
