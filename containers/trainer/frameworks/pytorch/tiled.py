"""Layers on a CPU by C of trainer/kernels.py in PyTorch, with their backward pass."""
import torch

from ... import kernels, layers
from .numbers import LAST


def can_be(word, x, at):
    """Return whether this would be faster, and can be had here."""
    return is_plain(x, at) and kernels.pays(word, torch.get_num_threads(), len(x), *x.shape[2:])


def can_pool(word, x, at):
    """Return the same of a joined word (layers.joined)."""
    return ("pooled" in word and is_plain(x, at) and kernels.pools(word, torch.get_num_threads(), len(x), *x.shape[2:])
            and not (x.requires_grad and kernels.is_first(word)))


def is_plain(x, at):
    """Return whether x is neither in 16 bits nor in a layout with channels first, and there is a library."""
    return is_taken(x, at) and x.is_contiguous(memory_format=LAST)


def is_taken(x, at):
    """Return whether x is in 32 bits on a CPU, and there is a library."""
    return (at.library is not None and not (at.half or at.is_compiled) and x.device.type == "cpu"
            and x.dtype == torch.float32)


def conv(word, x, weights, biases, library):
    return Winograd.apply(x, weights, biases, word, library)


def pooled(word, x, weights, biases, library):
    return Pooled.apply(x, weights, biases, word, library)


class Winograd(torch.autograd.Function):
    """x [n, inputs, height, width], channels last; weights [outputs, inputs, 3, 3]; biases may be None."""

    @staticmethod
    def forward(ctx, x, weights, biases, word, library):
        ctx.shape, ctx.library = shape(word, x, weights), library
        ctx.save_for_backward(x, weights)
        found = room(x, word, layers.sides_after(word, x.shape[2:]))
        library.call("output", ctx.shape, addresses(x, weights, biases), addresses(found))
        return found

    @staticmethod
    def backward(ctx, gradient):
        return (*gradients(ctx, gradient.contiguous(memory_format=LAST), *ctx.saved_tensors), None, None)


class Pooled(torch.autograd.Function):
    """The same, its max pool and relu."""

    @staticmethod
    def forward(ctx, x, weights, biases, word, library):
        ctx.shape, ctx.word, ctx.library = shape(word, x, weights), word, library
        found = room(x, word, layers.pooled_sides(word, x.shape[2:]))
        choices = torch.empty_like(found, dtype=torch.int32)
        ctx.save_for_backward(x, weights, choices)
        name = "first_pooled" if kernels.is_first(word) else "pooled"
        library.call(name, ctx.shape, addresses(x, weights, biases), addresses(found, choices))
        return found

    @staticmethod
    def backward(ctx, gradient):
        x, weights, choices = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=LAST)
        if kernels.is_first(ctx.word):
            moved, sums = torch.empty_like(weights), torch.empty(len(weights))
            given = addresses(x, gradient, choices)
            ctx.library.call("first_filter_gradient", ctx.shape, given, addresses(moved, sums))
            return (None, *only(ctx.needs_input_grad[1:], moved, sums), None, None)
        whole = room(x, ctx.word, layers.sides_after(ctx.word, x.shape[2:]))
        ctx.library.call("unpooled", ctx.shape, addresses(gradient, choices), addresses(whole))
        return (*gradients(ctx, whole, x, weights), None, None)


def can_normalise(word, x, at):
    return is_plain(x, at) and kernels.normalises(word, x.shape[1])


class NormalisedRows(torch.autograd.Function):
    """Local response normalisation of x [n, channels, height, width], channels last."""

    @staticmethod
    def forward(ctx, x, word, library):
        ctx.library = library
        ctx.shape = kernels.shaped_rows(torch.get_num_threads(), x.numel() // x.shape[1], x.shape[1], word)
        ctx.save_for_backward(x)
        found = torch.empty_like(x)
        library.call("normalised", ctx.shape, addresses(x), addresses(found))
        return found

    @staticmethod
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        found = torch.empty_like(x)
        gradient = gradient.contiguous(memory_format=LAST)
        ctx.library.call("normalised_gradient", ctx.shape, addresses(x, gradient), addresses(found))
        return found, None, None


def can_drop(x, at):
    return is_taken(x, at) and layout(x) is not None


def layout(x):
    """Return the memory format in which x has no gaps; None if there is none."""
    known = [torch.contiguous_format] + [LAST] * (x.dim() == 4)
    return next((one for one in known if x.is_contiguous(memory_format=one)), None)


class Dropped(torch.autograd.Function):
    """Dropout of x, which has a layout."""

    @staticmethod
    def forward(ctx, x, word, library):
        ctx.library, ctx.layout = library, layout(x)
        ctx.shape = kernels.shaped_drop(torch.get_num_threads(), x.numel(), word)
        ctx.key = torch.empty(1, dtype=torch.int64).random_(-(2**63), None)
        return dropped(ctx, x)

    @staticmethod
    def backward(ctx, gradient):
        return dropped(ctx, gradient.contiguous(memory_format=ctx.layout)), None, None


def dropped(ctx, x):
    found = torch.empty_like(x)
    ctx.library.call("dropped", ctx.shape, addresses(x, ctx.key), addresses(found))
    return found


def gradients(ctx, gradient, x, weights):
    """Return the gradients of x, weights and biases, each None if nobody needs it."""
    pulled, moved, sums = None, None, None
    if ctx.needs_input_grad[0]:
        pulled = torch.empty_like(x)
        ctx.library.call("input_gradient", ctx.shape, addresses(gradient, weights, x), addresses(pulled))
    if ctx.needs_input_grad[1] or ctx.needs_input_grad[2]:
        moved, sums = torch.empty_like(weights), torch.empty(len(weights))
        ctx.library.call("filter_gradient", ctx.shape, addresses(x, gradient), addresses(moved, sums))
    return (pulled, *only(ctx.needs_input_grad[1:], moved, sums))


def only(wanted, *found):
    return [one if wants else None for one, wants in zip(found, wanted)]


def shape(word, x, weights, shaped=None):
    far, shaped = weights.stride(), shaped or kernels.shaper(word)
    return shaped(torch.get_num_threads(), (len(x), *x.shape[2:]), word, (far[0], far[2], far[3], far[1]))


def room(x, word, sides):
    return torch.empty((len(x), word["shape"][3], *sides), memory_format=LAST)


def addresses(*tensors):
    return [None if one is None else one.data_ptr() for one in tensors]
