"""What Slurm knows about its nodes: their processors, with their architecture, and their GPUs, counted by type.

`scontrol show node -o` prints a line each: NodeName=n1 Arch=x86_64 ... CPUEfctv=124 CPUTot=128 ...
Gres=gpu:h100:8(S:0-1) ... Partitions=main ...
A node that never came up has no Arch. Slurm knows nothing about drivers; a feature such as driver550 is a site's own.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ngcdl.engines.slurm import commands, options
from ngcdl.engines.values import Node, architecture
from ngcdl.errors import BadOption
from ngcdl.spec import Placement

# Words for sbatch with which the user chose nodes or cards.
_CHOSEN = re.compile(r"--(?:gres|gpus|tres|exclude|nodelist|nodefile|constraint|prefer|cluster-constraint)|-[GxwFC]")
_PARTITION = re.compile(r"(?:--partition(?:=| +)|-p[= ]*)(.+)")
_CLUSTERS = re.compile(r"(?:--clusters(?:=| +)|-M[= ]*)(.+)")
_USUAL = re.compile(r"\bDefCpuPerGPU=(\d+)")
_CARD = re.compile(r"(?:--gres(?:=| +)gpu:|--gpus(?:-per-\w+)?(?:=| +)|-G[= ]*)([A-Za-z][^:,()]*)(?::\d+)?")
_NODELIST = re.compile(r"(?:--nodelist(?:=| +)|-w[= ]*)(.+)")
_EXCLUDE = re.compile(r"(?:--exclude(?:=| +)|-x[= ]*)(.+)")
_CONSTRAINT = re.compile(r"(?:--constraint(?:=| +)|-C[= ]*)(.+)")
_RESERVATION = re.compile(r"--reservation(?:=| +)(.+)")
_FEATURE = re.compile(r"[\w.:-]+")
# Features that a node has (1) or has not (0), joined by & and |. https://slurm.schedmd.com/sbatch.html#OPT_constraint
_GROUP = re.compile(r"[(\[]([01](?:[&|][01])*)[)\]]")
# States, and flags after a +, of nodes that take no job, unlike POWERED_DOWN ones, which Slurm starts for a job.
# https://slurm.schedmd.com/sinfo.html#SECTION_NODE-STATE-CODES
_AWAY = re.compile(r"\b(?:DOWN|DRAIN|FAIL|NOT_RESPONDING)\b")


def check_cluster(placement: Placement) -> None:
    """Raise BadOption if only sbatch would address the chosen cluster: a job there could not be followed."""
    of_all = os.environ.get("SLURM_CLUSTERS")
    wanted = _typed(_CLUSTERS, placement) or os.environ.get("SBATCH_CLUSTERS") or of_all
    if wanted and (wanted != of_all or wanted == "all" or "," in wanted):
        raise BadOption(
            f"The cluster {wanted}: squeue and scancel, with which ngcdl follows a job, must address it, too.",
            "Type it on one of its login nodes, or name that one cluster for all of Slurm's programs, now and later:\n"
            "    export SLURM_CLUSTERS=NAME",
        )


def with_gpus(placement: Placement, gpus: int) -> tuple[Node, ...]:
    """Return the nodes with at least `gpus` GPUs in the placement's partitions, else in the default one.

    If `gpus` is 0, return all of them, without their cards. Raise EngineError, and BadOption for another cluster."""
    check_cluster(placement)
    found: list[Node] = []
    for line in _lines(_partitions_for(placement)):
        node = list(_node(line, gpus))
        found += node if sum(one.gpus for one in node) >= gpus else []
    return tuple(found)


def cpus_per_gpu(placement: Placement, gpus: int) -> int | None:
    """Return how many processors every node that may take a job with `gpus` GPUs has for each of its GPUs, or in all if
    it has no GPU; no more than the site gives a GPU by default. Nodes that are down or drained count only if too few
    others are left. None if none are reported. Raise EngineError."""
    wanted = _partitions_for(placement)
    able = _able(placement, gpus, wanted)
    # not in the default partition: a plugin of the site's may choose another one by what the job asks for
    # https://slurm.schedmd.com/job_submit_plugins.html
    if not able and not _named(placement):
        able = _able(placement, gpus, set())
        wanted = set().union(*map(_partitions, able))
    there = commands.output_of("scontrol", "show", "partition", "-o").splitlines() if wanted else []
    lines = [line for line in there if _field(line, "PartitionName") in wanted]
    limit, usual = _most_cpus(lines), _usual_cpus(lines) if gpus else None
    up = [line for line in able if not _AWAY.search(_field(line, "State") or "")]
    shares = [
        min(cpus, limit or cpus) // max(sum(count for _, count in _cards(line)), 1)
        for line in (up if len(up) >= placement.nodes else able)
        if (cpus := _cpus(line)) is not None
    ]
    return max(min(*shares, usual or shares[0]), 1) if shares else None


def _able(placement: Placement, gpus: int, partitions: set[str]) -> list[str]:
    """Return a line for each node of these partitions (if empty, of any) that may take a job with `gpus` GPUs, as far
    as it can be told from what was typed: all nodes meet a request that is not understood."""
    card = _card(placement)
    avoid = {*placement.avoid, *_names(_typed(_EXCLUDE, placement))}
    only = _names(_typed(_NODELIST, placement))
    reserved = _reserved(_typed(_RESERVATION, placement) or os.environ.get("SBATCH_RESERVATION"))
    wanted = _typed(_CONSTRAINT, placement) or os.environ.get("SBATCH_CONSTRAINT")
    lines = []
    for line in _lines(partitions):
        name, able = _field(line, "NodeName"), sum(count for kind, count in _cards(line) if card in (None, kind))
        if able < max(gpus, 1 if card else 0) or name in avoid or not _has_features(line, wanted):
            continue
        if reserved and name not in reserved:
            continue
        if name in only or len(only) < placement.nodes:  # a job may get more nodes than those named
            lines.append(line)
    return lines


def _card(placement: Placement) -> str | None:
    """Return the type of GPUs that a job asks for, None for any."""
    asked = [word for word in placement.options if "gres" in options.alike(word)]
    if not asked:
        return placement.gpu_type
    found = _CARD.fullmatch(asked[-1])
    return found[1] if found else None


def _typed(option: re.Pattern[str], placement: Placement) -> str | None:
    """Return the option's value that sbatch would take, the last."""
    return next((found[1] for word in reversed(placement.options) if (found := option.fullmatch(word))), None)


