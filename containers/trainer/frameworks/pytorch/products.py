"""Products of large float32 matrices on a CPU, by oneDNN where that is faster: on processors that are not Intel's.

PyTorch multiplies by MKL, which on an AMD EPYC (Zen 4) reaches 55 to 85 % of oneDNN's rate if the matrices are large.
oneDNN is the library by which PyTorch computes convolutions (docs/experiments.md)."""
import functools

import torch

from ... import host

LEAST = 2**24  # multiply-accumulates; below that oneDNN's overhead costs more than it saves


def mm(a, b):
    """Return a [n, k] times b [k, m]. It has no backward pass of its own."""
    if pays(a, b) and onednn():
        return onednn()(a, b.t(), None, "none", [], "")
    return torch.mm(a, b)


def pays(a, b):
    """Return whether oneDNN is faster: for large matrices, if b has no gaps in memory, for which oneDNN has no fast
    way."""
    return (a.device.type == "cpu" and a.dtype == b.dtype == torch.float32 and len(a) * b.numel() >= LEAST
            and (b.is_contiguous() or b.t().is_contiguous()))


@functools.lru_cache(maxsize=None)
def onednn():
    """Return the operator that PyTorch's own compiler calls for a linear layer on a CPU; None if this PyTorch has none
    or multiplies by another library than MKL, or if this processor is Intel's."""
    # Only PyTorch 2.0 and later have the operator. Earlier releases can't be asked for it: until 1.4 torch.backends has
    # no mkldnn, and until 1.12 torch.ops raises RuntimeError. https://github.com/pytorch/pytorch/pull/32055
    if not hasattr(torch, "compile") or host.is_intel():
        return None
    if not (torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):
        return None
    return getattr(getattr(torch.ops, "mkldnn", None), "_linear_pointwise", None)
