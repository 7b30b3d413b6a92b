"""A user who submits runs to the lab's Slurm with ngcdl."""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from house import House, until
from lab_parts.slurm import Cluster
from stand_ins import stand_in

IMAGE = "pytorch:25.03-py3"


@dataclass(frozen=True)
class Someone(House):
    """A user of the cluster. The tasks' python is the stand-in for the trainer, or what `python` names."""

    cluster: Cluster

    def environment(self, **more: str) -> dict[str, str]:
        found = super().environment(**more)
        return found | {
            "SLURM_CONF": str(self.cluster.conf),
            "PATH": f"{self.home}/bin:{self.cluster.bin}:{found['PATH']}",
            "NGCDL_REGISTRY": "127.0.0.1:1",  # nothing listens there
            **more,
        }

    def brings(self, name: str, *words: str) -> None:
        """Put a program at the front of PATH, here and in the jobs."""
        (self.home / "bin").mkdir(exist_ok=True)
        stand_in(self.home / "bin", name, f'exec {shlex.join(words)} "$@"')

    def slurm(self, *words: str) -> str:
        done = subprocess.run(words, capture_output=True, text=True, timeout=240, env=self.environment(), check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def submits(self, *words: str, **env: str) -> str:
        """Submit a training; return the run's id."""
        done = self.run(*TRAIN, "--detach", *words, env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def folder(self, run_id: str) -> Path:
        return self.store.folder(run_id)

    def job(self, run_id: str) -> str:
        return str(self.store.load(run_id).container).removeprefix("slurm:")

    def state(self, run_id: str) -> str:
        return self.slurm("squeue", "-h", "-t", "all", "-j", self.job(run_id), "-o", "%T")

    def events(self, run_id: str) -> list[dict[str, Any]]:
        path = self.folder(run_id) / "events.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def sees_an_empty_queue(self) -> None:
        """Wait until Slurm has completed all jobs."""
        left: list[str] = []

        def is_empty() -> bool:
            left[:] = self.slurm("squeue", "-h", "-o", "%i %j %T %r").splitlines()
            return not left

        try:
            until(is_empty, "an empty queue")
        except AssertionError as error:
            raise AssertionError(f"{error}: {left}\n{self.slurm('scontrol', 'show', 'nodes')}") from None

    def begun(self, run_id: str, steps: int = 1) -> None:
        def is_there() -> bool:
            return sum(event["event"] == "step" for event in self.events(run_id)) >= steps

        until(is_there, "the first step")

    def ended(self, run_id: str, seconds: float = 240) -> dict[str, Any]:
        """Wait until the record is closed, at most `seconds`; return it."""
        return dict(until(lambda: (it := self.record(run_id))["status"] != "running" and it, "the end", seconds))


TRAIN = ("run", IMAGE, "--train", "cifar10", "--engine", "slurm", "--data", "synthetic")
