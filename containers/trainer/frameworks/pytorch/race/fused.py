"""net.forward() by few kernels: between two convolutions one or two of Triton's each way, instead of a dozen.

torch.compile fuses less: it computes activations again in the backward pass, writes a pool's gradient at a quarter of
the memory's rate, and leaves the whitening to a slow convolution (docs/experiments.md). These also compile in seconds.
"""
import torch

from .... import race
from ..numbers import LAST
from . import kernels, net, pictures
from .arrays import Arrays

WIDE = 32        # channels after the whitening: 24 and eight of zeros, because cuDNN is twice as fast with 32
NUMBERS = 4096   # that a program has at once
PROGRAMS = 12    # for each multiprocessor, of kernels that add up: three or four of them run there at a time
AT_ONCE = 4      # channels whose sums one program adds up
CHECKED = 32     # images
APART = 0.2      # in 16 bits gradients differ by up to 0.06 from net.py's, which rounds them in other places
EXACTLY = 0.02   # in float32


def rows_of(x):
    """Return how many pixels a map [n, channels, height, width] has in all its images."""
    return x.shape[0] * x.shape[2] * x.shape[3]


def empty(like, height, width, channels=None, kind=None):
    return torch.empty((like.shape[0], channels or like.shape[1], height, width), dtype=kind or like.dtype,
                       device=like.device, memory_format=LAST)


