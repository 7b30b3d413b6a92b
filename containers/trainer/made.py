"""Synthetic data, used where no real data is given: noise, digits, tokens, cats and dogs, a film, protein chains.

RandomState's stream is frozen: the same bytes on every Python and numpy. Speed does not depend on what the pixels show.
If a network learns this data, that only shows that the training works.
"""
from __future__ import absolute_import, division, print_function

import numpy as np

from .data import AMPLITUDE, NOISE, SYNTHETIC_SEED, Dataset
from .events import Stop

SPLITS = {"train": 1, "test": 2}  # what is added to the seed
PERIOD = 16  # of the stripes, in pixels


def noise(count, shape, stddev, classes, label=None):
    """Return normal numbers [count, ...] with random labels, or all with this label: a network can only memorise
    them."""
    random = np.random.RandomState(SYNTHETIC_SEED)
    labels = random.randint(0, classes, count) if label is None else np.full(count, label)
    examples = np.empty((count,) + tuple(shape), np.float32)
    for k in range(count):  # one at a time: float64 for all would be twice the memory
        examples[k] = random.normal(size=shape)
    examples *= np.float32(stddev)
    note = "generator seed %d, %d examples of noise (stddev %s), taken in turn" % (SYNTHETIC_SEED, count, stddev)
    return Dataset(examples, labels.astype(np.int32), "synthetic", 1, note=note)


def digits(split):
    """Return as many examples as MNIST has: ten patterns of 28 x 28, one per label, under noise; uint8 [n, 784]."""
    count = {"train": 60000, "test": 10000}[split]
    patterns = np.random.RandomState(SYNTHETIC_SEED).normal(size=(10, 7, 7))
    patterns = (128 + AMPLITUDE * patterns.repeat(4, axis=1).repeat(4, axis=2)).reshape(10, 784)
    random = np.random.RandomState(SYNTHETIC_SEED + SPLITS[split])
    labels = random.randint(0, 10, count).astype(np.int32)
    images = np.empty((count, 784), np.uint8)
    for start in range(0, count, 5000):
        part = slice(start, start + 5000)
        images[part] = bytes_of(patterns[labels[part]] + NOISE * random.normal(size=images[part].shape))
    return Dataset(images, labels, "synthetic", 1, note=noted("ten patterns"))


def pictures(split):
    """Return a stand-in for cats and dogs: horizontal (0) or vertical (1) stripes at a random phase, under noise; uint8
    [n, 256, 256, 3]. There are fewer than the original's 20,000 and 5,000, which would be 5 GB."""
    count, side = {"train": 1000, "test": 250}[split], 256
    random = np.random.RandomState(SYNTHETIC_SEED + SPLITS[split])
    labels = random.randint(0, 2, count).astype(np.int32)
    images = np.empty((count, side, side, 3), np.uint8)
    for k in range(count):
        stripes = np.sin(2 * np.pi * (np.arange(side) + random.randint(0, PERIOD)) / PERIOD)
        pattern = stripes[None, :] if labels[k] else stripes[:, None]
        images[k] = bytes_of(128 + AMPLITUDE * pattern[:, :, None] + NOISE * random.normal(size=(side, side, 3)))
    return Dataset(images, labels, "synthetic", 1, note=noted("stripes for cats and dogs, %d pictures" % count))


def film(count, shape):
    """Return frames of noise, uint8 [count, height, width, 3]: only their number matters."""
    random = np.random.RandomState(SYNTHETIC_SEED)
    frames = np.frombuffer(random.bytes(count * int(np.prod(shape))), np.uint8).reshape((count,) + tuple(shape))
    note = "generator seed %d, %d frames of noise" % (SYNTHETIC_SEED, count)
    return Dataset(frames, np.zeros(count, np.int32), "synthetic", 1, note=note)


WINDOW, RESIDUES, CLASSES = 50, 21, 3
NEAR = slice(22, 28)  # the residues that decide a window's class
WINDOWS = {"train": 50000, "test": 25000}


def chains(split):
    """Return windows of protein chains, float32 [n, 50, 1, 21], one-hot residues. Only the six residues in the middle
    decide the class: each adds its row of one table to the scores of the three classes, and noise is added to the
    scores."""
    count = WINDOWS[split]
    draw = np.random.RandomState(SYNTHETIC_SEED).normal(size=(RESIDUES, CLASSES))
    random = np.random.RandomState(SYNTHETIC_SEED + SPLITS[split])
    residues = random.randint(0, RESIDUES, (count, WINDOW))
    pull = draw[residues[:, NEAR]].sum(axis=1) + random.normal(size=(count, CLASSES))
    windows = np.eye(RESIDUES, dtype=np.float32)[residues][:, :, None]
    note = "generator seed %d, %d windows whose middle residues draw to a class" % (SYNTHETIC_SEED, count)
    return Dataset(windows, pull.argmax(axis=1).astype(np.int32), "synthetic", 1, note=note)


def bytes_of(values):
    return np.clip(np.rint(values, out=values), 0, 255, out=values).astype(np.uint8)


def noted(what):
    return "generator seed %d, %s (amplitude %d, noise %d)" % (SYNTHETIC_SEED, what, AMPLITUDE, NOISE)


TOKENS = 929589  # in the training part of the Penn Treebank, from memory


def tokens(vocabulary, steps):
    """Return a text of the Penn Treebank's size, whose words are all equally likely, in sequences of this many
    steps."""
    text = np.random.RandomState(SYNTHETIC_SEED).randint(0, vocabulary, TOKENS).astype(np.int32)
    note = "generator seed %d, %d tokens of %d, uniform" % (SYNTHETIC_SEED, TOKENS, vocabulary)
    return Dataset(text, text, "synthetic", 1, note=note, count=(TOKENS - 1) // steps)


def text_in_rows(steps):
    """Return a workload's source: row k of a batch continues where row k of the previous one ended. The labels are the
    next tokens; the rest of the text at the end of the rows is skipped."""
    def source(dataset, batch, seed, fraction):
        width = len(dataset.images) // batch
        rows, cuts = dataset.images[:batch * width].reshape(batch, width), (width - 1) // steps
        if cuts < 1:
            raise Stop("bad_argument", "a batch of %d has more rows than the text can fill" % batch)

        def take(step):
            at = step % cuts * steps
            return rows[:, at:at + steps].copy(), rows[:, at + 1:at + steps + 1].copy()

        return take

    return source
