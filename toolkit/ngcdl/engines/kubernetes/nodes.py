"""What Kubernetes knows about its nodes: the architecture and, if they have NVIDIA's labels, the driver and the cards;
and whether NVIDIA's runtime has to be named.

GPU feature discovery writes these labels, for one model of card per node:
https://github.com/NVIDIA/k8s-device-plugin/blob/main/docs/gpu-feature-discovery/README.md#generated-labels
The names cuda.driver.* are the older ones, which newer releases still write, beside cuda.driver-version.*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ngcdl.engines.kubernetes.kubectl import Kubectl
from ngcdl.engines.kubernetes.pod import GPU
from ngcdl.engines.values import Node
from ngcdl.errors import EngineError
from ngcdl.frozen import dataclass

SECONDS = 10  # a run goes on without an answer
# The RuntimeClass that k3s, RKE2 and NVIDIA's GPU operator create. Where another runtime is the default, as on the
# first two, a pod that doesn't name it gets its GPUs without the driver: https://docs.k3s.io/advanced
# https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/cdi.html
RUNTIME = "nvidia"
_SYSTEM = "kubernetes.io/os"
_ARCHITECTURE, _PRODUCT, _NAME = "kubernetes.io/arch", f"{GPU}.product", "kubernetes.io/hostname"
_BY_LABEL: Mapping[str, Callable[[Node], str | None]] = {
    _ARCHITECTURE: lambda node: node.architecture,
    _PRODUCT: lambda node: node.card,
    _NAME: lambda node: node.name,
}


@dataclass(frozen=True)
class Seen:
    """What the caller may see of a cluster: its nodes, or the error `trouble` if they can't be listed; `has_runtime`:
    there is a RuntimeClass called RUNTIME."""

    nodes: tuple[Mapping[str, Any], ...]
    has_runtime: bool
    trouble: EngineError | None = None


def seen(kubectl: Kubectl) -> Seen:
    try:
        found, trouble = kubectl.visible("nodes,runtimeclasses.node.k8s.io", SECONDS)
    except EngineError as error:
        return Seen((), False, error)
    nodes = tuple(item for item in found if item.get("kind") != "RuntimeClass")
    classes = {item["metadata"]["name"] for item in found if item.get("kind") == "RuntimeClass"}
    return Seen(nodes, RUNTIME in classes, None if nodes else trouble)


def with_gpus(cluster: Seen, gpus: int, labels: Mapping[str, str] = MappingProxyType({})) -> tuple[Node, ...]:
    """Return the Linux nodes that have these labels and at least `gpus` GPUs; if `gpus` is 0, all of them, without
    their cards. Raise the cluster's trouble."""
    if cluster.trouble:
        raise cluster.trouble
    found = [_node(item, gpus) for item in cluster.nodes if _has(item, labels)]
    return tuple(node for node in found if node.gpus >= gpus)


def labels_of(bad: Sequence[Node], good: Sequence[Node]) -> tuple[str, ...]:
    """Return labels, KEY=VALUE, such that each `bad` node has one and no `good` node has any; as few as possible."""
    labels: list[str] = []
    left = list(bad)
    for key, value in _BY_LABEL.items():
        theirs = {value(node) for node in left} - {value(node) for node in good} - {None}
        labels += sorted(f"{key}={one}" for one in theirs)
        left = [node for node in left if value(node) not in theirs]
    return tuple(labels)


def _has(item: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    its = {_SYSTEM: "linux", **(item["metadata"].get("labels") or {})}
    return its.items() >= {_SYSTEM: "linux", **labels}.items()


def _node(item: Mapping[str, Any], gpus: int) -> Node:
    about = item["metadata"]
    labels = about.get("labels") or {}
    name, architecture = labels.get(_NAME) or about["name"], labels.get(_ARCHITECTURE)
    if not gpus:
        return Node(name, architecture)
    has = _number(item.get("status", {}).get("capacity", {}).get(GPU))
    driver = labels.get("nvidia.com/cuda.driver-version.full") or _joined(
        labels, "cuda.driver", "major", "minor", "rev"
    )
    # A node with several models of card has the labels, and the count, of only one model.
    if has > _number(labels.get(f"{GPU}.count")) * max(_number(labels.get(f"{GPU}.replicas")), 1):
        return Node(name, architecture, driver, gpus=has)
    capability = _joined(labels, "gpu.compute", "major", "minor")
    return Node(name, architecture, driver, labels.get(_PRODUCT), capability, has)


def _joined(labels: Mapping[str, str], name: str, *parts: str) -> str | None:
    """Join a version from its parts; the last ones may be empty."""
    found = [labels.get(f"nvidia.com/{name}.{part}") or "" for part in parts]
    return ".".join(part for part in found if part) if all(found[:2]) else None


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
