"""Where a convolution is faster as a product of spectra: on a CPU, if kernels are large and images small.

By the convolution theorem each frequency of the output is that of the image times that of the kernel, a matrix product
over the channels, which takes far fewer multiplications. spectra.c computes it.

It rounds like the direct sum where the image's values have similar magnitudes. Elsewhere it is off by up to 1e-6 of the
image's largest value, even where a kernel sees only zeros, and a value that is not finite spreads over the whole image.
"""
from __future__ import absolute_import, division, print_function

from . import layers

# Spectra must need at least PAYS times fewer multiplications, with transforms counted as products with a matrix: those
# of spectra.c take a fifth of that, but memory takes as long. The kernels' spectra may take MOST_BYTES, because larger
# ones do not fit into the cache. docs/experiments.md, "Convolutions by spectra", has the measurements.
PAYS, MOST_BYTES = 2.2, 2**25
MULTIPLE, LONGEST = 32, 32  # in spectra.c: of channels; places along any side


def pays(word, examples, height, width):
    """Return whether spectra save enough for a convolution of this many examples of this size."""
    if not can_be(word):
        return False
    across, after = period(word, (height, width)), layers.sides_after(word, (height, width))
    rows, columns, inputs, outputs = word["shape"]
    count, window, places = counted(across), rows * columns, after[0] * after[1]
    if min(after) < 1 or max(across + after + (rows, columns)) > LONGEST:
        return False
    if 2 * 4 * count * inputs * outputs > MOST_BYTES:
        return False
    transforms = 2 * count * (examples * (height * width * inputs + places * outputs) + window * inputs * outputs)
    products = 4 * count * examples * inputs * outputs
    return examples * places * window * inputs * outputs > PAYS * (transforms + products)


def can_be(word):
    """Return whether spectra.c can compute this word, and may be faster."""
    if word["op"] != "conv" or word["stride"] != 1:
        return False
    rows, columns, inputs, outputs = word["shape"]
    return rows * columns > 1 and inputs % MULTIPLE == outputs % MULTIPLE == 0


def period(word, sides):
    """Return the period with which a discrete spectrum repeats the image: so long that a kernel that extends beyond an
    edge meets only zeros, not the next repetition."""
    return tuple(side + edge for side, edge in zip(sides, word["padding"]))


def counted(across):
    """Return how many frequencies are computed: of two that mirror each other one, as for real input the other is its
    complex conjugate, and all that are their own mirror image."""
    return (across[0] * across[1] + (2 - across[0] % 2) * (2 - across[1] % 2)) // 2
