#!/usr/bin/env python3
"""A model of what 8, 64 and 512 GPUs cost: the tables of docs/scale.md, and the model's error against measurements.

    scripts/benchmarks/scale.py            print the tables
    scripts/benchmarks/scale.py --write    put them into docs/scale.md, between its markers

Nothing is measured here. Every input number has its source or the word "assumed" beside it.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import NormalDist

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "toolkit"))

from ngcdl.trainings import bundled

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "scale.md"
BEGIN, END = "<!-- scripts/benchmarks/scale.py -->", "<!-- end -->"
GPUS_A_NODE = 8
SIZES = (8, 64, 512)
GRADIENT_BYTES = 4  # per parameter: the trainer exchanges float32

# -- the network ------------------------------------------------------------------------------------------------------
LINE_SHARE = 0.85  # assumed: the share of a link's rate that NCCL achieves
# assumed: NVLink within a node, in terms of nccl-tests' bus bandwidth (V100 and later have more)
NODE_BYTES_PER_SECOND = 120e9
# From public runs of nccl-tests on 2, 4 and 8 nodes of 8 V100: 163, 318 and 632 us for 8 bytes.
# https://gist.github.com/jacobkahn/a92f4425abf831ac0799fabe9079263d and its neighbours
LATENCY_SECONDS = 632e-6 / 64  # per replica, in a ring
TREE_SECONDS = 30e-6  # assumed: per level of a tree, which NCCL uses for small buckets and many replicas
CALLS = 4  # assumed: the number of buckets that the gradients are split into


@dataclass(frozen=True)
class Network:
    """`node_gigabits`: the rate of all links of a node together."""

    name: str
    node_gigabits: float

    @property
    def bytes_per_second(self) -> float:
        return self.node_gigabits / 8 * 1e9 * LINE_SHARE


ETHERNET = Network("10 Gb/s", 10)
ONE_LINE = Network("100 Gb/s", 100)
EIGHT_LINES = Network("8 x 200 Gb/s", 1600)


def exchange_seconds(parameters: int, replicas: int, network: Network) -> float:
    """Return the time to all-reduce the gradients: 2 (N - 1) / N of the bytes over the slowest link, plus latency.

    https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md"""
    if replicas == 1:
        return 0.0
    crosses = replicas > GPUS_A_NODE
    rate = min(NODE_BYTES_PER_SECOND, network.bytes_per_second) if crosses else NODE_BYTES_PER_SECOND
    latency = min(LATENCY_SECONDS * replicas, TREE_SECONDS * 2 * math.log2(replicas))
    return 2 * (replicas - 1) / replicas * parameters * GRADIENT_BYTES / rate + CALLS * latency


# -- the step ---------------------------------------------------------------------------------------------------------
@cache
def slowest(replicas: int) -> float:
    """Return by how many standard deviations the slowest of N replicas is expected to exceed the mean time of a
    step."""
    normal, step = NormalDist(), 0.02
    grid = [-8 + step * number for number in range(int(16 / step))]
    densities = (replicas * normal.cdf(x) ** (replicas - 1) * normal.pdf(x) * x for x in grid)
    return sum(densities) * step


@dataclass(frozen=True)
class Fit:
    """`spread`: relative standard deviation of a replica's step; `exposed`: share of the exchange not overlapped."""

    spread: float
    exposed: float

    def efficiency(self, parameters: int, step_seconds: float, replicas: int, network: Network) -> float:
        """Return R_N / (N R_1), with the same batch on each replica."""
        waits = self.exposed * exchange_seconds(parameters, replicas, network)
        return step_seconds / (step_seconds * (1 + self.spread * max(slowest(replicas), 0)) + waits)


@dataclass(frozen=True)
class Measured:
    """Examples per second of ResNet-50 v1.5 by number of GPUs, with `batch` examples on each."""

    name: str
    batch: int
    rates: tuple[tuple[int, float], ...]
    network: Network

    @property
    def step_seconds(self) -> float:
        return self.batch / self.rates[0][1]

    def efficiencies(self) -> Iterator[tuple[int, float]]:
        for replicas, rate in self.rates[1:]:
            yield replicas, rate / replicas / self.rates[0][1]


