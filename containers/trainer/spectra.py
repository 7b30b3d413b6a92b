"""A convolution as a product of spectra: on a CPU far fewer multiplications where windows are large and pictures small.

By the convolution theorem each frequency of what comes out is that of the picture times that of the window, a product
of matrices over the channels. There and back it takes discrete Fourier transforms, which are written as matrices too:
at these sizes a product of matrices is what a CPU does fastest.

It rounds as the sum over a window does where the picture has numbers of one size. Elsewhere it is off by up to 1e-6 of
the picture's largest number, also where a window sees zeros alone, and what is not finite spreads over all the picture.
"""
from __future__ import absolute_import, division, print_function

import collections

import numpy as np

# How many times fewer multiplications it must take, and how many bytes the windows' spectra may: products of many small
# matrices run at a lower rate than a convolution, and spectra that leave the cache are waited for.
# docs/performance.md, "Training on the CPU", has what was measured.
PAYS, MOST_BYTES = 2.2, 2**25

# Matrices of float32, in which first all real parts stand, then all imaginary ones: into [2 * count, height * width]
# gives a picture's spectrum, taps [2 * count, window height * window width] a window's; out [2 * count, height * width
# of what comes out], transposed, gives that of a spectrum.
Tables = collections.namedtuple("Tables", "count into taps out")


def pays(word, examples, height, width):
    """Does a convolution of so many examples of this size take so much less by its spectra?"""
    if word["stride"] != 1:
        return False
    (rows, columns, inputs, outputs), after = word["shape"], sides_after(word, (height, width))
    count, window, places = counted(period(word, (height, width))), rows * columns, after[0] * after[1]
    if 2 * 4 * count * inputs * outputs > MOST_BYTES:
        return False
    transforms = 2 * count * (examples * (height * width * inputs + places * outputs) + window * inputs * outputs)
    products = 4 * count * examples * inputs * outputs
    return examples * places * window * inputs * outputs > PAYS * (transforms + products)


def tables(word, height, width):
    """Give the Tables of a convolution of stride 1 for pictures of this size."""
    across, size = period(word, (height, width)), word["shape"][:2]
    found = frequencies(across)
    # of two that mirror each other the other one is the complex conjugate: it counts, and is not computed
    shares = np.array([1 if mirrored(one, across) == one else 2 for one in found])[:, None] / (across[0] * across[1])
    out = waves(found, across, sides_after(word, (height, width)), word["padding"]) * shares
    return Tables(len(found), parts(waves(found, across, (height, width))), parts(waves(found, across, size)),
                  parts(out))


def sides_after(word, sides):
    return tuple(side + 2 * edge - size + 1 for side, edge, size in zip(sides, word["padding"], word["shape"]))


def period(word, sides):
    """Give after how many places the picture repeats itself, as a discrete spectrum has it: so late that a window that
    hangs over at one end meets nothing of the next but the zeros between them."""
    return tuple(side + edge for side, edge in zip(sides, word["padding"]))


def frequencies(across):
    """Give one of each two frequencies that mirror each other: of real numbers both say the same."""
    every = [(down, right) for down in range(across[0]) for right in range(across[1])]
    return [one for one in every if one <= mirrored(one, across)]


def counted(across):
    """Give how many those are: all that stand for two, and those that are their own mirror image."""
    return (across[0] * across[1] + (2 - across[0] % 2) * (2 - across[1] % 2)) // 2


def mirrored(one, across):
    return tuple(-number % many for number, many in zip(one, across))


def waves(found, across, sides, edges=(0, 0)):
    """Give exp(-i * angle) [frequencies, places]; edges: how far before the picture the first place lies."""
    places = np.indices(sides).reshape(2, -1) - np.array(edges)[:, None]
    return np.exp(-2j * np.pi * (np.array(found) / np.array(across, float)).dot(places))


def parts(array):
    return np.concatenate([array.real, array.imag]).astype(np.float32)
