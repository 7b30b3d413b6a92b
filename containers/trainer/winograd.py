"""3 x 3 convolutions on a CPU, and their gradients, by winograd.c: in 0.4 to 0.9 of oneDNN's time, of 256 channels with
AVX-512 in 0.9 to 1.14. A max pool of 2 x 2 and the relu behind it are computed with them, also with the first
convolution of a network, over three colours, by first.c.

gcc compiles it for this processor when a training begins, in about a second. Without gcc, or on a processor without
AVX2 or NEON, the framework's own convolutions do instead.
"""
from __future__ import absolute_import, division, print_function

import ctypes

import numpy as np

from . import layers, native
from .ahead import meanwhile

SOURCES = "winograd.c", "first.c"
# Channels: fewer take as long to transform as to multiply, and the transformed filters of more do not fit into the
# cache, from which they are read for each block of tiles.
MULTIPLE, MOST = 32, 256
LEAST_TILES = 48  # for each thread: with fewer, transforming filters and their gradients takes longer than the products

begun, loaded = [], []  # at most one each: what returns the compiled library, and a Library or None


def pays(word, threads, examples, height, width):
    """Return whether this is faster for a convolution of this many examples of this size."""
    if not can_be(word):
        return False
    down, across = ((side + 1) // 2 for side in layers.sides_after(word, (height, width)))
    return min(down, across) > 0 and examples * down * across >= LEAST_TILES * threads


def can_be(word):
    if word["op"] != "conv":
        return False
    rows, columns, inputs, outputs = word["shape"]
    return ((rows, columns) == (3, 3) and word["stride"] == 1 and max(word["padding"]) <= 2
            and all(many % MULTIPLE == 0 and many <= MOST for many in (inputs, outputs)))


def pools(word, threads, examples, height, width):
    """Return whether this computes a joined word (layers.joined) at once, for so many examples of this size."""
    down, across = layers.sides_after(word, (height, width))
    return "pooled" in word and min(down, across) > 0 and down % 2 == across % 2 == 0 and (
        is_first(word) or pays(word, threads, examples, height, width))


def is_first(word):
    """Return whether first.c can compute this joined word, but for a gradient of its input."""
    return (word["shape"][:3] == (3, 3, 3) and word["stride"] == 1 and max(word["padding"]) <= 2
            and word["shape"][3] % MULTIPLE == 0 and "relued" not in word)


def begin(words):
    """Start to compile in a thread, if this can compute one of the words (layers.flat)."""
    if not begun and any(can_be(word) for word in words):
        begun.append(meanwhile(native.compiled, SOURCES))


def library(words):
    """Return the Library, once it is compiled. The framework must be loaded. None: it can compute none of the words, or
    can't be had here."""
    begin(words)
    if begun and not loaded:
        loaded.append(opened(begun[0]()))
    return loaded[0] if loaded and any(can_be(word) for word in words) else None


def opened(content):
    """Return the Library; None if there is no content, or it can't be loaded, or computes something else."""
    loaded = native.opened(content, load)
    found = loaded and Library(loaded)
    return found if found and found.is_right() else None


def load(path):
    try:
        return ctypes.CDLL(path)  # with the OpenMP library that the framework has loaded, as PyTorch does
    except OSError:
        ctypes.CDLL("libgomp.so.1", mode=ctypes.RTLD_GLOBAL)
        return ctypes.CDLL(path)


class Library(object):
    """The functions of winograd.c. Each takes a shape (shaped() below), and the addresses of float32 arrays to read and
    to fill. Pictures are [examples, height, width, channels], and filters lie as the shape tells:

    output(shape, (x, filters, biases or None), (found,))
    input_gradient(shape, (gradient, filters, x if it is relued), (found,))
    filter_gradient(shape, (x, gradient), (of filters, of biases))
    pooled(shape, (x, filters, biases or None), (found, choices))
    unpooled(shape, (gradient of found, choices), (gradient,))
    first_pooled(shape, (x, filters, biases or None), (found, choices))
    first_filter_gradient(shape, (x, gradient of found, choices), (of filters, of biases))

    choices, as many numbers of 32 bits as found has, are for the gradient only."""

    def __init__(self, loaded):
        self.loaded = loaded

    def call(self, name, shape, given, found):
        if getattr(self.loaded, name)(shape, *((ctypes.c_void_p * len(array))(*array) for array in (given, found))):
            raise MemoryError("no memory for a convolution")

    def address(self, name):
        return ctypes.cast(getattr(self.loaded, name), ctypes.c_void_p).value

    def is_right(self):
        """Return whether this computes what it should on this processor: a small convolution, and its gradients. It is
        linear in pictures and in filters, so the products of each with its gradient are equal."""
        random, many = np.random.RandomState(0), MULTIPLE
        x, filters, gradient = (random.standard_normal(sides).astype(np.float32) for sides in (
            (2, 5, 6, many), (3, 3, many, many), (2, 5, 6, many)))
        y, pulled, moved, sums = (np.empty_like(one) for one in (gradient, x, filters, filters[0, 0, 0]))
        word = layers.conv("c", 3, many, many, None)
        shape = shaped(2, x.shape[:3], word, (1, 3 * many * many, many * many, many))
        at = [array.ctypes.data for array in (x, filters, gradient, y, pulled, moved, sums)]
        self.call("output", shape, (at[0], at[1], None), at[3:4])
        self.call("input_gradient", shape, (at[2], at[1]), at[4:5])
        self.call("filter_gradient", shape, (at[0], at[2]), at[5:])
        wide = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], "constant")
        wanted = sum(wide[:, a:a + 5, b:b + 6].dot(filters[a, b]) for a in range(3) for b in range(3))
        products = [np.vdot(one, other) for one, other in ((y, gradient), (x, pulled), (filters, moved))]
        return bool(np.allclose(y, wanted, atol=1e-3) and np.allclose(sums, gradient.sum((0, 1, 2)), atol=1e-3)
                    and np.allclose(products, np.vdot(wanted, gradient), rtol=1e-3)
                    and self.pools_right(random, 3, "first_pooled") and self.pools_right(random, many, "pooled"))

    def pools_right(self, random, inputs, name):
        """Return whether this function computes a small joined convolution, and what follows from its choices."""
        many = MULTIPLE
        x, filters, gradient = (random.standard_normal(sides).astype(np.float32) for sides in (
            (2, 4, 6, inputs), (3, 3, inputs, many), (2, 2, 3, many)))
        y, choices = np.empty_like(gradient), np.empty(gradient.shape, np.int32)
        word = layers.conv("c", 3, inputs, many, None)
        shape = shaped(2, x.shape[:3], word, (1, 3 * inputs * many, inputs * many, many))
        at = [array.ctypes.data for array in (x, filters, gradient, y, choices)]
        self.call(name, shape, (at[0], at[1], None), at[3:])
        wide = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)], "constant")
        seen = [wide[:, a:a + 4, b:b + 6] for a in range(3) for b in range(3)]
        whole = sum(one.dot(filters[k // 3, k % 3]) for k, one in enumerate(seen))
        most = whole.reshape(2, 2, 2, 3, 2, many).max((2, 4))
        largest, spread = (one.repeat(2, 1).repeat(2, 2) for one in (most, gradient))
        spread *= (whole == largest) & (largest > 0)
        if name == "pooled":
            found = np.empty_like(spread)
            self.call("unpooled", shape, (at[2], at[4]), (found.ctypes.data,))
            followed = np.array_equal(found, spread)
        else:
            moved, sums = np.empty_like(filters), np.empty(many, np.float32)
            self.call("first_filter_gradient", shape, (at[0], at[2], at[4]), (moved.ctypes.data, sums.ctypes.data))
            wanted = [np.tensordot(one, spread, ((0, 1, 2), (0, 1, 2))) for one in seen]
            followed = (np.allclose(moved.reshape(9, inputs, many), wanted, atol=1e-3)
                        and np.allclose(sums, spread.sum((0, 1, 2)), atol=1e-3))
        return followed and np.allclose(y, np.maximum(most, 0), atol=1e-3)


def shaped(threads, pictures, word, strides):
    """Return winograd.c's struct Shape. pictures: how many, their height and width; strides of the filters, in numbers:
    an output's, a row's, a column's, an input's."""
    numbers = (threads,) + tuple(pictures) + tuple(word["shape"][2:]) + tuple(word["padding"]) + tuple(strides)
    numbers += (word.get("relued", 0),)
    return (ctypes.c_long * len(numbers))(*numbers)
