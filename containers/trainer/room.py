"""How much memory is free, and whether a batch can fit into this machine's: said before it is made, because the kernel
would only kill."""
from __future__ import absolute_import, division, print_function

from . import cost, driver, host, nvml
from .events import Stop


def free(device, replicas=1):
    """Return how many bytes are free on the device of each replica; None if unknown. NVML reports no memory for a GPU
    that shares the machine's (https://docs.nvidia.com/dgx/dgx-spark/known-issues.html): what the machine has free
    counts there, as on a CPU."""
    if device == "gpu":
        known = on_cards(nvml.read(), replicas)
        if known is not None or not driver.is_integrated(0):
            return known
    container, available = host.Container(), host.memory().get("MemAvailable")
    limit, used = container.memory_limit_bytes(), container.memory_bytes()
    known = [available] + ([limit - used] if None not in (limit, used) else [])
    return None if available is None else min(known)


def on_cards(readings, replicas=1):
    """Return the free memory of the fullest GPU that replicas compute on (they take the first ones); None if unknown.

    readings: nvml.read(), before a framework takes its share."""
    taken = [(card["memory_total_bytes"], card["memory_used_bytes"]) for card in readings[:replicas]]
    return min(total - used for total, used in taken) if taken and all(None not in one for one in taken) else None


def check(asked, workload, model, examples, network, voice):
    """Raise Stop if a step needs more memory than there is, swap included, and warn if it needs more than is free.
    examples: how many the data set has. Only the least is counted that a step takes for certain, on a GPU the batch
    alone, as the card's memory is the framework's affair."""
    batch = min(asked.batch, examples) if getattr(workload, "EPOCHS", True) else asked.batch
    needed = batch * network.group.here // network.group.size * least_bytes(asked.feed, model, network)
    has, left = host.Container().memory_limit_bytes(), free("cpu")
    if has and needed > has + host.memory().get("SwapTotal", 0):
        raise Stop("out_of_memory", "a batch of %d %s takes at least %.1f GB of memory, and there are %.1f GB: use a "
                   "smaller --batch, or --batch largest" % (batch, workload.UNIT, needed / 1e9, has / 1e9))
    if left is not None and needed > left:
        voice.say("A batch of %d %s takes at least %.1f GB of memory, and %.1f GB are free" % (
            batch, workload.UNIT, needed / 1e9, left / 1e9))


def least_bytes(feed, model, network):
    """Return how many bytes of this machine's memory a step takes for each example, at least."""
    if network.device == "cpu" and feed != "input":
        bytes_each = 2 if network.precision in ("float16", "bfloat16") else 4
        return bytes_each * cost.most_values(model.words, model.shape, model.trains)
    return 0 if feed == "resident" else 4 * cost.prod(model.shape)
