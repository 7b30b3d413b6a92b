"""A step as a CUDA graph: the host starts hundreds of kernels at once, and the GPU never waits for it."""
import gc
import warnings

import torch

FIRST = 3  # ordinary steps: https://pytorch.org/docs/stable/notes/cuda.html#whole-network-capture
WAITS = "called a synchronizing"  # c10/cuda/CUDAFunctions.cpp: "... CUDA operation"


def has_graphs(on):
    """Has PyTorch graphs, and does it say where the host waits? From 1.10 on; builds of NVIDIA's own before it may have
    the first alone."""
    return on.type == "cuda" and hasattr(torch.cuda, "CUDAGraph") and hasattr(torch.cuda, "set_sync_debug_mode")


class Recorder:
    """Records steps, of which no two ever run at the same time: all compute in the same memory of the current card, of
    which this process may take a fraction, or all (None)."""

    def __init__(self, fraction=None):
        self.stream, self.pool, self.waits = torch.cuda.Stream(), torch.cuda.graph_pool_handle(), False
        self.fraction = fraction

    def ahead(self, step):
        """Do a step in the ordinary way, as some are to be done before it is recorded, and give what it gives. Whether
        the host waited for the GPU in it is remembered."""
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                found = self.aside(step)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        self.waits = any(WAITS in str(one.message) for one in told)
        return found

    def aside(self, step):
        """Do it on a stream of its own, as it will be recorded."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            found = step()
        torch.cuda.current_stream().wait_stream(self.stream)
        return found

    def is_tight(self):
        """Would the memory of two steps not fit? What is recorded keeps its own, and other steps compute beside it."""
        allowed = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory * (self.fraction or 1)
        if hasattr(torch.cuda, "mem_get_info"):  # 1.11: others compute on the card too, and a screen may be drawn by it
            allowed = min(allowed, torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved())
        return 2 * torch.cuda.max_memory_allocated() > allowed

    def recorded(self, step):
        """Give what does as step() does, which itself computes nothing now. What can't be recorded raises RuntimeError;
        where the host waits without an attempt, which would leave PyTorch's memory and chance in disorder."""
        if self.waits:
            raise RuntimeError("the host waits for the GPU within a step")
        gc.collect()  # early releases can't free another graph meanwhile
        before, graph = torch.cuda.current_stream(), torch.cuda.CUDAGraph()
        try:
            # on the stream of the steps before, for which the libraries have their workspaces already
            with torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                step()
        except Exception:
            torch.cuda.set_stream(before)  # it is another one still
            forget()
            raise
        return graph.replay


def forget():
    """Free the current card's chance of a recording that failed: where its end is an error PyTorch does not tell it so,
    and it refuses to draw (in 2026 it was mended: https://github.com/pytorch/pytorch/pull/176752). It begins at its
    seed again, as before the step. PyTorch 2.0 to 2.2 have no way to do that."""
    card = torch.cuda.current_device()
    chance = torch.cuda.default_generators[card]
    if hasattr(chance, "graphsafe_set_state"):
        fresh = torch.Generator(f"cuda:{card}")
        fresh.manual_seed(chance.initial_seed())
        chance.graphsafe_set_state(fresh)
