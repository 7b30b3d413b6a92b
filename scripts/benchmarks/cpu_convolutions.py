#!/usr/bin/env python3
"""Convolutions on this CPU by winograd.c and spectra.c beside PyTorch's own (oneDNN), as the rows of a table.

    PYTHON scripts/benchmarks/cpu_convolutions.py [--rounds 40]

PYTHON has PyTorch. Milliseconds, medians of alternating rounds: forward, gradient of the input, of the filters, of
both; "-" where winograd.c can't compute a convolution.
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

from trainer import kernels, layers, spectra
from trainer.frameworks.pytorch import memory, ops, spectral, tiled

SEVERAL = [  # window, examples, inputs, outputs, side, padding: cifar10-keras' two and cifar10's, then others
    (3, 32, 32, 64, 16, 1),
    (3, 32, 64, 64, 16, 0),
    (5, 128, 64, 64, 12, 2),
    (3, 32, 32, 32, 16, 1),
    (3, 128, 64, 64, 8, 1),
    (3, 8, 128, 128, 28, 1),
    (3, 8, 256, 256, 14, 1),
    (3, 128, 192, 192, 5, 1),
    (5, 16, 64, 64, 12, 2),
    (5, 32, 32, 32, 14, 2),
    (5, 32, 64, 192, 13, 2),
    (7, 32, 64, 64, 16, 3),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    memory.keep()  # as in a training
    library = kernels.library([layers.conv("c", 3, 32, 32, None)])
    if library is None:
        sys.exit("there is no C here: it needs gcc, and AVX2 or NEON")
    print("| window, channels, size, examples | forward | input | filters | both: oneDNN -> winograd.c -> spectra.c |")
    print("|---|---|---|---|---|")
    for window, examples, inputs, outputs, side, padding in SEVERAL:
        word = layers.conv("c", window, inputs, outputs, layers.normal(0.05), padding=padding)
        ways = [_parts(word, None, False, examples, side)]
        ways += [_parts(word, library, False, examples, side)] if kernels.can_be(word) else []
        ways += [_parts(word, library, True, examples, side)]
        taken = [[[part() for part in parts] for parts in ways] for _ in range(rounds)]
        cells = []
        for k in range(4):
            each = [f"{median(one[way][k] for one in taken):.2f}" for way in range(len(ways))]
            cells.append(" -> ".join(each if len(ways) == 3 else [each[0], "-", each[1]]))
        rule = "" if spectra.pays(word, examples, side, side) else ", not by spectra"
        what = f"{window} x {window}, {inputs} -> {outputs}, {side} x {side}, {examples}{rule}"
        print(f"| {what} | {' | '.join(cells)} |", flush=True)


def _parts(word: Any, library: Any, by_spectra: bool, examples: int, side: int) -> list[Callable[[], float]]:
    """Return functions that return the milliseconds of one part each: forward, each gradient, and both."""
    rows, columns, inputs, outputs = word["shape"]
    laid = {"memory_format": torch.channels_last}
    x = torch.randn(examples, inputs, side, side).contiguous(**laid)
    weights = (torch.randn(outputs, inputs, rows, columns) * 0.05).contiguous(**laid)
    at = _Pass(weights, library)

    def conv() -> Any:
        if by_spectra:
            return spectral.conv(word, x, weights, None, library)
        return tiled.conv(word, x, weights, None, library) if library else ops.conv(word, x, at)

    def timed(function: Callable[[], Any]) -> float:
        began = time.perf_counter()
        function()
        return (time.perf_counter() - began) * 1e3

    def backward(*wanted: Any) -> float:
        for one in x, weights:
            one.requires_grad_(any(one is other for other in wanted))
        found = conv()
        gradient = torch.ones_like(found)
        return timed(lambda: torch.autograd.grad(found, wanted, gradient))

    def forward() -> float:
        with torch.no_grad():
            return timed(conv)

    return [forward, lambda: backward(x), lambda: backward(weights), lambda: backward(x, weights)]


class _Pass:
    half, is_compiled = None, False

    def __init__(self, weights: Any, library: Any) -> None:
        self.weights, self.library = weights, library

    def get(self, _word: Any, _which: str) -> Any:
        return self.weights


if __name__ == "__main__":
    main()
