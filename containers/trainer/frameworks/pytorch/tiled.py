"""3 x 3 convolutions on a CPU by trainer/winograd.c in PyTorch, with their backward pass."""
import torch

from ... import layers, winograd
from .numbers import LAST


def can_be(word, x, at):
    """Return whether this would be faster, and can be had here: not in 16 bits, nor in a layout with channels first."""
    return (at.winograd is not None and not (at.half or at.is_compiled) and x.device.type == "cpu"
            and x.dtype == torch.float32 and x.is_contiguous(memory_format=LAST)
            and winograd.pays(word, torch.get_num_threads(), len(x), *x.shape[2:]))


def conv(word, x, weights, biases, library):
    return Winograd.apply(x, weights, biases, word, library)


class Winograd(torch.autograd.Function):
    """x [n, inputs, height, width], channels last; weights [outputs, inputs, 3, 3]; biases may be None."""

    @staticmethod
    def forward(ctx, x, weights, biases, word, library):
        far = weights.stride()
        ctx.shape = winograd.shaped(torch.get_num_threads(), (len(x), *x.shape[2:]), word,
                                    (far[0], far[2], far[3], far[1]))
        ctx.library = library
        ctx.save_for_backward(x, weights)
        found = torch.empty((len(x), len(weights), *layers.sides_after(word, x.shape[2:])), memory_format=LAST)
        added = None if biases is None else biases.data_ptr()
        library.call("output", ctx.shape, (x.data_ptr(), weights.data_ptr(), added), (found.data_ptr(),))
        return found

    @staticmethod
    def backward(ctx, gradient):
        (x, weights), library, pulled, moved, sums = ctx.saved_tensors, ctx.library, None, None, None
        gradient = gradient.contiguous(memory_format=LAST)
        if ctx.needs_input_grad[0]:
            pulled = torch.empty_like(x)
            library.call("input_gradient", ctx.shape, (gradient.data_ptr(), weights.data_ptr()), (pulled.data_ptr(),))
        if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
            moved, sums = torch.empty_like(weights), torch.empty(len(weights))
            given = x.data_ptr(), gradient.data_ptr()
            library.call("filter_gradient", ctx.shape, given, (moved.data_ptr(), sums.data_ptr()))
        wanted = [one if wants else None for one, wants in zip((moved, sums), ctx.needs_input_grad[1:])]
        return (pulled, *wanted, None, None)