def tile(channels):
    """Return how many rows a program takes at once."""
    return max(NUMBERS // channels, 16)


def grid(rows, channels):
    """Return how many programs take all rows."""
    return (-(-rows // tile(channels)),)


def sums(x, channels):
    """Return [programs, 2, channels] to add up in."""
    many = torch.cuda.get_device_properties(x.device).multi_processor_count if x.is_cuda else 2
    return torch.empty(PROGRAMS * many, 2, channels, device=x.device)


def upward(many):
    """Return the least power of two that is not less."""
    return 1 << (many - 1).bit_length()


def total(found):
    """Add up what sums() returned and a kernel filled: [2, channels]."""
    programs, _, channels = found.shape
    into = torch.empty(2, channels, device=found.device)
    kernels.totals[(channels // AT_ONCE,)](found, into, programs, channels, upward(programs), AT_ONCE)
    return into


def left(x, pools):
    """Return the height and width of maps, with `pools` those behind the pool."""
    return (size // 2 if pools else size for size in x.shape[2:])


def activated(x, mean, scale, offset, pools, pad):
    """Return the maps, which are channels last, normalised and after SiLU, with `pools` behind the pool."""
    channels, (height, width) = x.shape[1], left(x, pools)
    out = empty(x, height + pad, width + pad)
    kernels.activate[grid(rows_of(out), channels)](
        x, out, mean, scale, offset, rows_of(out), height, width, pad, channels, pools, tile(channels))
    return out


class Normed(torch.autograd.Function):
    """Batch norm by this batch's statistics, and SiLU; with `pools` a 2 x 2 pool before them. The result has a border
    of zeros above and left of it if pad is 1."""

    @staticmethod
    def forward(ctx, x, offset, means, variances, share, pools, pad):
        x = x.contiguous(memory_format=LAST)
        height, width = left(x, pools)
        held = empty(x, height, width) if pools else x
        which = empty(x, height, width, kind=torch.int8) if pools else x
        channels, rows = x.shape[1], rows_of(held)
        found = sums(x, channels)
        programs = len(found)
        kernels.pool[(programs,)](x, held, which, found, rows, width, channels, pools, tile(channels))
        mean, scale = torch.empty(2, channels, device=x.device)
        kernels.moments[(channels // AT_ONCE,)](
            found, mean, scale, means, variances, programs, float(rows), share, race.EPSILON, channels,
            upward(programs), AT_ONCE)
        ctx.save_for_backward(held, which, mean, scale, offset)
        ctx.pools, ctx.pad, ctx.sides = pools, pad, x.shape[2:]
        return activated(held, mean, scale, offset, False, pad)

    @staticmethod
    def backward(ctx, gradient):
        held, which, mean, scale, offset = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=LAST)
        channels, (height, width), rows = held.shape[1], held.shape[2:], rows_of(held)
        found = sums(held, channels)
        kernels.gather[(len(found),)](
            held, gradient, mean, scale, offset, found, rows, height, width, ctx.pad, channels, tile(channels))
        both, out = total(found), empty(held, *ctx.sides)
        kernels.scatter[grid(rows, channels)](
            held, gradient, mean, scale, offset, both, which, out, rows, height, width, ctx.pad, float(rows), channels,
            ctx.pools, tile(channels))
        return out, both[0], None, None, None, None, None


class Whitened(torch.autograd.Function):
    """The whitening, and SiLU: WIDE channels, and a border of zeros if pad is 1."""

    @staticmethod
    def forward(ctx, x, weights, biases, pad):
        x, side = x.contiguous(memory_format=LAST), x.shape[2]
        out = empty(x, side - 1 + pad, side - 1 + pad, WIDE)
        kernels.whiten[grid(rows_of(out), WIDE)](
            x, weights, biases, out, rows_of(out), side, pad, len(weights), WIDE, tile(WIDE))
        ctx.save_for_backward(x, weights, biases)
        ctx.pad = pad
        return out

    @staticmethod
    def backward(ctx, gradient):
        x, weights, biases = ctx.saved_tensors
        gradient, found, side = gradient.contiguous(memory_format=LAST), sums(x, WIDE), x.shape[2]
        kernels.whiten_gather[(len(found),)](
            x, weights, biases, gradient, found, len(x) * (side - 1) ** 2, side, ctx.pad, len(weights), WIDE,
            tile(WIDE))
        return None, None, total(found)[0, : len(weights)], None


def normed(x, kept, name, share, pools, pad):
    """Return Normed of a layer; for share None, which takes the running statistics, without a gradient."""
    offset, means, variances = (kept[f"{name}/{which}"] for which in ("offset", "mean", "variance"))
    if share is not None:
        return Normed.apply(x, offset, means, variances, share, pools, pad)
    x = x.contiguous(memory_format=LAST)
    return activated(x, means, torch.rsqrt(variances + race.EPSILON), offset, pools, pad)


def forward(x, kept, share):
    """Return net.forward()'s logits of images [n, 3, side, side], which are channels last. share: the share of the
    running statistics that those of this batch replace; None to use the running ones, for a test."""
    border = (x.shape[2] - 1) % 2
    x = Whitened.apply(x, kept["whiten/weights"], kept[net.WHITENING], border)
    for block in range(1, len(race.WIDTHS) + 1):
        weights = kept[f"block{block}/conv1/weights"]
        if block == 1:
            weights = torch.nn.functional.pad(weights, (0, 0, 0, 0, 0, WIDE - weights.shape[1]))
        x = torch.nn.functional.conv2d(x, weights, padding=1 - border)
        x = normed(x, kept, f"block{block}/norm1", share, True, 0)
        x = torch.nn.functional.conv2d(x, kept[f"block{block}/conv2/weights"], padding=1)
        border = x.shape[2] % 2 if block < len(race.WIDTHS) else 0
        x = normed(x, kept, f"block{block}/norm2", share, False, border)
    return net.head(x, kept)


def pictured(pixels, which, mirrored, shifts, between):
    """Return what pictures.pictured() does."""
    side, many, old = len(between.low), len(which), pixels.shape[1]
    out = torch.empty(many, side, side, 3, dtype=pixels.dtype, device=pixels.device)
    rows, each = many * side * side, 256
    kernels.picture[(-(-rows // each),)](
        pixels, which, mirrored.view(torch.uint8), shifts, *between, out, rows, side, old, many, each)
    return out.permute(0, 3, 1, 2)


def check(on, kind):
    """Compile all kernels, and compare a step and a test of a few images with net.py's. Raise whatever Triton raises,
    or ArithmeticError for what differs by more than rounding."""
    plain, allowed = computed(net.forward, pictures.pictured, on, kind), EXACTLY if kind == torch.float32 else APART
    for name, found in computed(forward, pictured, on, kind).items():
        apart = float((found - plain[name]).norm() / plain[name].norm())
        if not apart <= allowed:  # nor if it is not a number
            raise ArithmeticError(f"{name} differs by {apart:.2%}")


def computed(forward, pictured, on, kind, side=28):
    """Return all that a step and a test compute for the same few images and weights, in float32: {name: tensor}.

    side: of the images; with 28 the maps before the pools have sides of 27, 13 and 6: some with a border, some not."""
    arrays, chance = Arrays(race.KNOBS, CHECKED, kind, on), torch.Generator(on).manual_seed(0)
    pixels = torch.randn(CHECKED, 32, 32, 3, generator=chance, device=on).to(kind)
    with torch.no_grad():
        arrays.reset(chance, pixels)
        for name in [*net.OFFSETS, net.WHITENING]:  # which begin as zeros
            arrays.parts[name].normal_(0, 0.3, generator=chance)
    numbers, kept = torch.arange(CHECKED, device=on), arrays.kept(arrays.parts)
    x = pictured(pixels, numbers, numbers % 2 == 0, torch.stack([numbers % 5, numbers % 3]) - 2,
                 pictures.between(32, side, kind, on)).contiguous(memory_format=LAST)
    logits = forward(x, kept, 0.4)
    gradients = torch.autograd.grad(net.loss(logits, numbers % 10, 0.2) * arrays.scale, list(arrays.parts.values()))
    with torch.no_grad():
        found = {"pictures": x, "logits": logits, "test": forward(x, kept, None), **arrays.norms}
        return {name: one.detach().float() for name, one in [*found.items(), *zip(arrays.parts, gradients)]}
