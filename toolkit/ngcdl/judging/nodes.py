"""Judges an image for a cluster's nodes: refuses it, keeps it off unfit nodes, or warns that nothing keeps it off them.

All nodes that a run might be placed on are inspected, and perhaps more: if none of these can run it, no node can.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from ngcdl.engines.base import Cluster
from ngcdl.engines.values import Node
from ngcdl.errors import EngineError, ImageUnfit, NgcdlError
from ngcdl.frozen import dataclass
from ngcdl.judging import judge
from ngcdl.judging.imagefacts import Found
from ngcdl.preflight.facts import Gpu, HostFacts, ImageFacts, Reason
from ngcdl.preflight.names import brand_of, capability_of
from ngcdl.preflight.verdict import judge_host
from ngcdl.settings import Settings
from ngcdl.spec import ImageRef, Placement

_NAMES = 4  # at most this many nodes are named in a sentence


@dataclass(frozen=True)
class NodeKind:
    """Nodes with the same verdict. `reasons` are the verdict's, the decisive one first."""

    nodes: tuple[Node, ...]
    host: HostFacts
    reasons: tuple[Reason, ...]

    @property
    def is_bad(self) -> bool:
        return any(reason.level == "no" for reason in self.reasons)

    def __str__(self) -> str:
        names = list(dict.fromkeys(node.name for node in self.nodes))
        more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
        card = f" ({self.nodes[0].card})" if self.nodes[0].card else ""
        return ", ".join(names[:_NAMES]) + more + card


@dataclass(frozen=True)
class NodeReport:
    """What a cluster reported: its `nodes`, or the `trouble` that prevented it."""

    nodes: tuple[Node, ...] = ()
    trouble: EngineError | None = None

    @property
    def architecture(self) -> str:
        """The most frequent architecture of the nodes, amd64 if none is known."""
        known = Counter(node.architecture for node in self.nodes if node.architecture)
        return max(known, key=lambda one: known[one], default="amd64")


def ask(cluster: Cluster, placement: Placement, gpus: int) -> NodeReport:
    """Ask for the nodes that a run with `gpus` GPUs on each may be placed on."""
    try:
        return NodeReport(cluster.nodes(placement, gpus))
    except EngineError as error:
        return NodeReport(trouble=error)


def keep_off_unfit_nodes(
    ref: ImageRef,
    found: Found | NgcdlError,
    told: NodeReport,
    cluster: Cluster,
    placement: Placement,
    settings: Settings,
    *,
    command: str = "run",
    on_cpu: bool = False,
    force: bool = False,
) -> tuple[Placement, tuple[str, ...]]:
    """Return a placement that keeps a run of `ref` off nodes that can't run it, and the warnings to show.

    Raise ImageUnfit if too few nodes can run it; with `force` that is only a warning. Unknown facts refuse nothing.
    """
    if told.trouble:
        return placement, (f"it is not known whether the cluster's nodes can run {ref}: {told.trouble.message}",)
    if isinstance(found, NgcdlError) or not told.nodes:
        return placement, ()  # the digest lookup, or the cluster itself, explains it better
    placement = replace(placement, gpu_type=None, avoid=())
    kinds = judged(found.facts, told.nodes, on_cpu)
    bad = [kind for kind in kinds if kind.is_bad]
    good = [node for kind in kinds if not kind.is_bad for node in kind.nodes]
    if not bad:
        return placement, _cautions(kinds)
    left = len({node.name for node in good})
    if left < placement.nodes:
        return placement, (judge.forced(_refusal(ref, bad[0], left, settings, command), force),)
    lines = [f"{kind} can't run {ref}: {judge.in_a_line(kind.reasons[0])}" for kind in bad]
    kept = None if force else cluster.kept_off(placement, [node for kind in bad for node in kind.nodes], good)
    lines.append("the run is kept off them" if kept else "nothing keeps the run off them")
    return kept or placement, (*lines, *_cautions(kinds))


def judged(facts: ImageFacts, nodes: Sequence[Node], on_cpu: bool) -> list[NodeKind]:
    """Judge an image for each kind of node, the most frequent first."""
    alike: dict[Node, list[Node]] = {}
    for node in nodes:
        alike.setdefault(replace(node, name="", gpus=0), []).append(node)
    kinds = []
    for kind, those in sorted(alike.items(), key=lambda pair: -len(pair[1])):
        host = _host(kind, facts, on_cpu)
        kinds.append(NodeKind(tuple(those), host, tuple(judge.that_matter(judge_host(facts, host), on_cpu))))
    return kinds


def _host(node: Node, facts: ImageFacts, on_cpu: bool) -> HostFacts:
    """Return the facts about a node; if its architecture is unknown, one that the image is made for."""
    card = node.card
    capability = node.capability or (capability_of(card) if card else None)
    gpu = Gpu(capability, card, brand_of(card) if card else None)
    would_do = (facts.architectures or ("amd64",))[0]
    return HostFacts(node.architecture or would_do, node.driver, () if on_cpu else (gpu,))


def _cautions(kinds: Sequence[NodeKind]) -> tuple[str, ...]:
    """Return the cautions of the most frequent kind that is not refused and has any."""
    for kind in kinds:
        doubts = [judge.in_a_line(reason) for reason in kind.reasons if reason.level == "caution"]
        if doubts and not kind.is_bad:
            return (f"{kind}: {'; '.join(doubts)}",)
    return ()


def _refusal(ref: ImageRef, kind: NodeKind, left: int, settings: Settings, command: str) -> ImageUnfit:
    host = kind.host
    take = judge.newest_known(ref, host, settings)
    where = f"on more than {left} of the cluster's nodes" if left else "on the cluster's nodes"
    refusals = [reason for reason in kind.reasons if reason.level == "no"]
    why = f"{kind}: {'. Besides, '.join(map(judge.in_a_line, refusals))}"
    return judge.refusal(ref, refusals, why, take, command, where=where, host=_words(host))


def _words(host: HostFacts) -> str:
    """Describe a host in the form that `ngcdl check --host` takes."""
    card = host.gpus[0] if host.gpus else Gpu(None)
    known = {"driver": host.driver, "cc": card.capability, "brand": card.brand, "arch": host.architecture}
    return ",".join(f"{name}={value}" for name, value in known.items() if value and re.fullmatch(r"[\w.]+", value))