# https://github.com/Oneflow-Inc/DLPerf/tree/master/NVIDIADeepLearningExamples/PyTorch/resnet50v1.5: nvcr.io/nvidia/
# pytorch:20.03-py3, 8 V100 SXM2 16 GB per node, one link of 100 Gb/s InfiniBand, medians of 5
V100_FP32 = Measured(
    "V100, float32, batch 128", 128, ((1, 367.29), (4, 1449.48), (8, 2887.65), (16, 5716.79), (32, 10917.09)), ONE_LINE
)
V100_AMP = Measured(
    "V100, mixed, batch 256", 256, ((1, 802.9), (4, 3137.44), (8, 6154.66), (16, 11991.94), (32, 22551.16)), ONE_LINE
)
# DGX A100, 21.03: https://github.com/NVIDIA/DeepLearningExamples/tree/master/PyTorch/Classification/ConvNets/resnet50v1.5
A100_TF32 = Measured("A100, TF32, batch 256", 256, ((1, 938), (8, 7248)), EIGHT_LINES)
A100_AMP = Measured("A100, mixed, batch 256", 256, ((1, 2470), (8, 16621)), EIGHT_LINES)
FITTED, HELD_BACK = (V100_FP32, V100_AMP), (A100_TF32, A100_AMP)


def fitted(series: Iterable[Measured]) -> Fit:
    """Return the least-squares fit, found on a grid."""
    parameters, points = bundled("resnet-50").parameters, list(series)

    def error(fit: Fit) -> float:
        return sum(
            (fit.efficiency(parameters, one.step_seconds, replicas, one.network) - measured) ** 2
            for one in points
            for replicas, measured in one.efficiencies()
        )

    grid = [Fit(spread / 1000, exposed / 20) for spread in range(0, 61, 2) for exposed in range(21)]
    return min(grid, key=error)


# -- until the first step ---------------------------------------------------------------------------------------------
# nvcr.io/nvidia/pytorch:25.09-py3 as squashfs: 18 GB, 7.1 GB with zstd (https://github.com/NVIDIA/pyxis/wiki/Advanced-Topics)
UNPACKED_BYTES, SQUASHED_BYTES = 18e9, 7.1e9
LAYERS_BYTES = 9e9  # assumed: its layers, gzip
UPLINK = 10e9 / 8  # assumed: the site's link to nvcr.io
REGISTRY = 100e9 / 8 * LINE_SHARE  # assumed: the link of a mirror in the cluster
NODE_LINE = 25e9 / 8 * LINE_SHARE  # assumed: a node's link to storage and mirror
SHARED = 20e9  # assumed: the shared file system's rate for all nodes together
UNPACKING = 0.25e9  # assumed: bytes per second of unpacked output, by a node's gunzip and disk
SQUASHING = 0.5e9  # assumed: mksquashfs
STARTING_SECONDS = 20.0  # assumed: entrypoint, import of the framework, CUDA context
MEETING_SECONDS = 0.02  # assumed: rendezvous time per replica


def pulls(nodes: int) -> tuple[float, float, float]:
    """Return the seconds until the last node has its image: each from nvcr.io, from a mirror, as a shared file."""
    unpacked = UNPACKED_BYTES / UNPACKING
    alone = LAYERS_BYTES / min(UPLINK / nodes, NODE_LINE) + unpacked
    mirrored = LAYERS_BYTES / UPLINK + LAYERS_BYTES / min(REGISTRY / nodes, NODE_LINE) + unpacked
    imported = LAYERS_BYTES / UPLINK + unpacked + UNPACKED_BYTES / SQUASHING
    return alone, mirrored, imported + shared_seconds(nodes)


def shared_seconds(nodes: int) -> float:
    return SQUASHED_BYTES / min(SHARED / nodes, NODE_LINE)


# -- tables -----------------------------------------------------------------------------------------------------------
def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = [list(heads), *map(list, rows)]
    lines = ["| " + " | ".join(row) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "---|" * len(cells[0]), *lines[1:]])


def against(fit: Fit) -> str:
    parameters = bundled("resnet-50").parameters
    rows = []
    for one in (*FITTED, *HELD_BACK):
        for replicas, measured in one.efficiencies():
            model = fit.efficiency(parameters, one.step_seconds, replicas, one.network)
            use = "fitted" if one in FITTED else "not used"
            rows.append([one.name, f"{replicas}", f"{measured:.3f}", f"{model:.3f}", f"{model - measured:+.3f}", use])
    return table(("ResNet-50 v1.5", "GPUs", "measured", "model", "difference", "for the model"), rows)


