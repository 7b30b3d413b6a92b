"""In which numbers and which layout a network is computed: what was asked for, what that means here, what is refused.

    float32   all of it, TensorFloat-32 off
    tf32      as float32, but matrix products and convolutions round what they multiply to 10 bits; from compute
              capability 8.0 on: https://developer.nvidia.com/blog/accelerating-ai-training-with-tf32-tensor-cores/
    amp       16 bits: convolutions, products and what lies between them. Weights, optimiser, loss, batch norm's
              statistics and local response normalisation stay float32, and on a GPU LSTMs do where cuDNN has none in
              bfloat16. bfloat16 on the CPU and, with PyTorch 2, on cards from 8.0 on; else float16, where the loss is
              multiplied (Scale), for small gradients would be 0 in it
    auto      tf32 where the card has it, as in NVIDIA's containers, else float32
"""
from __future__ import absolute_import, division, print_function

import collections
import os

from .events import Stop

TENSOR_FLOAT, TENSOR_CORES = (8, 0), (7, 0)  # the compute capabilities that brought them
OVERRIDE = "NVIDIA_TF32_OVERRIDE"  # 0 wins over all that programs say: the page above
PYTORCH = "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"  # NVIDIA's PyTorch images set it to 1

# What was asked for: precision "auto", "float32", "tf32" or "amp"; compiled: True or False; channels_last: True, False,
# None for what the framework is best at.
Way = collections.namedtuple("Way", "precision compiled channels_last")
PLAIN = Way("auto", False, None)


def prepare(precision):
    """Tell NVIDIA's libraries before they are loaded: TensorFlow 1, for one, has no switch of its own."""
    for name in OVERRIDE, PYTORCH:
        os.environ.pop(name, None)  # else what the start event says may not be so
    if precision == "float32":
        os.environ[OVERRIDE] = "0"


def numbers(asked, device, capability, half="bfloat16"):
    """Give "float32", "tf32", "float16" or "bfloat16"; what can't be had raises Stop.

    capability: the card's, as (8, 0); None on the CPU, and where nothing tells it. half: what amp means on cards that
    have tensor cores for both kinds of 16 bits.
    """
    has = capability or (0, 0)
    if asked == "auto":
        return "tf32" if has >= TENSOR_FLOAT else "float32"
    if asked == "tf32" and has < TENSOR_FLOAT:
        raise Stop("bad_argument", "TF32 needs a card of compute capability 8.0 or later, here is %s: "
                   "say --precision float32, or leave --precision away" % place(device, capability))
    if asked != "amp":
        return asked
    if device == "gpu" and has < TENSOR_CORES:
        raise Stop("bad_argument", "--precision amp needs tensor cores, which cards have from compute capability 7.0 "
                   "on, here is %s: leave --precision away" % place(device, capability))
    return "bfloat16" if device == "cpu" else half if has >= TENSOR_FLOAT else "float16"


def place(device, capability):
    if device == "cpu":
        return "the CPU"
    return "one of %d.%d" % tuple(capability) if capability else "one that does not tell its own"


def layout(asked, model, can_first, usual=True):
    """Give whether pictures lie channels last, None without pictures; can_first: None, or why they cannot lie first;
    usual: how they lie where nobody asked."""
    if len(model.shape) != 3:
        if asked is not None:
            raise Stop("bad_argument", "this network sees no pictures: leave --channels-%s away" % (
                "last" if asked else "first"))
        return None
    if asked is False and can_first is not None:
        raise Stop("bad_argument", "%s: leave --channels-first away" % can_first)
    return usual if asked is None else asked


class Scale(object):
    """The number that the loss is multiplied by in float16: halved whenever gradients overflow, which costs the step,
    and doubled after 2,000 good ones. It is in no checkpoint: a resumed training finds its own in a few steps."""

    def __init__(self):
        self.value, self.good = 65536.0, 0

    def move(self, finite):
        self.good = self.good + 1 if finite else 0
        if not finite:
            self.value = max(self.value / 2, 1.0)
        elif self.good % 2000 == 0:
            self.value *= 2
