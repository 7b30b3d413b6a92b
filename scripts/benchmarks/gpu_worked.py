#!/usr/bin/env python3
"""Does NVML tell how much of a card works? Each percentage must be given, and be higher under load than before it.

    PYTHON scripts/benchmarks/gpu_worked.py [SECONDS]

Reads the cards by the trainer's code: idle for SECONDS (2), then while PyTorch multiplies large matrices in 16 bits for
as long. Of several cards the one that works most counts, so nothing else may use them. Cards that don't have the
counters (older than Hopper, or with MIG on) pass, and it is said.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "containers"))

from trainer import gpm, nvml

SIZE = 8192  # of square matrices: 128 MiB each, more than a card's caches hold
NAMES = [name for name, _ in gpm.METRICS]


def main(seconds: float = 2.0) -> int | str:
    matrix = torch.ones(SIZE, SIZE, device="cuda", dtype=torch.float16)
    with nvml.opened() as library:
        if library is None:
            return "NVML can't be opened"
        library.readings()  # the first one only begins
        time.sleep(seconds)
        idle = percents(library.readings())
        end = time.monotonic() + seconds
        is_done = False
        while not is_done:
            torch.matmul(matrix, matrix)
            torch.cuda.synchronize()
            is_done = time.monotonic() >= end
        loaded = percents(library.readings())
    for name, before, after in zip(NAMES, idle, loaded, strict=True):
        print(f"{name}: {before} idle, {after} under load", flush=True)
    if {*idle, *loaded} == {None}:
        print("no card here gives them: not checked")
        return 0
    wrong = [name for name, before, after in zip(NAMES, idle, loaded, strict=True) if not is_higher(before, after)]
    return f"not given, or no higher under load: {', '.join(wrong)}" if wrong else 0


def percents(cards: Sequence[dict[str, float | None]]) -> list[float | None]:
    """Return the highest of each percentage, None if no card gives it. The trainer's code bounds them to 0..100."""
    return [max((one for card in cards if (one := card[name]) is not None), default=None) for name in NAMES]


def is_higher(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after > before


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:])))
