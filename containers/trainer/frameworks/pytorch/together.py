"""How replicas in PyTorch add up what they have: NCCL between cards, gloo between processors and for what is agreed."""
import datetime
import sys

import torch
from torch import distributed

from ...group import Lost

PATIENCE = datetime.timedelta(hours=2)  # as long as a test of replica 0 alone may take


class Together:
    def __init__(self, group, on):
        with translated():
            distributed.init_process_group("gloo", init_method=f"tcp://{group.workers[0]}", rank=group.rank,
                                           world_size=group.size, timeout=PATIENCE)
            self.on_cards = on.type == "cuda"
            self.between = distributed.new_group(backend="nccl") if self.on_cards else distributed.group.WORLD

    def add(self, tensors):
        """Sum each over all replicas, in place: in one call for all of them."""
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
        """Part. Not between cards while an error is on its way: that would wait for what NCCL has still to do, for ever
        where a replica is gone (https://github.com/pytorch/pytorch/issues/132696), before anybody is told the error;
        and a replica that has told it ends at once, with all its threads."""
        is_stuck = self.on_cards and sys.exc_info()[0] is not None
        if distributed.is_initialized() and not is_stuck:
            distributed.destroy_process_group()


class translated:
    """Say Lost where a replica is gone; gloo and NCCL say only what they met."""

    def __enter__(self):
        pass

    def __exit__(self, kind, error, trace):
        if kind is not None and issubclass(kind, RuntimeError):
            raise Lost(error) from error
