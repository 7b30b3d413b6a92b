"""The engine Slurm: where runs are handed in, and found again."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ngcdl.engines.base import GpuWay, Job, LayerStore, Node, NoImages, Order, Show, Started
from ngcdl.engines.slurm import commands, nodes
from ngcdl.engines.slurm.job import SLURM, SlurmJob
from ngcdl.engines.slurm.script import TRAINER, job_name, script
from ngcdl.errors import (
    BadOption,
    EngineRefused,
    NoRunner,
    NotPlaceable,
    SlurmAbsent,
    SlurmLost,
    SlurmRefused,
    StateNotWritable,
)
from ngcdl.folder import LOG, RECORD, SCRIPT, opened
from ngcdl.spec import ImageRef, Placement

IMAGES = "NGCDL_IMAGES"
LOOK_SECONDS = 2.0  # until the scheduler has said why a job waits


class SlurmEngine(NoImages):
    """The cluster that Slurm's programs here speak to. `runs` is the folder of all runs."""

    name = "slurm"
    is_here = False
    has_containers = True
    is_cluster = True
    shares_files = True

    def __init__(self, runs: Path) -> None:
        self._runs = runs
        self._version: str | None = None
        self._cluster: str | None = None

    @property
    def version(self) -> str:
        if self._version is None:
            self._version = commands.said("sbatch", "--version").removeprefix("slurm-wlm ").removeprefix("slurm ")
        return self._version

    @property
    def identity(self) -> str | None:
        if self._cluster is None:
            self._cluster = commands.cluster()
        return self._cluster

    def gpu_way(self) -> GpuWay:
        try:
            said = commands.said("sinfo", "-h", "-o", "%G")
        except SlurmAbsent:
            return GpuWay("gres", "Slurm is not on this machine, so its nodes are not asked")
        if commands.gpus_of(said.replace("\n", ",")):
            return GpuWay("gres", "Slurm's nodes have GPUs")
        return GpuWay("none", "no node of this Slurm has a GPU (sinfo -o %G)")

    def placed(self, placement: Placement | None) -> Placement | None:
        """Choose what runs images, and how many processors come with a GPU: a node's, shared out.

        Raises NoRunner and BadOption."""
        placed = placement or Placement()
        nodes.check_cluster(placed)
        images = placed.images or os.environ.get(IMAGES) or None
        if images and not images.startswith("/"):
            raise BadOption(f"{IMAGES}={images}: wanted a folder that all nodes see, from / on.")
        cpus = placed.cpus
        if cpus is None:
            try:
                share = commands.share(nodes.partitions(placed))
                cpus = share.cpus and max(share.cpus // max(share.gpus, 1), 1)
            except (SlurmAbsent, SlurmRefused):  # such as a partition that there is none of: sbatch tells it better
                cpus = None
        return replace(placed, container=placed.container or _runner(), cpus=cpus, images=images)

    def nodes(self, placement: Placement, gpus: int) -> tuple[Node, ...]:
        return nodes.of(placement, gpus)

    def kept_off(self, placement: Placement, bad: Sequence[Node], good: Sequence[Node]) -> Placement | None:
        return nodes.kept_off(placement, bad, good)

    def caller(self) -> str | None:
        return f"{os.getuid()}:{os.getgid()}"

    def pull(self, image: ImageRef, show: Show, auth: Mapping[str, str] | None = None) -> str:
        del show, auth
        raise EngineRefused(f"{image} is pulled by the nodes themselves, when the job begins.")

    def layer_store(self) -> LayerStore:
        return LayerStore("the nodes of a cluster fetch for themselves")

    def target(self, image: ImageRef, digest: str) -> str:
        return image.pinned(digest)

    def without_image(self, has_gpu: bool, show: Show | None) -> str:
        del has_gpu, show
        raise EngineRefused("A run on Slurm wants an image.")

    def request(self, order: Order) -> dict[str, Any]:
        return {
            "submit": ["sbatch", "--parsable", str(order.folder / SCRIPT)],
            "script": script(order),
            "to_keep": script(order, is_kept=True),
        }

    def command_line(self, order: Order) -> str:
        return script(order)

    def fits(self, order: Order) -> str | None:
        """Slurm says no in the same words where nodes are only down or drained: then it is a caution."""
        place = order.spec.placement or Placement()
        try:
            commands.check(script(order))
        except NotPlaceable as error:
            if len({node.name for node in nodes.of(place, order.spec.gpus.count or 0)}) < place.nodes:
                raise
            return f"{error.message} So many nodes are there, but not for this, or not now: a run may wait for ever."
        return None

    def start(self, order: Order) -> Job:
        """Write the script into the run's folder and hand it in. Raises SlurmRefused, and NotPlaceable as one."""
        if order.spec.without_secrets().command != order.spec.command:
            raise BadOption(
                "A word of the command looks like a secret, and would stand in the job's script.",
                "As a variable it comes with the job, and stands in no file:\n    ngcdl run ... -e NAME",
            )
        path = order.folder / SCRIPT
        try:
            for mount in order.spec.mounts:
                if mount.container == TRAINER:  # as it is now: the job may begin in days
                    shutil.copytree(mount.host, order.folder / "trainer", ignore=shutil.ignore_patterns("__pycache__"))
            path.write_text(script(order))
            (order.folder / LOG).touch()
            after = [identity.removeprefix(SLURM) for identity in order.after]
            number = commands.submit(path, dict(order.spec.environment), after)
        except OSError as error:
            raise StateNotWritable(path, error.strerror or str(error)) from error
        if not after:  # a job that waits for another says nothing else of itself
            with contextlib.suppress(SlurmLost):  # Slurm has it, and who follows it is told
                self._look_at(number)
        started = Started(news=(f"Slurm has it as job {number}",), keeps_log=True)
        return SlurmJob(number, order.folder, started)

    def _look_at(self, number: str) -> None:
        """End a job that would wait for ever, which Slurm took all the same. Raises NotPlaceable."""
        until = time.monotonic() + LOOK_SECONDS
        while (state := commands.state(number)) and state.waits and time.monotonic() < until:
            if commands.is_never(state):
                commands.cancel(number)
                raise NotPlaceable(commands.why_waiting(state, number), commands.there())
            if state.reason:
                return
            time.sleep(0.2)

    def find(self, run_id: str) -> Job | None:
        """Give the job by the id that its record has, else by its name: ngcdl was killed before it could write."""
        folder = self._runs / run_id
        try:
            with opened(folder / RECORD) as file:
                kept = json.load(file)["container"]
        except (OSError, ValueError, KeyError, TypeError):
            kept = None
        number = str(kept).removeprefix(SLURM) if kept else commands.named(job_name(run_id))
        return SlurmJob(number, folder) if number else None


def _runner() -> str:
    """What runs images on the nodes: pyxis, which srun tells, else what this machine has, as its nodes mostly do.

    Raises NoRunner."""
    try:
        if commands.has_pyxis():
            return "pyxis"
    except SlurmAbsent:
        return "pyxis"  # a script that is made to be taken along
    for program in ("docker", "podman", "apptainer"):
        if shutil.which(program):
            return program
    raise NoRunner
