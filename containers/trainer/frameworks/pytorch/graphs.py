"""A step as a CUDA graph: the host starts hundreds of kernels at once, and the GPU never waits for it."""
import gc
import warnings

import torch

FIRST = 3  # ordinary steps: https://pytorch.org/docs/stable/notes/cuda.html#whole-network-capture
WAITS = "called a synchronizing"  # c10/cuda/CUDAFunctions.cpp: "... CUDA operation"


def has_graphs(on):
    return on.type == "cuda" and hasattr(torch.cuda, "CUDAGraph")  # PyTorch 1.10 and later


class Recorder:
    """Records steps, of which no two ever run at the same time: all compute in the same memory of the current card."""

    def __init__(self):
        self.stream, self.pool, self.waits = torch.cuda.Stream(), torch.cuda.graph_pool_handle(), False

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
        whole = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        return 2 * torch.cuda.max_memory_allocated() > whole

    def recorded(self, step):
        """Give what does as step() does, which itself computes nothing now. What can't be recorded raises RuntimeError;
        where the host waits without an attempt, which would leave PyTorch's memory and chance in disorder."""
        if self.waits:
            raise RuntimeError("the host waits for the GPU within a step")
        gc.collect()  # early releases can't free another graph meanwhile
        before, graph = torch.cuda.current_stream(), torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self.pool):
                step()
        finally:
            torch.cuda.set_stream(before)  # where recording failed it is another one still
        return graph.replay
