"""The samples of a run: measured by ngcdl, or by the trainer on each node of a cluster, and then combined."""

from __future__ import annotations

import heapq
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import inf
from operator import itemgetter
from pathlib import Path
from typing import Any

from ngcdl.folder import SAMPLES, SAMPLES_OF_NODES, last_lines, lines

# Each node samples once a second, at a time of its own.
SECOND = 1.0
# If a node's last sample is more than this long ago, the node has ended.
GONE_SECONDS = 2.0
# Nodes begin together: a node whose first sample is more than this much later replaced another one, after a restart.
LATE_SECONDS = 60.0
# Whoever writes into a run's folder could make up any number of nodes, and each sample asks after every node.
MOST_NODES = 1024


def samples(folder: Path, last_bytes: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the samples of the run in `folder`, or those in the `last_bytes` of each file.

    Samples of several nodes in the same second become one, with the GPUs of all nodes, each with its `node`: fields in
    _OF_NODES are combined, and the first node provides the others. If a running node has no sample in that second, the
    fields in _OF_NODES are left out. None has `seconds` then: each node's sampler began at a time of its own."""
    files = sample_files(folder)
    if len(files) > MOST_NODES:
        warnings.warn(f"{folder} has samples of {len(files)} nodes: {MOST_NODES} of them are read", stacklevel=1)
        files = files[:MOST_NODES]
    found = [lines(path) if last_bytes is None else last_lines(path, last_bytes) for path in files]
    if len(found) == 1:
        return found[0]
    return _together([_named(one, path.stem.partition("-")[2]) for one, path in zip(found, files, strict=True)])


def sample_files(folder: Path) -> list[Path]:
    """Return the files with the samples: one per node, or the one that ngcdl writes."""
    return sorted(folder.glob(SAMPLES_OF_NODES)) or [folder / SAMPLES]


def _named(samples: Iterable[dict[str, Any]], node: str) -> Iterator[dict[str, Any]]:
    """Note in each card's reading whose card it is: those of several nodes have the same indexes."""
    for sample in samples:
        gpus = sample.get("gpus")
        for gpu in gpus if isinstance(gpus, list) else ():
            if isinstance(gpu, dict):
                gpu["node"] = node
        yield sample


def _together(of_nodes: Sequence[Iterable[dict[str, Any]]]) -> Iterator[dict[str, Any]]:
    found: dict[int, dict[str, Any]] = {}
    first: dict[int, float] = {}
    ended: dict[int, float] = {}
    began = 0.0

    def is_away(node: int) -> bool:
        return ended.get(node, inf) < began - GONE_SECONDS or first.get(node, -inf) > began + LATE_SECONDS

    def is_whole() -> bool:
        return all(node in found or is_away(node) for node in range(len(of_nodes)))

    timed = [_timed(one, node, first, ended) for node, one in enumerate(of_nodes)]
    for t, node, sample in heapq.merge(*timed, key=itemgetter(0)):
        if found and (node in found or t - began >= SECOND):
            yield _one(found, is_whole())
            found = {}
        began = began if found else t
        found[node] = sample
    if found:
        yield _one(found, is_whole())


def _timed(
    samples: Iterable[dict[str, Any]], node: int, first: dict[int, float], ended: dict[int, float]
) -> Iterator[tuple[float, int, dict[str, Any]]]:
    """Yield time, node and sample for each sample with a time. Put the first time into `first`, and once all samples
    are read, the last time into `ended`."""
    last = -inf
    for sample in samples:
        if _fits(sample.get("t")):
            last = sample["t"]
            first.setdefault(node, last)
            yield last, node, sample
    ended[node] = last


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)  # importing statistics would add 5 ms to each command's start


# How to combine the values of several nodes. A percentage of a node's processors is averaged. For memory, the fullest
# node and the smallest limit count: a run ends there first.
_OF_NODES: Mapping[str, Callable[[list[Any]], Any]] = {
    "host_cpu_percent": _mean,
    "cpu_percents": lambda nodes: [*chain.from_iterable(nodes)],
    "threads_running": _mean,
    "host_memory_bytes": max,
    "container_cpu_percent": sum,
    "memory_bytes": max,
    "memory_limit_bytes": min,
    "memory_pressure_percent": max,
    "memory_oom_kills": sum,
}


def _one(found: Mapping[int, dict[str, Any]], is_whole: bool) -> dict[str, Any]:
    """Combine the nodes' samples. If a node does not know a field of _OF_NODES, the field is None. If a node's sample
    lacks the field, or a running node has no sample (not `is_whole`), the field is left out."""
    nodes = [sample for _, sample in sorted(found.items())]
    lists = (sample.get("gpus") for sample in nodes)
    one = {**nodes[0], "gpus": [gpu for gpus in lists if isinstance(gpus, list) for gpu in gpus]}
    one.pop("seconds", None)
    for name in _OF_NODES if len(nodes) > 1 or not is_whole else ():
        values = [sample[name] for sample in nodes if name in sample]
        if is_whole and len(values) == len(nodes):
            is_known = all(isinstance(value, list) if name == "cpu_percents" else _fits(value) for value in values)
            one[name] = _OF_NODES[name](values) if is_known else None
        else:
            one.pop(name, None)
    if gap := next((sample["gap"] for sample in nodes if sample.get("gap")), None):
        one["gap"] = gap
    return one


def _fits(value: object) -> bool:
    """Return whether `value` is a number that can be added up, unlike NaN, which some programs write."""
    return type(value) in (float, int) and -1e300 < value < 1e300  # type: ignore[operator]  # it is a number
