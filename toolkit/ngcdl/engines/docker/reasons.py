"""Why the flags of a `docker run` line are there, for those who read it. Pure."""

from __future__ import annotations

import re
from textwrap import wrap

_WIDTH = 79  # columns: a narrow terminal's
# Flags, and why they are there. What NVIDIA documents:
# https://docs.nvidia.com/deeplearning/frameworks/user-guide/index.html#setincshmem
_WHY = (
    ("--init", "the container's first process ignores SIGTERM unless it handles it: a run could not be stopped gently"),
    ("--runtime|--device|--gpus", "how GPUs get in on this host; by UUID, as CUDA may number them otherwise"),
    ("--shm-size", "as NVIDIA documents: data loaders pass batches through /dev/shm, of which Docker gives 64 MB"),
    ("--ulimit stack", "as NVIDIA documents"),
    ("--ulimit memlock", "as NVIDIA documents: memory that a GPU or a network card reads by itself has to be locked"),
    ("--cpus|--memory", "the limits that you gave"),
    ("--pids-limit", "a program that starts others without end harms nobody else"),
    ("--log-driver|--log-opt", "Docker's own log would grow without limit; all output is in the run's log.txt"),
    ("--security-opt=no-new-privileges", "sudo and other setuid programs gain nothing inside"),
    ("--security-opt=label=disable", "SELinux: neither your folders nor the GPUs' files are labelled for containers"),
    ("--userns", "this Docker gives containers other user IDs: your folders would not be yours inside"),
    ("--user|--group-add", "what the container writes is yours"),
    ("--stop-timeout", "a training gets this many seconds to save a checkpoint"),
    ("--label", "by these ngcdl finds its containers"),
    ("-e NGCDL_RUN", "where your script can report its steps"),
    ("-e (?:HOME|XDG_CACHE_HOME|CUDA_CACHE_[A-Z]+|PIP_CACHE_DIR|T[A-Z]+_(?:EXTENSIONS|CACHE)_DIR)",
     "what was compiled or downloaded is there for the next run"),
    ("-e (?:PYTHONUSERBASE|PATH)", "the packages of --pip"),
    ("-e NVIDIA_VISIBLE_DEVICES", "which cards the runtime adds: NVIDIA's images ask for all"),
    ("-e CUDA_(?:VISIBLE_DEVICES|DEVICE_ORDER)", "the container may see more cards than the run's own"),
    ("-e PYTHONUNBUFFERED", "what Python prints is there at once"),
    ("-e PYTHONDONTWRITEBYTECODE", "no compiled files in the folder of the trainer"),
)  # fmt: skip


def reasons(line: str) -> str:
    """Return comments that say why the flags of the `line`, of which each has a line of its own, are there."""
    told = ["# why:"]
    for flags, why in _WHY:
        names = list(dict.fromkeys(re.findall(rf"^(?:docker run .*|[^\S\n]+)({flags})\b", line, re.MULTILINE)))
        said = f"#   {', '.join(names[:2])}{', ...' if len(names) > 2 else ''}: {why}"
        told += wrap(said, _WIDTH, subsequent_indent="#     ", break_on_hyphens=False) if names else []
    return "\n".join(told)
