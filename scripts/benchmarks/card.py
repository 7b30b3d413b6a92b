"""This machine's GPU as PyTorch sees it: its name, and what it does at most."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from figures import Missing

CONTAINERS = Path(__file__).resolve().parents[2] / "containers"


def named() -> str:
    """Give card and PyTorch as a figure's condition; from then on the trainer can be imported."""
    try:
        import torch
    except ImportError as error:
        raise Missing(f"it wants PyTorch ({error}): NGCDL_BENCH_PYTHON names a Python that has it") from error
    if not torch.cuda.is_available():
        raise Missing("it wants a GPU that PyTorch sees")
    if str(CONTAINERS) not in sys.path:
        sys.path.insert(0, str(CONTAINERS))
    return f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}"


def products_per_second(kind: Any, side: int = 8192, times: int = 20) -> float:
    """Multiplications and additions a second, in square products of numbers of this kind."""
    import torch

    a, b = (torch.randn(side, side, device="cuda", dtype=kind) for _ in range(2))
    return 2 * side**3 * times / _timed(lambda: torch.mm(a, b), times)


def bytes_per_second(count: int = 2**30, times: int = 20) -> float:
    """Copied: each byte is read and written."""
    import torch

    a, b = (torch.empty(count, device="cuda", dtype=torch.uint8) for _ in range(2))
    return 2 * count * times / _timed(lambda: a.copy_(b), times)


def _timed(work: Callable[[], object], times: int) -> float:
    import torch

    for _ in range(3):
        work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return time.perf_counter() - began
