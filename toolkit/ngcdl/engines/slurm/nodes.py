"""What Slurm tells of its nodes: their processors' architecture, and the type of their GPUs, by which it counts them.

`scontrol show node -o` has a line for each: NodeName=n1 Arch=x86_64 ... Gres=gpu:h100:8(S:0-1) ... Partitions=main ...
A node that never came up has no Arch. Of drivers Slurm knows nothing; a feature such as driver550 is a site's own word.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ngcdl.engines.base import Node
from ngcdl.engines.slurm import commands
from ngcdl.errors import BadOption
from ngcdl.spec import Placement

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_GPUS = re.compile(r"(?:^|,)gpu(?::([^:,()]+))?:(\d+)")
# Words for sbatch by which somebody chose nodes or cards himself.
_CHOSEN = re.compile(r"--(?:gres|gpus|tres|exclude|nodelist|nodefile|constraint|prefer|cluster-constraint)|-[GxwFC]")
_PARTITION = re.compile(r"(?:--partition(?:=| +)|-p[= ]*)(.+)")
_CLUSTERS = re.compile(r"(?:--clusters(?:=| +)|-M[= ]*)(.+)")


def check_cluster(placement: Placement) -> None:
    """Raises BadOption for a cluster that sbatch alone would speak to: nobody could follow its job."""
    typed = [found[1] for word in placement.options if (found := _CLUSTERS.fullmatch(word))]
    of_all = os.environ.get("SLURM_CLUSTERS")
    wanted = next((name for name in (*typed[-1:], os.environ.get("SBATCH_CLUSTERS"), of_all) if name), None)
    if wanted and (wanted != of_all or wanted == "all" or "," in wanted):
        raise BadOption(
            f"The cluster {wanted}: squeue and scancel, by which ngcdl follows a job, have to speak to that one, too.",
            "Type it on a login node of it, or name the one cluster for all of Slurm's programs, now and later:\n"
            "    export SLURM_CLUSTERS=NAME",
        )


def of(placement: Placement, gpus: int) -> tuple[Node, ...]:
    """Give the nodes with so many GPUs that the placement's partitions have, else the default one.

    With `gpus` 0 their cards are left out. Raises EngineError, and BadOption for another cluster."""
    check_cluster(placement)
    wanted = partitions(placement)
    found: list[Node] = []
    for line in commands.said("scontrol", "show", "node", "-o").splitlines():
        if not wanted or wanted & set((_field(line, "Partitions") or "").split(",")):
            node = list(_node(line, gpus))
            found += node if sum(one.gpus for one in node) >= gpus else []
    return tuple(found)


def kept_off(placement: Placement, bad: Sequence[Node], good: Sequence[Node]) -> Placement | None:
    """Ask for the one type of GPUs that all `good` nodes have, else leave the `bad` nodes out by name.

    None where somebody has chosen nodes or cards himself, and where too few nodes are left."""
    if any(_CHOSEN.match(word) for word in placement.options):
        return None
    names, types = {node.name for node in bad}, {node.card for node in good}
    if len(types) == 1 and None not in types and not types & {node.card for node in bad}:
        return replace(placement, gpu_type=types.pop())
    left = {node.name for node in good} - names
    return replace(placement, avoid=tuple(sorted(names))) if len(left) >= placement.nodes else None


def partitions(placement: Placement) -> set[str]:
    """Name those that the job may go to: what was typed before a variable, else the default one; none: any."""
    typed = [found[1] for word in placement.options if (found := _PARTITION.fullmatch(word))]
    named = [*typed[-1:], placement.partition, os.environ.get("SBATCH_PARTITION")]
    chosen = next((name for name in named if name), None)
    if chosen:
        return set(chosen.split(","))
    return {name[:-1] for name in commands.said("sinfo", "-h", "-o", "%P").split() if name.endswith("*")}


def _node(line: str, gpus: int) -> Iterator[Node]:
    name, architecture = _field(line, "NodeName"), _ARCHITECTURES.get(_field(line, "Arch") or "")
    if name is None:
        return
    if not gpus:
        yield Node(name, architecture)
    else:
        for card, count in _GPUS.findall(_field(line, "Gres") or ""):
            yield Node(name, architecture, card=card or None, gpus=int(count))


def _field(line: str, name: str) -> str | None:
    """Give the first value of that name: what people wrote themselves, such as a reason, comes last."""
    found = re.search(rf"(?:^| ){name}=(\S+)", line)
    return found[1] if found else None
