"""How PyTorch replicas communicate: NCCL all-reduces between GPUs; gloo does so between CPUs, and compares numbers."""
import datetime
import inspect
import sys

import torch
from torch import distributed

from ...events import Stop
from ...fits import is_out_of_memory
from ...group import Lost

# What gloo (transport/tcp/pair.cc), its store and NCCL say when they don't reach another replica
GONE = ("connect", "closed", "pair closure", "reset by peer", "broken pipe", "timed out", "timeout", "remote process",
        "remoteerror", "was aborted", "unreachable", "no route to host", "got 0 bytes")
PATIENCE = datetime.timedelta(hours=2)  # as long as replica 0 alone may take for a test


class Together:
    def __init__(self, group, on):
        self.on_cards = on.type == "cuda"
        check(self.on_cards)
        with translated():
            with group.joining():
                distributed.init_process_group("gloo", init_method=f"tcp://{group.workers[0]}", rank=group.rank,
                                               world_size=group.size, timeout=PATIENCE)
            # NCCL's default timeout is ten minutes, and compiling for a new card may take longer
            self.between = (distributed.new_group(timeout=PATIENCE, backend="nccl") if self.on_cards
                            else distributed.group.WORLD)

    def add(self, tensors):
        """Sum each tensor over all replicas, in place: one all-reduce for all of them."""
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        with translated():
            distributed.all_reduce(flat, group=self.between)
        for tensor, part in zip(tensors, flat.split([tensor.numel() for tensor in tensors])):
            tensor.copy_(part.view_as(tensor))

    def largest(self, number):
        told = torch.tensor([number], dtype=torch.float64)
        with translated():
            distributed.all_reduce(told, distributed.ReduceOp.MAX)
        return told.item()

    def close(self):
        """Leave the group; but not between GPUs while an error propagates: leaving would wait for NCCL's pending work
        before the error is reported, forever if a replica is gone (https://github.com/pytorch/pytorch/issues/132696). A
        replica that has reported an error ends at once, with all its threads."""
        is_stuck = self.on_cards and sys.exc_info()[0] is not None
        if distributed.is_initialized() and not is_stuck:
            distributed.destroy_process_group()


def check(on_cards):
    """Raise Stop if this PyTorch can't do what replicas need."""
    lacks = None
    # April 2019: https://github.com/pytorch/pytorch/pull/18595
    if on_cards and "backend" not in inspect.signature(distributed.new_group).parameters:
        lacks = "has no NCCL beside gloo, which several cards need"
    # November 2018: https://github.com/pytorch/pytorch/pull/14435
    elif "timeout" not in inspect.signature(distributed.init_process_group).parameters:
        lacks = "can't be told how long replicas wait for each other, as 1.0 and later can"
    if lacks:
        raise Stop("bad_argument", f"PyTorch {torch.__version__} {lacks}: leave --replicas out, or use a later "
                   "container image")


class translated:
    """Turn errors of gloo and NCCL, which report only what they ran into, into Lost if a replica is gone, else into a
    Stop."""

    def __enter__(self):
        pass

    def __exit__(self, kind, error, trace):
        if kind is None or not issubclass(kind, RuntimeError) or is_out_of_memory(str(error)):
            return
        if any(sign in str(error).lower() for sign in GONE):
            raise Lost(error) from error
        raise Stop("crash", f"the all-reduce failed: {str(error)[:1000]}") from error
