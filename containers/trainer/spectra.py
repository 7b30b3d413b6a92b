"""A convolution as a product of spectra: on a CPU far fewer multiplications if kernels are large and images small.

By the convolution theorem each frequency of the output is that of the image times that of the kernel, a matrix product
over the channels. The discrete Fourier transforms there and back are written as matrices too: at these sizes a matrix
product is what a CPU does fastest.

It rounds like the direct sum where the image's values have similar magnitudes. Elsewhere it is off by up to 1e-6 of the
image's largest value, even where a kernel sees only zeros, and a value that is not finite spreads over the whole image.
"""
from __future__ import absolute_import, division, print_function

import collections

import numpy as np

from . import layers

# Spectra must need at least PAYS times fewer multiplications, because products of many small matrices run at a lower
# rate than a convolution. The kernels' spectra may take MOST_BYTES, because larger ones do not fit into the cache.
# docs/experiments.md, "Convolutions by spectra", has the measurements.
PAYS, MOST_BYTES = 2.2, 2**25

# Matrices of float32, with all real parts first, then all imaginary ones: into [2 * count, height * width] transforms
# an image, taps [2 * count, kernel height * kernel width] a kernel; out [2 * count, output height * width], transposed,
# transforms a spectrum back.
Tables = collections.namedtuple("Tables", "count into taps out")


def pays(word, examples, height, width):
    """Return whether spectra save enough for a convolution of this many examples of this size."""
    if word["stride"] != 1:
        return False
    (rows, columns, inputs, outputs), after = word["shape"], layers.sides_after(word, (height, width))
    count, window, places = counted(period(word, (height, width))), rows * columns, after[0] * after[1]
    if 2 * 4 * count * inputs * outputs > MOST_BYTES:
        return False
    transforms = 2 * count * (examples * (height * width * inputs + places * outputs) + window * inputs * outputs)
    products = 4 * count * examples * inputs * outputs
    return examples * places * window * inputs * outputs > PAYS * (transforms + products)


def tables(word, height, width):
    """Return the Tables of a convolution with stride 1 for images of this size."""
    across, size = period(word, (height, width)), word["shape"][:2]
    found = frequencies(across)
    # one of two mirrored frequencies is the other's complex conjugate: only one is computed, and counts twice
    shares = np.array([1 if mirrored(one, across) == one else 2 for one in found])[:, None] / (across[0] * across[1])
    out = waves(found, across, layers.sides_after(word, (height, width)), word["padding"]) * shares
    return Tables(len(found), parts(waves(found, across, (height, width))), parts(waves(found, across, size)),
                  parts(out))


def period(word, sides):
    """Return the period with which a discrete spectrum repeats the image: so long that a kernel that extends beyond an
    edge meets only zeros, not the next repetition."""
    return tuple(side + edge for side, edge in zip(sides, word["padding"]))


def frequencies(across):
    """Return one of each pair of frequencies that mirror each other: for real input the other is its complex
    conjugate."""
    every = [(down, right) for down in range(across[0]) for right in range(across[1])]
    return [one for one in every if one <= mirrored(one, across)]


def counted(across):
    """Return how many frequencies() returns: half of those in pairs, and all that are their own mirror image."""
    return (across[0] * across[1] + (2 - across[0] % 2) * (2 - across[1] % 2)) // 2


def mirrored(one, across):
    return tuple(-number % many for number, many in zip(one, across))


def waves(found, across, sides, edges=(0, 0)):
    """Return exp(-i * angle) [frequencies, places]; edges: how far before the image the first place is."""
    places = np.indices(sides).reshape(2, -1) - np.array(edges)[:, None]
    return np.exp(-2j * np.pi * (np.array(found) / np.array(across, float)).dot(places))


def parts(array):
    return np.concatenate([array.real, array.imag]).astype(np.float32)
