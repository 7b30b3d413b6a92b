"""A convolution as a product of spectra (trainer/spectra.py) in PyTorch, with its backward pass."""
import functools

import torch

from ... import layers, spectra
from . import products
from .numbers import LAST


def can_be(word, x, at):
    """Return whether spectra would be faster. On a GPU cuDNN chooses by itself, and 16 bits are too few for a spectrum.
    The output is channels-last, and so must be the input."""
    return (x.device.type == "cpu" and x.dtype == torch.float32 and not (at.half or at.is_compiled)
            and LAST is not None and x.is_contiguous(memory_format=LAST) and spectra.pays(word, len(x), *x.shape[2:]))


def conv(word, x, weights, biases):
    tables = tables_of(word["shape"], word["padding"], *x.shape[2:])
    return Spectral.apply(x, weights, 0 if biases is None else biases, tables)


@functools.lru_cache(maxsize=None)
def tables_of(shape, padding, height, width):
    """Return the output's sides, and into, taps and out of spectra.Tables."""
    word = {"shape": shape, "padding": padding}
    found = spectra.tables(word, height, width)[1:]
    return (layers.sides_after(word, (height, width)), *map(torch.from_numpy, found))


class Spectral(torch.autograd.Function):
    """x [n, inputs, height, width], weights [outputs, inputs, ...]. Spectra are [2, frequencies, ..., channels]."""

    @staticmethod
    def forward(ctx, x, weights, biases, tables):
        sides, into, taps, out = ctx.tables = tables
        ctx.sides, ctx.window = x.shape[2:], weights.shape[2:]
        spectrum, windows = spectral(into, x.permute(2, 3, 0, 1)), spectral(taps, weights.permute(2, 3, 1, 0))
        ctx.save_for_backward(spectrum, windows)
        found = x.new_empty(len(x), *sides, len(weights))
        torch.add(spatial(out, product(spectrum, windows, 1), sides).permute(2, 0, 1, 3), biases, out=found)
        return found.permute(0, 3, 1, 2)

    @staticmethod
    def backward(ctx, gradient):
        (_, into, taps, out), (spectrum, windows) = ctx.tables, ctx.saved_tensors
        back, pulled, sums = spectral(out, gradient.permute(2, 3, 0, 1)), None, None
        if ctx.needs_input_grad[0]:
            pulled = spatial(into, product(back, windows.transpose(2, 3), -1), ctx.sides).permute(2, 0, 1, 3)
            pulled = pulled.contiguous().permute(0, 3, 1, 2)
        moved = spatial(taps, product(spectrum.transpose(2, 3), back, 1), ctx.window).permute(3, 2, 0, 1)
        if ctx.needs_input_grad[2]:
            sums = gradient.sum((0, 2, 3))
        return pulled, moved, sums, None


def spectral(table, array):
    """Return the spectrum of [height, width, a, b]."""
    a, b = array.shape[2:]
    return products.mm(table, array.reshape(-1, a * b)).view(2, -1, a, b)


def spatial(table, spectrum, sides):
    """Return [height, width, a, b] of a spectrum."""
    a, b = spectrum.shape[2:]
    return products.mm(table.t(), spectrum.view(-1, a * b)).view(*sides, a, b)


def product(a, b, sign):
    """Return a times b's complex conjugate; with sign -1, a times b."""
    found = a.new_empty(*a.shape[:3], b.shape[3])
    torch.bmm(a[0], b[0], out=found[0]).baddbmm_(a[1], b[1], alpha=sign)
    torch.bmm(a[1], b[0], out=found[1]).baddbmm_(a[0], b[1], alpha=-sign)
    return found
