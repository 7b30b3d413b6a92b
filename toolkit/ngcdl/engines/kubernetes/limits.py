"""What a spec requests of Kubernetes: names within its limits; what no pod can have is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePosixPath

from ngcdl.errors import BadOption
from ngcdl.spec import RunSpec, redacted_words
from ngcdl.spec.inside import RESUME, TRAINER, WORK

RUN_LABEL = "ngcdl.run"
LABEL_LENGTH = 63  # https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-label-names


def name(run_id: str, nodes: int = 1) -> str:
    """Name the job of a run. The host name of its last pod, NAME-INDEX, must also be a valid label."""
    room = LABEL_LENGTH - len(f"-{max(nodes - 1, 0)}")
    word = re.sub(r"[^a-z0-9]+", "-", f"ngcdl-{run_id}".lower()).strip("-")
    if len(word) > room:  # keep the end, which distinguishes runs
        tail = word[-12:].lstrip("-")
        word = f"{word[: room - len(tail) - 1].rstrip('-')}-{tail}"
    return word


def labels(run_id: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "ngcdl", RUN_LABEL: name(run_id)}


def workdir(spec: RunSpec) -> str | None:
    """Return the working directory; WORK if a claim is mounted there instead of the caller's folder; None is the
    image's own."""
    return spec.workdir or (WORK if any(mount.container == WORK for mount in spec.mounts) else None)


def without_callers_folder(spec: RunSpec) -> tuple[RunSpec, str | None]:
    """Return the spec without the folder that a recorded command had at WORK, and that folder, None if it had none."""
    found = [mount for mount in spec.mounts if mount.container == WORK and not mount.is_volume]
    if not found or not spec.workdir or spec.workload:  # `check` refuses a typed one
        return spec, None
    is_gone = PurePosixPath(spec.workdir).is_relative_to(WORK)
    mounts = tuple(mount for mount in spec.mounts if mount not in found)
    return replace(spec, mounts=mounts, workdir=None if is_gone else spec.workdir), found[0].host


def check(spec: RunSpec) -> None:
    """Raise BadOption if the spec requests what no pod can have, or no manifest may contain."""
    if redacted_words(spec.command) != spec.command:
        raise BadOption(
            "A word of the command looks like a secret, and would be written into the manifest.",
            "As a variable it is kept in the run's own Secret:\n    ngcdl run ... -e NAME",
        )
    for mount in spec.mounts:
        if not mount.is_volume and mount.container not in (TRAINER, RESUME):
            raise BadOption(
                f"-v {mount}: a pod sees no folder of this machine.",
                f"Mount a claim, by its name:\n    -v CLAIM:{mount.container}",
            )
        if mount.container == RESUME and not spec.placed.data_pvc:
            raise BadOption(
                "--resume: a pod sees no folder of this machine, and so not the checkpoint.",
                "Name the claim that holds the earlier run:\n    --data-pvc CLAIM",
            )
