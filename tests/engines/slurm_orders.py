"""Orders of each kind for Slurm; and bash stand-ins for the programs on its nodes."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from stand_ins import stand_in

from ngcdl.engines.slurm.script import script
from ngcdl.engines.values import Order
from ngcdl.spec import GpuRequest, ImageRef, Mount, Placement, RunSpec, Workload

ID = "20180216-182126-cifar10-beef"
FOLDER = Path("/home/me/.local/state/ngcdl/runs") / ID
DIGEST = "sha256:" + "5" * 64
TRAINING = RunSpec(
    ImageRef.parse("pytorch:25.03-py3"),
    ("python", "-m", "trainer", "cifar10", "--out", "/ngcdl/run", "--data", "/ngcdl/data", "--resume", "/ngcdl/resume"),
    GpuRequest("count", count=8),
    mounts=(
        Mount("/opt/ngcdl/containers/trainer", "/ngcdl/trainer"),
        Mount("/scratch/cifar10", "/ngcdl/data"),
        Mount("/home/me/.local/state/ngcdl/runs/older", "/ngcdl/resume"),
    ),
    environment=(("PYTHONUNBUFFERED", "1"), ("WORDS", "a 'b'")),
    user="1000:1000",
    workdir="/ngcdl",
    workload=Workload("cifar10"),
    placement=Placement(2, "gpu", "physics", time_limit="1:00:00", container="pyxis", cpus=14),
)
COMMAND = RunSpec(
    ImageRef.parse("pytorch:25.03-py3"),
    ("python", "my train.py", "--epochs", "3"),
    GpuRequest("none"),
    mounts=(Mount("/home/me/code", "/work", writable=True), Mount("/data", "/data")),
    environment=(("HF_TOKEN", "hush"),),
    cpu_limit=4,
    memory_bytes=(16 << 30) + 1,
    user="1000:1000",
    workdir="/work",
    placement=Placement(container="docker", options=("--exclusive", "--mail-type=END")),
)
ORDERS = {
    "training-pyxis": TRAINING,
    "training-docker": replace(TRAINING, placement=Placement(2, container="docker")),
    "training-podman": replace(TRAINING, placement=Placement(container="podman")),
    "command-docker-no-gpu": COMMAND,
    "command-apptainer": replace(
        COMMAND, gpus=GpuRequest("count", count=1), placement=Placement(container="apptainer", images="/scratch/images")
    ),
    "training-singularity": replace(TRAINING, placement=Placement(2, container="singularity")),
    "training-pyxis-image-once": replace(
        TRAINING, placement=Placement(64, container="pyxis", images="/scratch/images")
    ),
}


def ordered(spec: RunSpec) -> Order:
    assert spec.image
    return Order(spec, ID, FOLDER, spec.image.pinned(DIGEST), "none" if spec.gpus.kind == "none" else "gres")


def task_of(spec: RunSpec, folder: Path) -> str:
    text = script(replace(ordered(spec), folder=folder)).partition("\ntask=")[2]
    return re.split(r"\n(?:env .*\\\n    )?srun ", text)[0]


def program(folder: Path, name: str, lines: str) -> None:
    stand_in(folder, name, lines, "/bin/bash")


# A client whose engine forbids the limit $FORBIDDEN and whose containers all exit with 7.
CLIENT = """[ "$1" != rm ] || exit 0
echo "$*" >>calls
case "$*" in *"$FORBIDDEN"*)
    echo 'error during container init: error setting rlimit type 8: operation not permitted' >&2
    exit 125
esac
exit 7
"""
# Slurm's own words about a job (22.05's scontrol show job -o), the first in the time that it grants a preempted one.
SAID = "JobId=7 JobName=x JobState=RUNNING Reason=None PreemptEligibleTime=Unknown PreemptTime={} SuspendTime={} X=0"
PREEMPTED = SAID.format("2026-11-27T08:00:00", "None")
PREEMPTED_AFTER_A_SUSPENSION = SAID.format("2026-11-27T08:00:00", "2026-11-26T23:00:00")
NOT_PREEMPTED = SAID.format("None", "None")
RESUMED = SAID.format("2026-11-27T08:00:00", "2026-11-27T08:30:00")  # after the job that preempted it had ended
