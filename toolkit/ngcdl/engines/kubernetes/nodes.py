"""What Kubernetes tells of its nodes: the architecture, and the driver and the cards where NVIDIA's labels are on them.

GPU feature discovery writes these, for the cards of one model on each node:
https://github.com/NVIDIA/k8s-device-plugin/blob/main/docs/gpu-feature-discovery/README.md#generated-labels
The names cuda.driver.* are the older ones, which newer releases still write, beside cuda.driver-version.*.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ngcdl.engines.base import Node
from ngcdl.engines.kubernetes.kubectl import Kubectl

SECONDS = 10  # a run goes on without an answer
_GPU = "nvidia.com/gpu"
_ARCHITECTURE, _PRODUCT, _NAME = "kubernetes.io/arch", f"{_GPU}.product", "kubernetes.io/hostname"
_BY_LABEL: Mapping[str, Callable[[Node], str | None]] = {
    _ARCHITECTURE: lambda node: node.architecture,
    _PRODUCT: lambda node: node.card,
    _NAME: lambda node: node.name,
}


def of(kubectl: Kubectl, gpus: int) -> tuple[Node, ...]:
    """Give the nodes with so many GPUs; with `gpus` 0 their cards are left out. Raises ClusterError."""
    told = kubectl.json("get", "nodes", seconds=SECONDS)
    found = [_node(item, gpus) for item in told.get("items", [])]
    return tuple(node for node in found if node.gpus >= gpus)


def labels_of(bad: Sequence[Node], good: Sequence[Node]) -> tuple[str, ...]:
    """Give labels, KEY=VALUE, of which each of the `bad` nodes has one and no `good` one has any: the fewest words."""
    labels: list[str] = []
    left = list(bad)
    for key, value in _BY_LABEL.items():
        theirs = {value(node) for node in left} - {value(node) for node in good} - {None}
        labels += sorted(f"{key}={one}" for one in theirs)
        left = [node for node in left if value(node) not in theirs]
    return tuple(labels)


def _node(item: Mapping[str, Any], gpus: int) -> Node:
    about = item["metadata"]
    labels = about.get("labels") or {}
    name, architecture = labels.get(_NAME) or about["name"], labels.get(_ARCHITECTURE)
    if not gpus:
        return Node(name, architecture)
    has = _number(item.get("status", {}).get("capacity", {}).get(_GPU))
    driver = labels.get("nvidia.com/cuda.driver-version.full") or _joined(
        labels, "cuda.driver", "major", "minor", "rev"
    )
    # A node with cards of several models has the labels of one of them, and their number.
    if has > _number(labels.get(f"{_GPU}.count")) * max(_number(labels.get(f"{_GPU}.replicas")), 1):
        return Node(name, architecture, driver, gpus=has)
    capability = _joined(labels, "gpu.compute", "major", "minor")
    return Node(name, architecture, driver, labels.get(_PRODUCT), capability, has)


def _joined(labels: Mapping[str, str], name: str, *parts: str) -> str | None:
    """Give a version out of its parts; the last ones may be empty."""
    found = [labels.get(f"nvidia.com/{name}.{part}") or "" for part in parts]
    return ".".join(part for part in found if part) if all(found[:2]) else None


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() else 0
