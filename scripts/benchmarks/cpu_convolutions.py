#!/usr/bin/env python3
"""3 x 3 convolutions on this CPU by winograd.c beside PyTorch's own (oneDNN), as the rows of a table.

    PYTHON scripts/benchmarks/cpu_convolutions.py [--rounds 40]

PYTHON has PyTorch. Milliseconds, medians of alternating rounds: forward, gradient of the input, and of the filters.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "containers"))

import torch

from trainer import kernels, layers
from trainer.frameworks.pytorch import memory, ops

SEVERAL = [  # examples, inputs, outputs, side, padding: cifar10-keras' two, then others
    (32, 32, 64, 16, 1),
    (32, 64, 64, 16, 0),
    (32, 32, 32, 16, 1),
    (128, 64, 64, 8, 1),
    (8, 128, 128, 28, 1),
    (8, 256, 256, 14, 1),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    memory.keep()  # as in a training
    for examples, inputs, outputs, side, padding in SEVERAL:
        word = layers.conv("c", 3, inputs, outputs, layers.normal(0.05), padding=padding)
        library = kernels.library([word])
        if library is None:
            sys.exit("winograd.c can't be compiled here: it needs gcc, and AVX2 or NEON")
        ways = [_parts(word, by, examples, side) for by in (None, library)]
        taken = [[part() for part in parts] for _ in range(rounds) for parts in ways]
        cells = [
            f"{median(one[k] for one in taken[::2]):.2f} -> {median(one[k] for one in taken[1::2]):.2f}"
            for k in range(len(ways[0]))
        ]
        print(f"| {inputs} -> {outputs}, {side} x {side}, {examples} | {' | '.join(cells)} |", flush=True)


def _parts(word: Any, library: Any, examples: int, side: int) -> list[Callable[[], float]]:
    """Return functions that return the milliseconds of one part each: forward and both gradients."""
    inputs, outputs = word["shape"][2:]
    laid = {"memory_format": torch.channels_last}
    x = torch.randn(examples, inputs, side, side).contiguous(**laid)
    weights = (torch.randn(outputs, inputs, 3, 3) * 0.05).contiguous(**laid)
    at = _Pass(weights, library)

    def timed(function: Callable[[], Any]) -> float:
        began = time.perf_counter()
        function()
        return (time.perf_counter() - began) * 1e3

    def backward(wanted: Any) -> float:
        for one in x, weights:
            one.requires_grad_(one is wanted)
        found = ops.conv(word, x, at)
        gradient = torch.ones_like(found)
        return timed(lambda: torch.autograd.grad(found, [wanted], gradient))

    def forward() -> float:
        with torch.no_grad():
            return timed(lambda: ops.conv(word, x, at))

    return [forward, lambda: backward(x), lambda: backward(weights)]


class _Pass:
    half, is_compiled = None, False

    def __init__(self, weights: Any, library: Any) -> None:
        self.weights, self.library = weights, library

    def get(self, _word: Any, _which: str) -> Any:
        return self.weights


if __name__ == "__main__":
    main()
