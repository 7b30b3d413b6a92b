"""A convolution as a product of spectra (trainer/spectra.py) in PyTorch, with its backward pass."""
import torch

from ... import kernels, layers, spectra
from . import tiled
from .numbers import LAST


def can_be(word, x, at):
    """Return whether spectra would be faster, and can be had here."""
    return tiled.is_plain(x, at) and spectra.pays(word, len(x), *x.shape[2:])


def conv(word, x, weights, biases, library):
    return Spectral.apply(x, weights, biases, word, library)


class Spectral(torch.autograd.Function):
    """x [n, inputs, height, width], channels last; weights [outputs, inputs, ...]; biases may be None."""

    @staticmethod
    def forward(ctx, x, weights, biases, word, library):
        ctx.shape, ctx.library = tiled.shape(word, x, weights, kernels.shaped_spectra), library
        ctx.save_for_backward(x, weights)
        found = tiled.room(x, word, layers.sides_after(word, x.shape[2:]))
        library.call("spectral", ctx.shape, tiled.addresses(x, weights, biases), tiled.addresses(found))
        return found

    @staticmethod
    def backward(ctx, gradient):
        x, weights = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=LAST)
        pulled = torch.empty_like(x) if ctx.needs_input_grad[0] else None
        moved, sums = torch.empty_like(weights), gradient.new_empty(len(weights))
        given, found = tiled.addresses(x, weights, gradient), tiled.addresses(pulled, moved, sums)
        ctx.library.call("spectral_gradients", ctx.shape, given, found)
        return (pulled, *tiled.only(ctx.needs_input_grad[1:], moved, sums), None, None)
