"""How batches reach the device in PyTorch, for each of feed.py's feeds: generators of what Network.train takes."""
import itertools

import torch

from ... import feed
from ...ahead import ahead


def made_ahead(network, source, first, last):
    made = ahead(source, first, last)
    try:
        for batch in made:
            yield moved(network, batch)
    finally:
        made.close()


def moved(network, batch):
    examples, labels = batch
    return sent(network, torch.from_numpy(examples)), sent(network, torch.from_numpy(labels).long())


def sent(network, tensor):
    """Copy a tensor to the device without waiting. An ordinary copy waits until a GPU has computed all steps so far,
    which would count as time that the training waits for its batches:
    https://docs.nvidia.com/cuda/cuda-runtime-api/api-sync-behavior.html"""
    # to() has no non_blocking in 0.4.0: https://github.com/pytorch/pytorch/pull/7312
    return tensor.pin_memory().cuda(network.on, non_blocking=True) if network.device == "gpu" else tensor


def put(network, batch):
    """Copy examples and labels to the device, and wait until they are there."""
    examples, labels = batch
    return torch.from_numpy(examples).to(network.on), torch.from_numpy(labels).long().to(network.on)


def plain(network, source, first, last):
    for step in range(first, last):
        yield moved(network, source(step))


def resident(network, source, first, last):
    held = feed.held(source)
    examples, labels = put(network, held[:2])
    # not a plain number: a GPU would multiply by its reciprocal, and the last bit would differ from the other feeds'
    divisor = held.divisor and torch.tensor(held.divisor, device=network.on)
    for chosen in feed.chosen(source, first, last, lambda order: sent(network, torch.from_numpy(order))):
        rows = examples[chosen]
        yield rows.float() / divisor if held.divisor else rows, labels[chosen]


def constant(network, source, first, last):
    return itertools.repeat(put(network, source(first)), last - first)


FEEDS = {
    "ahead": made_ahead,
    "plain": plain,
    "resident": resident,
    "constant": constant,
    "input": lambda network, source, first, last: ahead(source, first, last),
}
