"""A training step as one CUDA graph, where its batches lie on the device: hundreds of kernels started at once.

Small networks in small batches keep a GPU waiting for the host, which starts each kernel by itself. Here the first
steps are ordinary ones, the next is recorded and then played again and again, on batches, rates and seeds that are
copied to where it reads them. What can't be recorded is trained as before, and so is a batch of another size.
"""
import sys

import torch

from ...fits import is_out_of_memory
from .learning import clip, each, right
from .race.graphs import has_graphs

FIRST = 3  # ordinary steps, in which libraries choose and prepare what they will use


def recorded(step):
    """Record what step() does, which is not done meanwhile, and give what does it."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def can_be(network, feed):
    """Can the steps of this training be a graph? Not what is told to the host between two kernels, nor draws before
    PyTorch 2, where a graph may keep the seed that it was recorded with: https://github.com/pytorch/pytorch/pull/84967
    """
    draws_anew = "dropout" not in network.model.ops or hasattr(torch, "compile")
    return (feed in ("resident", "constant") and has_graphs(network.on) and network.model.trains and draws_anew
            and not (network.together or network.scale or network.compiled))


class Stepper:
    """network: of pytorch.Network; record: see above, another one where there are no CUDA graphs."""

    def __init__(self, network, record=recorded):
        self.network, self.record, self.steps = network, record, 0
        self.examples = self.labels = self.replay = None
        self.rate, self.stays = (torch.zeros((), device=network.on) for _ in range(2))

    def train(self, batch, turn):
        """Do what Network.step() does; give loss and right guesses, or None where that is to be called itself."""
        self.steps += 1
        if self.steps <= FIRST or len(batch[1]) != self.network.usual or not (self.replay or self.prepare(batch)):
            return None
        self.examples.copy_(batch[0])
        self.labels.copy_(batch[1])
        self.rate.fill_(turn.rate)
        self.stays.fill_(1.0 if turn.keep is None else turn.keep)
        self.replay()
        return tuple(None if one is None else one.clone() for one in self.told)  # the next step writes over them

    def prepare(self, batch):
        """Record; give whether that could be done. It is tried once."""
        if self.examples is None:
            self.examples, self.labels = (one.clone() for one in batch)
            try:
                self.replay = self.record(self.step)
            except (RuntimeError, TypeError) as error:  # the latter: an older PyTorch whose rates are no tensors
                if is_out_of_memory(str(error)):
                    raise
                print(f"Steps are no CUDA graphs here: {error}", file=sys.stderr)
        return self.replay is not None

    def step(self):
        network, model = self.network, self.network.model
        loss, logits = network.learn(self.examples, self.labels)
        weights = network.named("")
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            guessed = right(model, logits, self.labels) if model.counted else None
            self.told = loss + network.decay(gradients), guessed
            if model.clip:
                clip(gradients, model.clip)
            slots = [network.named(slot + "/") for slot in model.slots]
            MOVES[model.optimiser["op"]](model.optimiser, weights, slots, self.rate, gradients)
            if model.averaged:
                for average, weight in zip(network.named("average/"), weights):
                    average.lerp_(weight, 1 - self.stays)


# learning.OPTIMISERS with a rate that is a tensor
def sgd(words, weights, slots, rate, gradients):
    taken(weights, gradients, rate)


def momentum(words, weights, slots, rate, gradients):
    each("mul", slots[0], words["share"])
    each("add", slots[0], gradients)
    taken(weights, [one.clone() for one in slots[0]], rate)


def adam(words, weights, slots, rate, gradients):
    first, second = slots
    each("mul", first, words["b1"])
    each("add", first, gradients, alpha=1 - words["b1"])
    each("mul", second, words["b2"])
    each("addcmul", second, gradients, gradients, value=1 - words["b2"])
    roots = [one.sqrt() for one in second]
    each("add", roots, words["epsilon"])
    steps = [one.clone() for one in first]
    each("div", steps, roots)
    taken(weights, steps, rate)


def taken(weights, steps, rate):
    """Take rate * step from each weight; the steps are written over."""
    each("mul", steps, rate)
    each("sub", weights, steps)


MOVES = {"sgd": sgd, "momentum": momentum, "adam": adam}
