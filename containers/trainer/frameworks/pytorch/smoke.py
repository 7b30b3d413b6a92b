"""The smoke test's product in PyTorch, and what its memory limit refuses."""
import torch


def multiply(network, a, b):
    """Return the product as numpy, which waits for the device, and the device that it was on."""
    product = torch.mm(torch.from_numpy(a).to(network.on), torch.from_numpy(b).to(network.on))
    return product.cpu().numpy(), str(product.device)


def refuses(network, count):
    """Return whether this PyTorch refuses to allocate this many bytes on the card; None before 1.8, which has no
    limit."""
    if not hasattr(torch.cuda, "set_per_process_memory_fraction"):
        return None
    try:
        torch.empty(count, dtype=torch.uint8, device=network.on)
    except RuntimeError as error:  # OutOfMemoryError is a subclass, and has a name only in later releases
        if "out of memory" not in str(error) and "can't allocate memory" not in str(error):
            raise
        return True
    return False
