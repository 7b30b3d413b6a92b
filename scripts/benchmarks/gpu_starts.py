"""How long a user waits for `cifar10-94` on a GPU, from the start of the process to the tested network.

NGCDL_CIFAR10: a folder with the images, as for gpu.py. Without it images are made up, which takes another time, so that
there is no goal.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator

import card
from figures import Figure, Goal
from turns import in_turn, run

KEPT = "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH"


def measure(rounds: int | None, until: float) -> Iterator[Figure]:
    here, is_real = card.conditions(), bool(os.environ.get("NGCDL_CIFAR10"))
    took = in_turn({"nothing kept": _alone}, rounds or 3, 0, until)["nothing kept"]
    what = f"python -m trainer cifar10-94{'' if is_real else ' on made-up images'}, the whole process"
    goal = Goal("ours", 10.0) if is_real else None
    yield Figure(what, "s", took, goal, note="nothing kept", conditions=here)
    # too slow for more rounds; the compiler's own processes may outlive it and keep writing
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as caches:
        for kept in "nothing kept", "again, with the compiler's caches":
            if time.monotonic() > until:
                print(f"    {what}, --compile: not measured, {kept}: the time is up", flush=True)
                continue
            try:
                said = f"{_process(caches, '--compile'):.1f} s, once, {kept}"
            except SystemExit as ended:  # for example without a compiler
                said = str(ended)
            print(f"    {what}, --compile: {said}", flush=True)


def _alone() -> float:
    with tempfile.TemporaryDirectory() as caches:
        return _process(caches)


def _process(caches: str, *options: str) -> float:
    """Return the seconds of a training in its own process, and print what it says of its parts. `caches` holds what
    libraries cache."""
    command = [sys.executable, "-P", "-m", "trainer", "cifar10-94", "--device", "gpu", "--runs", caches]
    command += ["--data", os.environ.get("NGCDL_CIFAR10") or "synthetic", *options]
    kept = {name: f"{caches}/{name}" for name in KEPT}
    paths = os.pathsep.join(filter(None, [str(card.CONTAINERS), os.environ.get("PYTHONPATH")]))
    began = time.perf_counter()
    said = run(command, {**os.environ, **kept, "PYTHONPATH": paths}).decode(errors="replace")
    took = time.perf_counter() - began
    parts = [line for line in said.splitlines() if "; ready after " in line or " from scratch " in line]
    print(f"        {took:.1f} s: {' | '.join(parts)}", flush=True)
    return took
