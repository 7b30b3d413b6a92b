"""The steps and tasks of a cluster, which outlive its daemons: found by the environment that Slurm set for them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path


def kill(conf: Path, node: str | None = None) -> None:
    """Kill the slurmstepds of a cluster, or of one node, and then their tasks: a slurmstepd that lives would report the
    end of its tasks."""
    found = list(_of_cluster(conf, node))
    for pid in [pid for pid, is_step in found if is_step] + [pid for pid, is_step in found if not is_step]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def _of_cluster(conf: Path, node: str | None) -> Iterator[tuple[int, bool]]:
    """Yield (pid, is it a slurmstepd?) for the steps and tasks of a cluster, or of one of its nodes."""
    mine = f"SLURM_CONF={conf}".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            program = (folder / "cmdline").read_bytes().split(b"\0")[0].rpartition(b"/")[2]
            if mine not in environment:
                continue
            is_step = program.startswith(b"slurmstepd")
            is_task = any(entry.startswith(b"SLURM_JOB_ID=") for entry in environment)
            if not (is_step or is_task):
                continue
            if node and f"SLURMD_NODENAME={node}".encode() not in environment and not _holds(folder, node):
                continue
        except OSError:
            continue
        yield int(folder.name), is_step


def _holds(process: Path, node: str) -> bool:
    """Return whether this process belongs to the node: a slurmstepd has files of its node's slurmd open, which alone
    tell."""
    marks = (f"/slurmd-{node}.txt", f"/spool/{node}/")
    for link in (process / "fd").iterdir():
        try:
            target = str(link.readlink())
        except OSError:
            continue
        if any(mark in target for mark in marks):
            return True
    return False
