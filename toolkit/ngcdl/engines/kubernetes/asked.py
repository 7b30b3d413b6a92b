"""What Kubernetes is asked for by a spec: names within its limits, GPUs by number; what no pod can have is refused."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePosixPath

from ngcdl.engines.base import HERE
from ngcdl.errors import BadOption
from ngcdl.spec import REDACTED, Placement, RunSpec, redacted, redacted_words

RUN_LABEL = "ngcdl.run"
INSIDE = "/ngcdl"
TRAINER, RESUME = f"{INSIDE}/trainer", f"{INSIDE}/resume"
LABEL_LENGTH = 63  # https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-label-names


def name(run_id: str, nodes: int = 1) -> str:
    """Name the job of a run. The host name of its last pod, NAME-INDEX, must be a label too."""
    room = LABEL_LENGTH - len(f"-{max(nodes - 1, 0)}")
    word = re.sub(r"[^a-z0-9]+", "-", f"ngcdl-{run_id}".lower()).strip("-")
    if len(word) > room:  # the end tells runs apart
        tail = word[-12:].lstrip("-")
        word = f"{word[: room - len(tail) - 1].rstrip('-')}-{tail}"
    return word


def labels(run_id: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "ngcdl", RUN_LABEL: name(run_id)}


def placed(spec: RunSpec) -> Placement:
    return spec.placement or Placement()


def gpus(spec: RunSpec) -> int:
    """Count the GPUs of each node."""
    return spec.gpus.count or 0


def workdir(spec: RunSpec) -> str | None:
    """Give the working directory: a claim at HERE stands in for the caller's; None is the image's own."""
    return spec.workdir or (HERE if any(mount.container == HERE for mount in spec.mounts) else None)


def without_callers_folder(spec: RunSpec) -> tuple[RunSpec, str | None]:
    """Leave out the folder at HERE that a command had where it was recorded, and name it; None: it had none."""
    found = [mount for mount in spec.mounts if mount.container == HERE and not mount.is_volume]
    if not found or not spec.workdir or spec.workload:  # what was typed is for `check` to refuse
        return spec, None
    is_gone = PurePosixPath(spec.workdir).is_relative_to(HERE)
    mounts = tuple(mount for mount in spec.mounts if mount not in found)
    return replace(spec, mounts=mounts, workdir=None if is_gone else spec.workdir), found[0].host


def is_secret(key: str, value: str) -> bool:
    return redacted(key, value) == REDACTED


def check(spec: RunSpec) -> None:
    """Raises BadOption where something is asked for that no pod can have, or no manifest may."""
    if redacted_words(spec.command) != spec.command:
        raise BadOption(
            "A word of the command looks like a secret, and would stand in the manifest.",
            "As a variable it stands in a Secret of the run's own:\n    ngcdl run ... -e NAME",
        )
    for mount in spec.mounts:
        if not mount.is_volume and mount.container not in (TRAINER, RESUME):
            raise BadOption(
                f"-v {mount}: a pod sees no folder of this machine.",
                f"A claim, by its name:\n    -v CLAIM:{mount.container}",
            )
        if mount.container == RESUME and not placed(spec).data_pvc:
            raise BadOption(
                "--resume: a pod sees no folder of this machine, and so not the checkpoint.",
                "Name the claim that the run before was kept on:\n    --data-pvc CLAIM",
            )