def _names(nodes: str | None) -> set[str]:
    """Return the names that a word such as n[1-4,7],m1 means; none for a file of names, which alone has a /."""
    if nodes is None or "/" in nodes:
        return set()
    return set(commands.output_of("scontrol", "show", "hostnames", nodes).split())


def _reserved(reservations: str | None) -> set[str]:
    """Return the names of the nodes of the reservations A,B; none if there is none, or one that holds no nodes."""
    names = reservations.split(",") if reservations else []
    held = [_field(commands.output_of("scontrol", "show", "reservation", name, "-o"), "Nodes") for name in names]
    return set() if "(null)" in held else {name for nodes in held for name in _names(nodes)}


def _has_features(line: str, wanted: str | None) -> bool:
    """Whether a node meets a constraint; any does if it asks for numbers of nodes: [a*2&b*4]."""
    has = set((_field(line, "AvailableFeatures") or "").split(","))
    text, before = f"({_FEATURE.sub(lambda name: str(int(name[0] in has)), wanted or '')})", ""
    while text != before:
        text, before = _GROUP.sub(lambda group: _value(group[1]), text), text
    return text != "0"


def _value(group: str) -> str:
    """Return what a group amounts to, read strictly from left to right, as Slurm does."""
    value = group[0]
    for operator, other in zip(group[1::2], group[2::2], strict=True):
        value = min(value, other) if operator == "&" else max(value, other)
    return value


def _cards(line: str) -> list[tuple[str, int]]:
    """Return a node's GPUs as (type, count); a type may be empty."""
    return [(card, int(count)) for card, count in commands.GPUS.findall(_field(line, "Gres") or "")]


def _most_cpus(partitions: Sequence[str]) -> int | None:
    """Return the least MaxCPUsPerNode of these partitions, None without such a limit: with it two partitions share
    nodes, one for their GPUs (https://slurm.schedmd.com/slurm.conf.html)."""
    limits = [_field(line, "MaxCPUsPerNode") or "" for line in partitions]
    return min((int(limit) for limit in limits if limit.isdecimal()), default=None)


def _usual_cpus(partitions: Sequence[str]) -> int | None:
    """Return what a GPU gets in these partitions if a job asks for no processors, None where no default is set: a
    partition's own or the cluster's DefCpuPerGPU. https://slurm.schedmd.com/slurm.conf.html#OPT_DefCpuPerGPU"""
    found = [_USUAL.search(_field(line, "JobDefaults") or "") for line in partitions]
    if not found or not all(found):
        found.append(_USUAL.search(commands.output_of("scontrol", "show", "config")))
    return min((int(one[1]) for one in found if one), default=None)


def _cpus(line: str) -> int | None:
    """Return CPUEfctv, which excludes the cores that CoreSpecCount reserves for the system; before 22.05, CPUTot."""
    cpus = _field(line, "CPUEfctv") or _field(line, "CPUTot") or ""
    return int(cpus) if cpus.isdecimal() else None


def _lines(wanted: set[str]) -> list[str]:
    """Return a line for each node of these partitions; if empty, of any."""
    lines = commands.output_of("scontrol", "show", "node", "-o").splitlines()
    return [line for line in lines if not wanted or wanted & _partitions(line)]


def _partitions(line: str) -> set[str]:
    return set((_field(line, "Partitions") or "").split(","))


def kept_off(placement: Placement, bad: Sequence[Node], good: Sequence[Node]) -> Placement | None:
    """Request the one GPU type that all `good` nodes have, else exclude the `bad` nodes by name.

    Return None if the user chose nodes or cards, or if too few nodes are left."""
    if any(_CHOSEN.match(word) for word in placement.options):
        return None
    names, types = {node.name for node in bad}, {node.card for node in good}
    if len(types) == 1 and None not in types and not types & {node.card for node in bad}:
        return replace(placement, gpu_type=types.pop())
    left = {node.name for node in good} - names
    return replace(placement, avoid=tuple(sorted(names))) if len(left) >= placement.nodes else None


def _partitions_for(placement: Placement) -> set[str]:
    """Return the partitions that the job may go to: as typed, else from the variable, else the default one; empty for
    any."""
    if named := _named(placement):
        return set(named.split(","))
    return {name[:-1] for name in commands.output_of("sinfo", "-h", "-o", "%P").split() if name.endswith("*")}


def _named(placement: Placement) -> str | None:
    return _typed(_PARTITION, placement) or placement.partition or os.environ.get("SBATCH_PARTITION") or None


def _node(line: str, gpus: int) -> Iterator[Node]:
    name, machine = _field(line, "NodeName"), architecture(_field(line, "Arch"))
    if name is None:
        return
    if not gpus:
        yield Node(name, machine)
    else:
        for card, count in _cards(line):
            yield Node(name, machine, card=card or None, gpus=count)


def _field(line: str, name: str) -> str | None:
    """Return the first value of that name: free text, such as a reason, comes last."""
    found = re.search(rf"(?:^| ){name}=(\S+)", line)
    return found[1] if found else None
