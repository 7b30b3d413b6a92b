"""The Slurm engine: submits runs, and finds them again."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ngcdl.engines import NoImages, OfKind
from ngcdl.engines.base import Job
from ngcdl.engines.slurm import commands, jobstate, nodes, options
from ngcdl.engines.slurm.job import SLURM, SlurmJob
from ngcdl.engines.slurm.script import job_name, script
from ngcdl.engines.values import GpuWay, Node, Order, ShowPull, Started
from ngcdl.errors import (
    BadOption,
    NoRunner,
    NotPlaceable,
    SlurmAbsent,
    SlurmLost,
    SlurmRefused,
    StateNotWritable,
)
from ngcdl.folder import LOG, SCRIPT, job_of
from ngcdl.spec import Placement, RunSpec, inside

IMAGES = "NGCDL_IMAGES"
_NUMBER = re.compile(r"\d+")  # a run can write its record: nothing else of that becomes an argument
LOOK_SECONDS = 2.0  # for the scheduler to say why a job waits


class SlurmEngine(OfKind, NoImages):
    """The cluster that Slurm's programs on this machine address. `runs` is the folder of all runs."""

    name = "slurm"
    is_here = False

    def __init__(self, runs: Path) -> None:
        self._runs = runs

    @cached_property
    def version(self) -> str:
        return commands.output_of("sbatch", "--version").removeprefix("slurm-wlm ").removeprefix("slurm ")

    @cached_property
    def identity(self) -> str | None:
        return commands.cluster()

    def gpu_way(self) -> GpuWay:
        try:
            said = commands.output_of("sinfo", "-h", "-o", "%G")
        except SlurmAbsent:
            return GpuWay("gres", "Slurm is not on this machine, so its nodes can't be queried")
        if commands.gpus_of(said.replace("\n", ",")):
            return GpuWay("gres", "Slurm's nodes have GPUs")
        return GpuWay("none", "no node of this Slurm cluster has a GPU (sinfo -o %G)")

    def placed(self, placement: Placement | None) -> Placement | None:
        """Choose what runs images. Raise NoRunner or BadOption."""
        placed = placement or Placement()
        nodes.check_cluster(placed)
        options.check_followed(placed.options)
        images = placed.images or os.environ.get(IMAGES) or None
        if images and not images.startswith("/"):
            raise BadOption(f"{IMAGES}={images}: must be the absolute path of a folder that all nodes share.")
        return replace(placed, container=placed.container or _runner(), images=images)

    def with_cpus(self, placement: Placement, gpus: int) -> Placement:
        """As in SharesCpus. Raise BadOption if words for sbatch ask for another number of GPUs than the run."""
        typed = options.gpus_per_node(placement.options, placement.nodes) if gpus else None
        if typed and typed[0] != gpus:
            raise BadOption(
                f"--sbatch={typed[1]}: the job would have {typed[0]} GPUs on each node, and the run is for {gpus}.",
                f"Give ngcdl the same number:\n    ngcdl run ... --gpus {typed[0]} --sbatch={typed[1]}",
            )
        if placement.cpus is None:
            with contextlib.suppress(SlurmAbsent, SlurmRefused):  # e.g. no such partition: sbatch says so more clearly
                return replace(placement, cpus=nodes.cpus_per_gpu(placement, gpus))
        return placement

    def nodes(self, placement: Placement, gpus: int) -> tuple[Node, ...]:
        return nodes.with_gpus(placement, gpus)

    def kept_off(self, placement: Placement, bad: Sequence[Node], good: Sequence[Node]) -> Placement | None:
        return nodes.kept_off(placement, bad, good)

    def caller(self) -> str | None:
        return f"{os.getuid()}:{os.getgid()}"

    def without_image(self, own: RunSpec | None, has_gpu: bool, show: ShowPull | None) -> str:
        del own, has_gpu, show
        raise BadOption("A run on Slurm needs an image.", "    ngcdl images")

    def request(self, order: Order) -> dict[str, Any]:
        return {
            "submit": ["sbatch", "--parsable", str(order.folder / SCRIPT)],
            "script": script(order),
            "to_keep": script(order, is_kept=True),
        }

    def command_line(self, order: Order) -> str:
        return script(order)

    def fits(self, order: Order) -> str | None:
        """Check with sbatch --test-only. Slurm also refuses while nodes are down or drained: then return a caution."""
        place = order.spec.placed
        try:
            commands.check(script(order))
        except NotPlaceable as error:
            if len({node.name for node in nodes.with_gpus(place, order.spec.gpus.per_node)}) < place.nodes:
                raise
            return f"{error.message} That many nodes exist, but not for this, or not now: a run may wait forever."
        return None

    def start(self, order: Order) -> Job:
        """Write the script into the run's folder and submit it. Raise SlurmRefused; NotPlaceable is one of these."""
        if order.spec.without_secrets().command != order.spec.command:
            raise BadOption(
                "A word of the command looks like a secret, and would be written into the job's script.",
                "As a variable it travels with the job, and is written to no file of yours:\n    ngcdl run ... -e NAME",
            )
        path = order.folder / SCRIPT
        with StateNotWritable.at(path):
            for mount in order.spec.mounts:
                if mount.container == inside.TRAINER:  # as it is now: the job may start days later
                    shutil.copytree(mount.host, order.folder / "trainer", ignore=shutil.ignore_patterns("__pycache__"))
            path.write_bytes(os.fsencode(script(order)))  # an argument may be no valid text
            (order.folder / LOG).touch()
            after = [identity.removeprefix(SLURM) for identity in order.after]
            number = commands.submit(path, dict(order.spec.environment), after)
        if not after:  # a job that waits for another gives no other reason
            with contextlib.suppress(SlurmLost):  # Slurm has the job, and following it will report this
                self._look_at(number, order.folder)
        started = Started(news=(f"Slurm accepted it as job {number}",), keeps_log=True)
        return SlurmJob(number, order.folder, started)

    def _look_at(self, number: str, folder: Path) -> None:
        """Cancel a job that Slurm accepted but that would wait forever, and raise NotPlaceable."""
        until = time.monotonic() + LOOK_SECONDS
        while (state := commands.state(number)) and state.waits and time.monotonic() < until:
            if jobstate.is_never(state):
                commands.cancel(number, folder)
                raise commands.never_starts(state)
            if state.reason:
                return
            time.sleep(0.2)

    def find(self, run_id: str) -> Job | None:
        """Return the job by the id in the run's record, else by its name: ngcdl may have been killed before it recorded
        the id."""
        folder = self._runs / run_id
        kept = job_of(folder)
        number = kept.removeprefix(SLURM) if kept else None
        if number is None or not _NUMBER.fullmatch(number):
            number = commands.named(job_name(run_id))
        return SlurmJob(number, folder) if number else None


def _runner() -> str:
    """Return what runs images on the nodes: pyxis if srun has it, else what this machine has: mostly the nodes have it,
    too.

    Raise NoRunner."""
    try:
        if commands.has_pyxis():
            return "pyxis"
    except SlurmAbsent:
        return "pyxis"  # the script is meant for another machine
    for program in ("docker", "podman", "apptainer", "singularity"):
        if shutil.which(program):
            return program
    raise NoRunner
