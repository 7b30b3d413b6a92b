"""How long a user waits for `cifar10-94` on a GPU, from the start of the process to the tested network.

NGCDL_CIFAR10: a folder with the images, as for gpu.py.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator

from card import CONTAINERS, named
from figures import Figure, Goal
from turns import seconds

KEPT = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH"


def measure(rounds: int | None) -> Iterator[Figure]:
    card, first, again = named(), [], []
    for _ in range(rounds or 3):
        with tempfile.TemporaryDirectory() as caches:
            first.append(_process(caches))
            again.append(_process(caches))
    what = "python -m trainer cifar10-94, the whole process"
    yield Figure(what, "s", tuple(first), Goal("ours", 10.0), note=f"nothing kept; {card}")
    yield Figure(f"{what}, again", "s", tuple(again), Goal("ours", 10.0), note=card)
    # too slow to repeat; the compiler's own processes may outlive it and keep writing
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as caches:
        try:
            took = f"{_process(caches, '--compile'):.1f} s, once, nothing kept"
        except SystemExit as ended:  # for example without a compiler
            took = str(ended)
    print(f"    {what}, --compile: {took}", flush=True)


def _process(caches: str, *options: str) -> float:
    """Return the seconds of a training in its own process; `caches` holds what libraries cache."""
    command = [sys.executable, "-m", "trainer", "cifar10-94", "--device", "gpu", "--runs", caches]
    command += ["--data", os.environ.get("NGCDL_CIFAR10", "synthetic"), *options]
    kept = {name: f"{caches}/{name}" for name in KEPT}
    return seconds(command, {**os.environ, **kept, "PYTHONPATH": str(CONTAINERS)})
