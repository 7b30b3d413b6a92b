"""A training step as one CUDA graph, if its batches are on the device: one launch starts hundreds of kernels.

Small networks with small batches keep a GPU waiting for the host, which launches each kernel by itself. Here the first
steps run as usual; the next one is captured, and then replayed for each step, after its batch, rates and seed have been
copied to where the graph reads them. Steps that can't be captured, and batches of another size, run as usual.
"""
import torch

from ...events import complain
from ...fits import is_out_of_memory
from ...recipe import Turn
from . import graphs


def can_be(network, feed):
    """Return whether this training's steps can be a graph: not if the host must read a value between two kernels; and
    before PyTorch 2 not with dropout, because graphs may keep the seed of their capture:
    https://github.com/pytorch/pytorch/pull/84967"""
    draws_anew = "dropout" not in network.model.ops or hasattr(torch, "compile")
    return (feed in ("resident", "constant") and graphs.has_graphs(network.on) and network.model.trains and draws_anew
            and not (network.together or network.scale))


class Stepper:
    """network: a pytorch.Network; recorder: a graphs.Recorder, or its equivalent without a GPU."""

    def __init__(self, network, recorder=None):
        self.network, self.recorder, self.done = network, recorder or graphs.Recorder(network.memory_fraction), 0
        self.batch = self.examples = self.labels = self.replay = None
        rate, keep = (torch.zeros((), device=network.on) for _ in range(2))
        self.turn = Turn(None, None, rate, keep, 1.0)

    def train(self, batch, turn):
        """Do what Network.step() does, and return loss and right guesses; or return None if the caller must call step()
        itself."""
        if not (self.network.is_usual(batch[1]) and self.recorder):
            return None
        self.put(batch, turn)
        self.done += 1
        if self.done <= graphs.FIRST:
            return self.recorder.ahead(self.step)
        if not (self.replay or self.record()):
            return None
        self.replay()
        return tuple(None if one is None else one.clone() for one in self.told)  # the next step overwrites them

    def put(self, batch, turn):
        """Copy a step's inputs to where the graph reads them."""
        if self.batch is None:
            self.examples, self.labels = (torch.empty_like(one) for one in batch)
        if batch is not self.batch:  # --feed constant has only one
            self.batch = batch
            self.examples.copy_(batch[0])
            self.labels.copy_(batch[1])
        self.turn.rate.fill_(turn.rate)
        if turn.keep is not None:
            self.turn.keep.fill_(turn.keep)

    def step(self):
        self.told = self.network.step(self.examples, self.labels, [], self.turn)
        return self.told

    def record(self):
        """Capture the step and return whether that succeeded. It is tried only once."""
        try:
            if self.recorder.is_tight():  # little is lost: steps as large as that do not wait for the host
                raise RuntimeError("an epoch's smaller last batch would find too little memory beside it")
            self.replay = self.recorder.recorded(self.step)
        except RuntimeError as error:
            if is_out_of_memory(str(error)):
                raise
            complain(f"Steps are not CUDA graphs here: {error}")
            self.recorder = None
        return self.replay is not None
