"""The trainer's parts in the test's own process: devices, networks, and what stands in for graphs and streams."""

import importlib


def places():
    """Return the devices on which PyTorch can compute here."""
    try:
        import torch
    except ImportError:
        return ["cpu"]
    return ["cpu", "gpu"] if torch.cuda.is_available() else ["cpu"]


def on_cpu(framework, model, **said):
    """Return a framework's network on the CPU."""
    return importlib.import_module("trainer.frameworks." + framework).Network(model, "cpu", **said)


class Played:
    """A stand-in for a recorder of CUDA graphs, without a GPU: a replay calls the step. refusing: why it records
    nothing."""

    def __init__(self, refusing=None, tight=False):
        self.refusing, self.tight, self.ordinary, self.recordings = refusing, tight, 0, 0

    def is_tight(self):
        return self.tight

    def ahead(self, step):
        self.ordinary += 1
        return step()

    def recorded(self, step):
        self.recordings += 1
        if self.refusing:
            raise RuntimeError(self.refusing)
        return step


class Said(list):
    """A stream that keeps what is written."""

    def write(self, text):
        self.append(text)

    def flush(self):
        pass
