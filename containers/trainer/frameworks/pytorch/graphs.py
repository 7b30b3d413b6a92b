"""A step as a CUDA graph: one launch starts hundreds of kernels, and the GPU never waits for the host."""
import contextlib
import gc
import warnings

import torch

from ... import host

FIRST = 3  # ordinary steps: https://pytorch.org/docs/stable/notes/cuda.html#whole-network-capture
WAITS = "called a synchronizing"  # c10/cuda/CUDAFunctions.cpp: "... CUDA operation"


def has_graphs(on):
    """Return whether PyTorch has CUDA graphs and reports when the host waits: from 1.10 on, if it was built with CUDA
    11 or later. NVIDIA's own builds before 1.10 may have only the graphs."""
    cuda = torch.version.cuda  # None: built with ROCm
    return (on.type == "cuda" and hasattr(torch.cuda, "CUDAGraph") and hasattr(torch.cuda, "set_sync_debug_mode")
            and (cuda is None or int(cuda.split(".")[0]) >= 11))


class Recorder:
    """Captures steps. They never run at the same time, and so share one memory pool on the current card. fraction: the
    share of the card that this process may take, None for all of it."""

    def __init__(self, fraction=None):
        self.stream, self.pool, self.waits = torch.cuda.Stream(), torch.cuda.graph_pool_handle(), False
        self.fraction = fraction

    def ahead(self, step):
        """Run a step eagerly, which some steps must do before one is captured, and return its result. Remember whether
        the host waited for the GPU in the step."""
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
        """Run the step on a side stream, as it will be captured."""
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            found = step()
        torch.cuda.current_stream().wait_stream(self.stream)
        return found

    def is_tight(self):
        """Return whether the memory of two steps would not fit: a captured step keeps its memory, and other steps need
        theirs."""
        card = torch.cuda.get_device_properties(torch.cuda.current_device())
        allowed = card.total_memory * (self.fraction or 1)
        if hasattr(torch.cuda, "mem_get_info"):  # 1.11: other processes, or a display, may use the card too
            free = torch.cuda.mem_get_info()[0]
            if getattr(card, "is_integrated", False):  # what is free excludes the machine's file cache, which the
                # kernel gives back when memory is needed: https://github.com/unslothai/unsloth/pull/10704
                free = max(free, host.memory().get("MemAvailable", 0))
            allowed = min(allowed, free + torch.cuda.memory_reserved())
        return 2 * torch.cuda.max_memory_allocated() > allowed

    def recorded(self, step):
        """Capture step(), which computes nothing meanwhile, and return a function that replays it. Raise RuntimeError
        if that fails; at once if the host waits in the step, because a failed capture leaves PyTorch's memory and
        generator in disorder."""
        if self.waits:
            raise RuntimeError("the host waits for the GPU within a step")
        gc.collect()  # now, so that no other graph is freed during the capture
        before, graph = torch.cuda.current_stream(), torch.cuda.CUDAGraph()
        try:
            with own_workspaces(), torch.cuda.graph(graph, pool=self.pool, stream=self.stream):
                step()
        except Exception:
            torch.cuda.set_stream(before)  # the capture's stream is still current
            forget()
            raise
        return graph.replay


@contextlib.contextmanager
def own_workspaces():
    """Make cuBLAS take a workspace from the captured graph's memory, and let nothing else use that workspace. PyTorch
    keeps one per stream, and frees it as soon as it captures a graph of its own (torch.compile does): our graph would
    then replay on freed memory (https://github.com/pytorch/pytorch/issues/192061). This works with PyTorch 1.11 and
    later."""
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", lambda: None)
    clear()
    try:
        yield
    finally:
        clear()


def forget():
    """Reset the current card's generator after a failed capture. PyTorch does not tell the generator that the capture
    is over, so that it refuses to draw (fixed in 2026: https://github.com/pytorch/pytorch/pull/176752). It restarts at
    its seed, as before the step. PyTorch 2.0 to 2.2 have no way to do that."""
    card = torch.cuda.current_device()
    chance = torch.cuda.default_generators[card]
    if hasattr(chance, "graphsafe_set_state"):
        fresh = torch.Generator(f"cuda:{card}")
        fresh.manual_seed(chance.initial_seed())
        chance.graphsafe_set_state(fresh)
