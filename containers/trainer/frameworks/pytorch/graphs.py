"""A step as a CUDA graph: the host starts hundreds of kernels at once, and the GPU never waits for it."""
import torch

WARM_UP = 3  # https://pytorch.org/docs/stable/notes/cuda.html#whole-network-capture


def has_graphs(on):
    return on.type == "cuda" and hasattr(torch.cuda, "CUDAGraph")  # PyTorch 1.10 and later


def captured(step, before, pool=None):
    """Give a torch.cuda.CUDAGraph whose replay() does what step() does. before() is called ahead of each step() that is
    not meant: several that warm up, and the one that is recorded, which computes nothing. pool: of a graph that never
    runs at the same time, so that both compute in the same memory. What can't be recorded raises RuntimeError."""
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(WARM_UP):
            before()
            step()
    torch.cuda.current_stream().wait_stream(aside)
    before()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        step()
    return graph