def efficiencies(fit: Fit) -> str:
    """Weak scaling on A100 in TF32, at the operations per second measured for ResNet-50, with 256 examples per GPU."""
    rate = A100_TF32.rates[0][1] * bundled("resnet-50").flops_per_example
    rows = []
    for name in ("resnet-50", "resnet-56", "alexnet-s", "cifar10", "fcn-s"):
        known = bundled(name)
        step = 256 * known.flops_per_example / rate
        for network in (ETHERNET, ONE_LINE, EIGHT_LINES):
            parts = [
                f"{fit.efficiency(known.parameters, step, replicas, network):.2f} to "
                f"{Fit(fit.spread, 1.0).efficiency(known.parameters, step, replicas, network):.2f}"
                for replicas in SIZES
            ]
            rows.append([name, f"{known.parameters / 1e6:.1f}", f"{step * 1000:.1f}", network.name, *parts])
    heads = ("training", "parameters, millions", "step of one GPU, ms", "a node's lines", *map("{} GPUs".format, SIZES))
    return table(heads, rows)


def beginnings() -> str:
    rows = []
    for gpus in SIZES:
        nodes = gpus // GPUS_A_NODE
        seconds = [*pulls(nodes), shared_seconds(nodes), STARTING_SECONDS + MEETING_SECONDS * gpus]
        rows.append([f"{gpus}", f"{nodes}", *(f"{one:,.0f}" for one in seconds)])
    heads = (
        "GPUs", "nodes", "each node from nvcr.io, s", "by a mirror, s", "imported once, shared, s",
        "the shared file is there, s", "start, s",
    )  # fmt: skip
    return table(heads, rows)


def data() -> str:
    """What all GPUs read. ImageNet is 1.28 million JPEGs of 110 kB, 148 GB; a CIFAR-10 image has 3,073 bytes."""
    rows = []
    for name, bytes_each, whole, rate in (
        ("resnet-50 on ImageNet, A100 mixed", 110e3, "148 GB", A100_AMP.rates[0][1]),
        ("resnet-50 on ImageNet, A100 TF32", 110e3, "148 GB", A100_TF32.rates[0][1]),
        ("cifar10, 100,000 images/s on each GPU (assumed)", 3073, "0.18 GB", 100e3),
    ):
        rows.append([name, whole, *(f"{gpus * rate * bytes_each / 1e9:,.1f}" for gpus in SIZES)])
    return table(("training", "the data", *(f"{gpus} GPUs, GB/s" for gpus in SIZES)), rows)


def failures() -> str:
    """419 failures in 54 days on 16,384 GPUs: https://arxiv.org/abs/2407.21783, section 3.3.4 (recalled)."""
    gpu_hours, checkpoint, again = 16384 * 54 * 24 / 419, 600.0, 300.0
    rows = []
    for gpus in SIZES:
        hours = gpu_hours / gpus
        rows.append([f"{gpus}", f"{hours:,.0f}", f"{(checkpoint / 2 + again) / (hours * 3600):.2%}"])
    return table(
        ("GPUs", "hours between failures", "lost, with a checkpoint each 10 min and 5 min to begin again"), rows
    )


def tables() -> str:
    fit = fitted(FITTED)
    words = (
        f"The fit: a replica's step varies by {fit.spread:.1%} of itself, and {fit.exposed:.0%} of the exchange is not "
        "hidden behind the computing."
    )
    parts = {
        "The model against what was measured": f"{words}\n\n{against(fit)}",
        "Until the first step": beginnings(),
        "Data": data(),
        "Gradient exchange": efficiencies(fit),
        "Failures": failures(),
    }
    return "\n\n".join(f"### {title}\n\n{text}" for title, text in parts.items())


def written(document: str) -> str:
    head, _, rest = document.partition(BEGIN)
    return f"{head}{BEGIN}\n\n{tables()}\n\n{END}{rest.partition(END)[2]}"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--write", action="store_true")
    if options.parse_args().write:
        DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(tables())


if __name__ == "__main__":
    main()
