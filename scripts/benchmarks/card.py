"""This machine's GPU as PyTorch sees it: its name and its peak rates."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures import Missing

CONTAINERS = Path(__file__).resolve().parents[2] / "containers"


def conditions() -> dict[str, str]:
    """Return the card's name and PyTorch's version as a figure's conditions, and make the trainer importable. Raise
    Missing without PyTorch or a GPU."""
    try:
        import torch
    except ImportError as error:
        raise Missing(f"it needs PyTorch ({error}): NGCDL_BENCH_PYTHON names a Python that has it") from error
    if not torch.cuda.is_available():
        raise Missing("it needs a GPU that PyTorch sees")
    if str(CONTAINERS) not in sys.path:
        sys.path.insert(0, str(CONTAINERS))
    return {"card": torch.cuda.get_device_name(0), "pytorch": str(torch.__version__)}


def fresh() -> None:
    """Undo what earlier benchmarks and networks left in this process: code compiled for other sizes, after which
    torch.compile compiles for any size; cuDNN's search for the fastest kernels; the peak of memory."""
    import torch

    torch.compiler.reset()
    torch.backends.cudnn.benchmark = False
    torch.cuda.reset_peak_memory_stats()


def products_per_second(kind: Any) -> float:
    """Return multiplications and additions per second, in square matrix products of this dtype."""
    import torch

    side = 8192
    a, b = (torch.randn(side, side, device="cuda", dtype=kind) for _ in range(2))
    return 2 * side**3 / _seconds(lambda: torch.mm(a, b))


def bytes_per_second() -> float:
    """Return bytes per second of a device copy, counting each byte as read and written."""
    import torch

    count = 2**30
    a, b = (torch.empty(count, device="cuda", dtype=torch.uint8) for _ in range(2))
    return 2 * count / _seconds(lambda: a.copy_(b))


def _seconds(work: Callable[[], object]) -> float:
    """Return how long `work` takes, by the mean of 20 times."""
    import torch

    times = 20
    for _ in range(3):
        work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / times
