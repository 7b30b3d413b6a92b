"""Which precision and memory layout a network is computed in: what was asked for, what it means here, what is refused.

    float32   everything, with TensorFloat-32 off
    tf32      as float32, but matrix products and convolutions round their operands to 10 bits; needs compute
              capability 8.0: https://developer.nvidia.com/blog/accelerating-ai-training-with-tf32-tensor-cores/
    amp       mixed precision: 16 bits for convolutions, matrix products and what is between them. Weights, optimiser,
              loss, batch norm's statistics and local response normalisation stay float32, as do LSTMs on a GPU where
              cuDNN has none in bfloat16; with PyTorch the products of these two are in TF32 on cards from 8.0 on.
              bfloat16 on the CPU and, with PyTorch 2, on cards from 8.0 on; else float16 with loss scaling (Scale),
              because small gradients would underflow to 0
    auto      tf32 where the card has it, as in NVIDIA's containers, else float32
"""
from __future__ import absolute_import, division, print_function

import collections
import os

from .events import Stop

TENSOR_FLOAT, TENSOR_CORES = (8, 0), (7, 0)  # the compute capabilities that introduced them
OVERRIDE = "NVIDIA_TF32_OVERRIDE"  # 0 switches TF32 off, whatever programs set: see the page above
PYTORCH = "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"  # NVIDIA's PyTorch images set it to 1
# What makes TensorFlow rewrite graphs: https://docs.nvidia.com/deeplearning/frameworks/tensorflow-user-guide/
MIXED = "TF_ENABLE_AUTO_MIXED_PRECISION", "TF_ENABLE_AUTO_MIXED_PRECISION_GRAPH_REWRITE"
XLA, XLA_FLAG = "TF_XLA_FLAGS", "--tf_xla_auto_jit="

# What was asked for: precision "auto", "float32", "tf32" or "amp"; compiled: True or False; channels_last: True, False,
# or None for the framework's fastest layout.
Way = collections.namedtuple("Way", "precision compiled channels_last")
PLAIN = Way("auto", False, None)


def prepare(precision):
    """Switch TF32 off for float32, in the environment, before NVIDIA's libraries are loaded: TensorFlow 1 has no other
    switch."""
    for name in OVERRIDE, PYTORCH:
        os.environ.pop(name, None)  # set by an image or a user, it might make the start event report a wrong precision
    if precision == "float32":
        os.environ[OVERRIDE] = "0"


def check_rewriting():
    """Raise Stop if an environment variable makes TensorFlow compute in another precision than it is told to, or
    compile: the start event would be wrong. None of NVIDIA's images is known to set such a variable."""
    values = [(name, os.environ.get(name, ""), "--precision amp") for name in MIXED]
    flags = [word for word in os.environ.get(XLA, "").split() if word.startswith(XLA_FLAG)]
    values += [(XLA, flag[len(XLA_FLAG):], "--compile") for flag in flags[-1:]]  # the last one counts
    for name, value, option in values:
        if value.lower() not in ("", "0", "-1", "false"):
            raise Stop("bad_argument", "%s=%s changes how TensorFlow computes, and the record would not tell: leave it "
                       "out; TensorFlow 2 and PyTorch have %s" % (name, os.environ[name], option))


def numbers(asked, device, capability, half="bfloat16"):
    """Return "float32", "tf32", "float16" or "bfloat16"; raise Stop if what was asked for is not available.

    capability: the card's, such as (8, 0); None on the CPU, and where nothing reports it. half: what amp means on cards
    whose tensor cores support both 16-bit formats.
    """
    has = capability or (0, 0)
    if asked == "auto":
        return "tf32" if has >= TENSOR_FLOAT else "float32"
    if asked == "tf32" and has < TENSOR_FLOAT:
        raise Stop("bad_argument", "TF32 needs a card of compute capability 8.0 or later, this is %s: "
                   "use --precision float32, or leave --precision out" % place(device, capability))
    if asked != "amp":
        return asked
    if device == "gpu" and has < TENSOR_CORES:
        raise Stop("bad_argument", "--precision amp needs tensor cores, which cards have from compute capability 7.0 "
                   "on, this is %s: leave --precision out" % place(device, capability))
    return "bfloat16" if device == "cpu" else half if has >= TENSOR_FLOAT else "float16"


def place(device, capability):
    if device == "cpu":
        return "the CPU"
    return "one of %d.%d" % tuple(capability) if capability else "one that does not report its own"


def layout(asked, model, can_first, usual=True):
    """Return whether images are in channels-last layout; None if the network takes no images. can_first: None, or why
    channels-first is impossible; usual: what to return if no layout was asked for."""
    if len(model.shape) != 3:
        if asked is not None:
            raise Stop("bad_argument", "this network takes no images: leave --channels-%s out" % (
                "last" if asked else "first"))
        return None
    if asked is False and can_first is not None:
        raise Stop("bad_argument", "%s: leave --channels-first out" % can_first)
    return usual if asked is None else asked


class Scale(object):
    """The loss scale of float16: halved whenever gradients overflow, which skips the step, and doubled after 2,000 good
    steps. Checkpoints don't have it: a resumed training finds its own within a few steps. skipped: how many steps this
    process skipped."""

    def __init__(self):
        self.value, self.good, self.skipped = 65536.0, 0, 0

    def move(self, finite, step):
        """Follow a step whose gradients were finite or not. Raise Stop if they are not even at a scale of 1: the loss
        would not tell, because skipped steps leave the weights, and so the loss, as they are."""
        if not finite and self.value == 1.0:
            raise Stop("nan", "The gradients of step %d are not finite in float16, even without loss scaling: leave "
                       "--precision amp out" % step, step)
        self.good = self.good + 1 if finite else 0
        if not finite:
            self.value, self.skipped = self.value / 2, self.skipped + 1
        elif self.good % 2000 == 0:
            self.value *= 2
