"""Layers on a CPU by C of our own: which of them it can compute, and the library that does.

winograd.c: 3 x 3 convolutions and their gradients, in 0.4 to 0.9 of oneDNN's time (of 256 channels with AVX-512 in 0.9
to 1.14), with a relu before them, and a max pool of 2 x 2 and a relu behind them. first.c: a network's first
convolution, of 3 x 3 or 5 x 5 over three colours, with its pool and relu. spectra.c: convolutions by spectra, where
spectra.py says so. normalise.c: local response normalisation. dropout.c: dropout.

gcc compiles them for this processor when a training begins, while the framework loads. Without gcc, or on a processor
without AVX2 or NEON, the framework's own layers do instead.
"""
from __future__ import absolute_import, division, print_function

import ctypes
import struct

import numpy as np

from . import layers, native, spectra
from .ahead import meanwhile

SOURCES = "winograd.c", "first.c", "spectra.c", "normalise.c", "dropout.c"
# Channels in winograd.c: fewer take as long to transform as to multiply, and the transformed filters of more do not fit
# into the cache, from which they are read for each block of tiles.
MULTIPLE, MOST = spectra.MULTIPLE, 256
SIDE_BY_SIDE = 6  # in first.c: no row may have fewer places
EDGE, MOST_NORMALISED = 8, 1024  # in normalise.c
NONE = 9  # in convolution.h: what a pool chooses where relu makes it 0
LOW = 0xFFFFFFFF
LEAST_TILES = 48  # for each thread: with fewer, transforming filters and their gradients takes longer than the products

begun, loaded = [], []  # at most one each: what returns the compiled library, and a Library or None


