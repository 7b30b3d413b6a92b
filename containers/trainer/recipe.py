"""How a network is trained: loss, optimiser, learning rate; and which arrays make up a training's state.

As in layers.py, no number is left to a framework's default. For the optimisers, g is the gradient of the loss, weight
decay included, and rate the learning rate:

    sgd       weight -= rate * g
    momentum  velocity = share * velocity + g; weight -= rate * velocity
    adam      first = b1 * first + (1 - b1) * g; second = b2 * second + (1 - b2) * g * g; t steps from 1,
              without those that float16 skipped since the training began or was resumed (computing.Scale);
              weight -= rate * sqrt(1 - b2**t) / (1 - b1**t) * first / (sqrt(second) + epsilon)
              (Keras' form; PyTorch's own adds epsilon after another division, which makes it a different epsilon)

A student's loss is, where p and q are the softmax of the teacher's and the student's logits / TEMPERATURE,

    distill   SHARE * cross-entropy of the labels + (1 - SHARE) * TEMPERATURE**2 * sum(p * log(p / q))
"""
from __future__ import absolute_import, division, print_function

import binascii
import collections
import math

import numpy as np

from . import layers

TEMPERATURE, SHARE = 4.0, 0.5

SLOTS = {"none": (), "sgd": (), "momentum": ("velocity",), "adam": ("first", "second")}

# What one step is given: step (its index) and seed, for its random draws; rate, the learning rate with the optimiser's
# correction; keep, the share of each moving average that stays, None without averages; share, the weight of this
# replica's mean in the mean of the whole batch (group.py).
Turn = collections.namedtuple("Turn", "step seed rate keep share")


def sgd():
    return {"op": "sgd"}


def momentum(share):
    return {"op": "momentum", "share": share}


def adam(b1, b2, epsilon):
    return {"op": "adam", "b1": b1, "b2": b2, "epsilon": epsilon}


def recipe(optimiser, rate, loss="softmax", clip=None, averages=None, counted=False, labels=()):
    """Return the recipe as a dict.

    rate: a number, or a function of step and batch. loss: the mean over the examples of each one's sum of
    cross-entropies, "softmax" over classes or "sigmoid" of one number; or "distill", for which a batch has the
    teacher's logits as its third part. clip: the largest global norm of the gradients, to which they are clipped.
    averages: function of the step, the share of a moving average that stays (evaluation then uses the averages), or
    None. counted: report accuracy for each epoch. labels: the shape of an example's.
    """
    return {"optimiser": optimiser, "rate": rate, "loss": loss, "clip": clip, "averages": averages,
            "counted": counted, "labels": labels}


def untrained():
    """Return the recipe of a network that only runs forward."""
    return recipe({"op": "none"}, rate=None, loss=None)


def chance(*parts):
    """Return the 31-bit seed of a random draw, different for different parts, which include seed and step. They are
    hashed, not concatenated: PyTorch's CPU generator uses 32 bits, and ignores those above."""
    return binascii.crc32(" ".join(str(part) for part in parts).encode("ascii")) & 0x7FFFFFFF


class Model(object):
    """A declared network, its recipe and its batch: all that a framework needs to know of a workload to build it.
    variables: "cpu" if TensorFlow 1 keeps them in the CPU's memory, None for where it computes."""

    def __init__(self, words, recipe, shape, batch, variables=None):
        self.variables = variables
        self.words = layers.pooled_first(words)
        self.recipe, self.shape, self.batch = recipe, tuple(shape), batch
        self.optimiser, self.loss, self.clip = recipe["optimiser"], recipe["loss"], recipe["clip"]
        self.trains, self.averaged, self.counted = self.loss is not None, bool(recipe["averages"]), recipe["counted"]
        self.labels, self.ops = tuple(recipe["labels"]), layers.ops(words)
        self.tokens = bool(words) and words[0]["op"] == "embedding"  # the inputs are integers, not floats
        self.decays, self.weights = layers.decays(words), [name for name, _ in layers.shapes(words)]
        self.slots = SLOTS[self.optimiser["op"]]
        # arrays with a row for each example of the batch
        self.states = [name for name, shape in layers.shapes(words, "running") if layers.BATCH in shape]

    def kept(self):
        """Return {name: shape} of every array of a training's state: the weights; the running ones; the optimiser's
        under "<slot>/<name>"; the moving averages under "average/<name>"."""
        weights = layers.shapes(self.words)
        found = collections.OrderedDict(weights)
        for name, shape in layers.shapes(self.words, "running"):
            found[name] = tuple(self.batch if side == layers.BATCH else side for side in shape)
        for prefix in self.slots + (("average",) if self.averaged else ()):
            found.update((prefix + "/" + name, shape) for name, shape in weights)
        return found

    def first(self, seed):
        """Return {name: array} of a training's initial state."""
        values = layers.initial(self.words, seed)
        starts = {word["name"] + "/" + which: start[1]
                  for word in layers.flat(self.words) for which, _, start in word.get("running", ())}
        for name, shape in self.kept().items():
            if name.startswith("average/"):
                values[name] = values[name[len("average/"):]]
            elif name not in values:
                values[name] = np.full(shape, starts.get(name, 0.0), np.float32)
        return values

    def rate(self, step):
        """Return the learning rate; None if nothing is trained."""
        rate = self.recipe["rate"]
        return rate(step, self.batch) if callable(rate) else rate

    def turn(self, step, seed, share=1.0, skipped=0):
        """skipped: how many of the steps before moved no weight (computing.Scale)."""
        rate, optimiser, t = self.rate(step), self.optimiser, step + 1 - skipped
        if optimiser["op"] == "adam":
            rate *= math.sqrt(1 - optimiser["b2"] ** t) / (1 - optimiser["b1"] ** t)
        return Turn(step, seed, rate, self.recipe["averages"](step) if self.averaged else None, share)

    def guesses(self, logits):
        """Return the class that each row of logits predicts."""
        return logits.argmax(axis=1) if self.loss != "sigmoid" else (logits[:, 0] > 0).astype(np.int32)

    def entropies(self, logits, labels):
        """Return each example's cross-entropy."""
        rows = logits.astype(np.float64)
        if self.loss == "sigmoid":
            return np.logaddexp(0, rows[:, 0]) - labels * rows[:, 0]
        rows -= rows.max(axis=1, keepdims=True)
        return np.log(np.exp(rows).sum(axis=1)) - rows[np.arange(len(labels)), labels]
