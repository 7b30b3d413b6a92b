"""Whether a batch can fit into this machine's memory: said before it is made, because the kernel would only kill."""
from __future__ import absolute_import, division, print_function

from . import autotune, cost, host
from .events import Stop


def check(asked, workload, model, examples, network, voice):
    """Raise Stop if a step needs more memory than there is, swap included, and warn if it needs more than is free.
    examples: how many the data set has. Only the least is counted that a step takes for certain, on a GPU the batch
    alone, as the card's memory is the framework's affair."""
    batch = min(asked.batch, examples) if getattr(workload, "EPOCHS", True) else asked.batch
    needed = batch * network.group.here // network.group.size * least_bytes(asked.feed, model, network)
    has, free = host.Container().memory_limit_bytes(), autotune.free("cpu")
    if has and needed > has + host.memory().get("SwapTotal", 0):
        raise Stop("out_of_memory", "a batch of %d %s takes at least %.1f GB of memory, and there are %.1f GB: use a "
                   "smaller --batch, or --batch largest" % (batch, workload.UNIT, needed / 1e9, has / 1e9))
    if free is not None and needed > free:
        voice.say("A batch of %d %s takes at least %.1f GB of memory, and %.1f GB are free" % (
            batch, workload.UNIT, needed / 1e9, free / 1e9))


def least_bytes(feed, model, network):
    """Return how many bytes of this machine's memory a step takes for each example, at least."""
    if network.device == "cpu" and feed != "input":
        bytes_each = 2 if network.precision in ("float16", "bfloat16") else 4
        return bytes_each * cost.most_values(model.words, model.shape, model.trains)
    return 0 if feed == "resident" else 4 * cost.prod(model.shape)