def pays(word, threads, examples, height, width):
    """Return whether this is faster for a convolution of this many examples of this size."""
    if not can_be(word):
        return False
    down, across = ((side + 1) // 2 for side in layers.sides_after(word, (height, width)))
    return min(down, across) > 0 and examples * down * across >= LEAST_TILES * threads


def any_of(words):
    """Return whether it is worth a second of compiling for one of the words (layers.flat of layers.joined)."""
    return any(can_be(word) or is_first(word) or spectra.can_be(word) or normalises(word, MULTIPLE) for word in words)


def can_be(word):
    """Return whether winograd.c can compute this word."""
    if word["op"] != "conv":
        return False
    rows, columns, inputs, outputs = word["shape"]
    return ((rows, columns) == (3, 3) and word["stride"] == 1 and max(word["padding"]) <= 2
            and all(many % MULTIPLE == 0 and many <= MOST for many in (inputs, outputs)))


def pools(word, threads, examples, height, width):
    """Return whether this computes a joined word (layers.joined) at once, for so many examples of this size."""
    if "pooled" not in word:
        return False
    sides, pool = layers.sides_after(word, (height, width)), word["pooled"][0]
    if is_first(word):
        return min(sides) >= SIDE_BY_SIDE
    return (pool["size"] == 2 and not any(pool["padding"]) and not any(side % 2 for side in sides)
            and pays(word, threads, examples, height, width))


def is_first(word):
    """Return whether first.c can compute this word, but for a gradient of its input."""
    if "pooled" not in word or "relued" in word:
        return False
    (rows, columns, inputs, outputs), pool = word["shape"], word["pooled"][0]
    return (rows == columns and rows in (3, 5) and inputs == 3 and outputs % MULTIPLE == 0 and word["stride"] == 1
            and max(word["padding"]) < rows and pool["size"] in (2, 3) and pool["padding"] in ((0, 0), (0, 1)))


def normalises(word, channels):
    """Return whether normalise.c can compute a word over so many channels."""
    return (word["op"] == "lrn" and word["beta"] == 0.75 and word["radius"] <= EDGE
            and channels % MULTIPLE == 0 and channels <= MOST_NORMALISED)


def begin(words):
    """Start to compile in a thread, if that is worth it for one of the words."""
    if not begun and any_of(words):
        begun.append(meanwhile(native.compiled, SOURCES))


def library(words):
    """Return the Library, once it is compiled. The framework must be loaded. None: it is not worth it for any of the
    words, or can't be had here."""
    begin(words)
    if begun and not loaded:
        loaded.append(opened(begun[0]()))
    return loaded[0] if loaded and any_of(words) else None


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
    """The functions of the C. Each takes a shape (shaped() below), and the addresses of float32 arrays to read and
    to fill. Pictures are [examples, height, width, channels], and filters lie as the shape tells:

    output(shape, (x, filters, biases or None), (found,))
    input_gradient(shape, (gradient, filters, x if it is relued), (found,))
    filter_gradient(shape, (x, gradient), (of filters, of biases))
    pooled(shape, (x, filters, biases or None), (found, choices))
    unpooled(shape, (gradient of found, choices), (gradient,))
    first_pooled(shape, (x, filters, biases or None), (found, choices)), with a shape of shaped_first()
    first_filter_gradient(shape, (x, gradient of found, choices), (of filters, of biases))

    spectral(shape, (x, filters, biases or None), (found,)), with a shape of shaped_spectra(), as the next
    spectral_gradients(shape, (x, filters, gradient), (of x or None, of filters, of biases))

    normalised(shape, (x,), (found,)), with a shape of shaped_rows(), as the next
    normalised_gradient(shape, (x, gradient of found), (of x,))

    dropped(shape, (x, key), (found,)), with a shape of shaped_drop(). The key has 64 bits. With the same key the
    gradient of x is what it makes of found's.

    choices, as many numbers of 32 bits as found has, are for the gradient only."""

    def __init__(self, loaded):
        self.loaded = loaded

    def call(self, name, shape, given, found):
        if getattr(self.loaded, name)(shape, *((ctypes.c_void_p * len(array))(*array) for array in (given, found))):
            raise MemoryError("no memory for a convolution")

    def address(self, name):
        return ctypes.cast(getattr(self.loaded, name), ctypes.c_void_p).value

    def is_right(self):
        """Return whether this computes what it should on this processor."""
        random, many = np.random.RandomState(0), MULTIPLE
        pools = pooled(3, many, 2, 0), pooled(3, 3, 2, 0), pooled(5, 3, 3, 1)
        return bool(self.convolves_right(random, 3) and self.convolves_right(random, 5)
                    and all(self.pools_right(random, word) for word in pools)
                    and self.normalises_right(random) and self.drops_right())

    def convolves_right(self, random, side):
        """Return whether a small convolution, by spectra if it is not of 3 x 3, and its gradients are right. It is
        linear in pictures and in filters, so the products of each with its gradient are equal."""
        many, edge = MULTIPLE, side // 2
        x, filters, gradient = (random.standard_normal(sides).astype(np.float32) for sides in (
            (2, 5, 6, many), (side, side, many, many), (2, 5, 6, many)))
        y, pulled, moved, sums = (np.empty_like(one) for one in (gradient, x, filters, filters[0, 0, 0]))
        word, strides = layers.conv("c", side, many, many, None), (1, side * many * many, many * many, many)
        shape = (shaped if side == 3 else shaped_spectra)(2, x.shape[:3], word, strides)
        at = [array.ctypes.data for array in (x, filters, gradient, y, pulled, moved, sums)]
        if side == 3:
            self.call("output", shape, (at[0], at[1], None), at[3:4])
            self.call("input_gradient", shape, (at[2], at[1]), at[4:5])
            self.call("filter_gradient", shape, (at[0], at[2]), at[5:])
        else:
            self.call("spectral", shape, (at[0], at[1], None), at[3:4])
            self.call("spectral_gradients", shape, at[:3], at[4:])
        wide = np.pad(x, [(0, 0), (edge, edge), (edge, edge), (0, 0)], "constant")
        wanted = sum(wide[:, a:a + 5, b:b + 6].dot(filters[a, b]) for a in range(side) for b in range(side))
        products = [np.vdot(one, other) for one, other in ((y, gradient), (x, pulled), (filters, moved))]
        return (np.allclose(y, wanted, atol=1e-3) and np.allclose(sums, gradient.sum((0, 1, 2)), atol=1e-3)
                and np.allclose(products, np.vdot(wanted, gradient), rtol=1e-3))

    def normalises_right(self, random):
        x, gradient = (random.standard_normal((5, MULTIPLE)).astype(np.float32) for _ in range(2))
        word = layers.lrn("n", 4, 1.0, 0.1, 0.75)
        shape, found, pulled = shaped_rows(2, 5, MULTIPLE, word), np.empty_like(x), np.empty_like(x)
        at = [array.ctypes.data for array in (x, gradient, found, pulled)]
        self.call("normalised", shape, at[:1], at[2:3])
        self.call("normalised_gradient", shape, at[:2], at[3:])
        near = np.arange(MULTIPLE)
        band = (abs(near[:, None] - near) <= word["radius"]) * word["alpha"]
        scale = (x * x).dot(band) + word["bias"]
        own = gradient * scale ** -0.75
        wanted = own - 1.5 * x * (own * x / scale).dot(band)
        return np.allclose(found, x * scale ** -0.75, atol=1e-5) and np.allclose(pulled, wanted, atol=1e-5)

    def drops_right(self):
        x, key, found = np.arange(200, dtype=np.float32), np.array([3, 2 ** 31], np.uint32), np.empty(200, np.float32)
        shape = shaped_drop(2, len(x), layers.dropout("d", 0.25))
        self.call("dropped", shape, (x.ctypes.data, key.ctypes.data), (found.ctypes.data,))
        return np.allclose(found, x * kept(0.25, len(x), key))

    def pools_right(self, random, word):
        """Return whether a small joined convolution, what it chooses and what follows from that are right."""
        side, inputs, many = word["shape"][1:]
        x, filters = (random.standard_normal(sides).astype(np.float32) for sides in ((2, 6, 8, inputs), word["shape"]))
        down, across = layers.pooled_sides(word, x.shape[1:3])
        gradient = random.standard_normal((2, down, across, many)).astype(np.float32)
        y, choices = np.empty_like(gradient), np.empty(gradient.shape, np.int32)
        strides = 1, side * inputs * many, inputs * many, many
        shape = shaper(word)(2, x.shape[:3], word, strides)
        at = [array.ctypes.data for array in (x, filters, gradient, y, choices)]
        self.call("first_pooled" if is_first(word) else "pooled", shape, (at[0], at[1], None), at[3:])

        edge, pool = word["padding"][0], word["pooled"][0]
        framed = np.pad(x, [(0, 0), (edge, edge), (edge, edge), (0, 0)], "constant")
        seen = [framed[:, a:a + 6, b:b + 8] for a in range(side) for b in range(side)]
        found = sum(one.dot(filters[k // side, k % side]) for k, one in enumerate(seen))
        framed = np.pad(found, [(0, 0), (0, 1), (0, 1), (0, 0)], "constant", constant_values=-np.inf)
        parts = [np.s_[:, a:a + 2 * down:2, b:b + 2 * across:2] for a in range(pool["size"])
                 for b in range(pool["size"])]
        among, whole = [framed[part] for part in parts], np.zeros_like(framed)
        wanted = np.where(np.max(among, 0) > 0, np.argmax(among, 0), NONE)
        for k, part in enumerate(parts):
            whole[part] += gradient * (wanted == k)
        whole = np.ascontiguousarray(whole[:, :6, :8])
        if is_first(word):
            moved, sums = np.empty_like(filters), np.empty(many, np.float32)
            self.call("first_filter_gradient", shape, (at[0], at[2], at[4]), (moved.ctypes.data, sums.ctypes.data))
            products = [np.tensordot(one, whole, ((0, 1, 2), (0, 1, 2))) for one in seen]
            follows = (np.allclose(moved.reshape(-1, inputs, many), products, atol=1e-3)
                       and np.allclose(sums, whole.sum((0, 1, 2)), atol=1e-3))
        else:
            spread = np.empty_like(whole)
            self.call("unpooled", shape, (at[2], at[4]), (spread.ctypes.data,))
            follows = np.array_equal(spread, whole)
        return (follows and np.array_equal(choices, wanted)
                and np.allclose(y, np.maximum(np.max(among, 0), 0), atol=1e-3))


def pooled(window, inputs, size, after):
    words = [layers.conv("c", window, inputs, MULTIPLE, None), layers.max_pool("p", size, 2, (0, after)),
             layers.relu("r")]
    return layers.joined(words)[0]


def shaper(word):
    """Return which of the next two makes the shape of a word."""
    return shaped_first if is_first(word) else shaped


def shaped(threads, pictures, word, strides):
    """Return winograd.c's struct Shape. pictures: how many, their height and width; strides of the filters, in numbers:
    an output's, a row's, a column's, an input's."""
    numbers = (threads,) + tuple(pictures) + tuple(word["shape"][2:]) + tuple(word["padding"]) + tuple(strides)
    numbers += (word.get("relued", 0),)
    return (ctypes.c_long * len(numbers))(*numbers)


def shaped_first(threads, pictures, word, strides):
    """Return the same for first.c: its struct First."""
    sides = layers.pooled_sides(word, pictures[1:])
    numbers = (threads,) + tuple(pictures) + (word["shape"][3],) + tuple(word["padding"]) + tuple(strides)
    numbers += (word["shape"][0], word["pooled"][0]["size"]) + sides
    return (ctypes.c_long * len(numbers))(*numbers)


def shaped_spectra(threads, pictures, word, strides):
    """Return the same for spectra.c: its struct Spectra."""
    numbers = tuple(shaped(threads, pictures, word, strides)) + tuple(word["shape"][:2])
    return (ctypes.c_long * len(numbers))(*numbers)


def shaped_rows(threads, rows, channels, word):
    """Return normalise.c's struct Rows for a word over rows of channels: whole numbers, and two of 64-bit floats."""
    numbers = (threads, rows, channels, word["radius"]) + as_integers(word["bias"], word["alpha"])
    return (ctypes.c_long * len(numbers))(*numbers)


def shaped_drop(threads, count, word):
    """Return dropout.c's struct Drop for a word over so many numbers."""
    rate = word["rate"]
    numbers = (threads, count, round(rate * 2 ** 16) - 2 ** 15) + as_integers(1 / (1 - rate))
    return (ctypes.c_long * len(numbers))(*numbers)


def as_integers(*floats):
    """Return the integers of 64 bits that have the bits of these numbers."""
    return struct.unpack("%dq" % len(floats), struct.pack("%dd" % len(floats), *floats))


def kept(rate, count, key):
    """Return what dropout.c multiplies so many numbers by."""
    drawn = np.array([philox(counter, *key) for counter in range(-(-count // 64) * 8)], np.uint32)
    halves = np.stack([drawn >> 16, drawn & 0xFFFF], 2).reshape(-1, 8, 2, 2, 2)  # block, counter, pair, word, half
    halves = halves.transpose(0, 2, 4, 1, 3).reshape(-1)[:count]
    return ((halves ^ 0x8000) >= round(rate * 2 ** 16)) / (1 - rate)


def philox(counter, one, other):
    """Return the four numbers of 32 bits that Philox 4x32-10 makes of a counter and a key of two such numbers."""
    a, b, c, d, one, other = counter, 0, 0, 0, int(one), int(other)
    for _ in range(10):
        left, right = a * 0xD2511F53, c * 0xCD9E8D57
        a, b, c, d = (right >> 32) ^ b ^ one, right & LOW, (left >> 32) ^ d ^ other, left & LOW
        one, other = (one + 0x9E3779B9) & LOW, (other + 0xBB67AE85) & LOW
    return a, b, c, d
