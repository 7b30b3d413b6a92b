"""The layers of layers.py in PyTorch: {op: function of a word, x and the pass}. Images are [n, channels, h, w]."""
import torch
from torch.nn import functional

from ... import layers
from . import spectral, tiled
from .numbers import uncast

WIDE = hasattr(torch, "asarray")  # PyTorch 1.11 and later can view a tensor as a dtype of another width


def conv(word, x, at):
    weights, biases = at.get(word, "weights"), at.get(word, "biases") if len(word["arrays"]) == 2 else None
    if tiled.can_pool(word, x, at):
        return tiled.pooled(word, x, weights, biases, at.library)
    is_spectral = spectral.can_be(word, x, at)
    is_tiled = not is_spectral and tiled.can_be(word, x, at)
    if "relued" in word and not is_tiled:
        x = functional.relu(x)
    if is_spectral:
        x = spectral.conv(word, x, weights, biases, at.library)
    elif is_tiled:
        x = tiled.conv(word, x, weights, biases, at.library)
    else:
        x = functional.conv2d(x, weights, biases, stride=word["stride"], padding=word["padding"])
    return layers.through(word.get("pooled", ()), x, at, LAYERS)


def dense(word, x, at):
    if x.dim() == 4:
        x = x.permute(0, 2, 3, 1)
    return torch.addmm(at.get(word, "biases"), x.reshape(-1, word["shape"][0]), at.get(word, "weights"))


def max_pool(word, x, at):
    before, after = word["padding"]
    # ceil mode pads only at the right and the bottom, as (0, 1) requires; padding=1 would not
    return functional.max_pool2d(x, word["size"], word["stride"], padding=before, ceil_mode=before != after)


def lrn(word, x, at):
    """Sum the squares of the neighbours by a banded matrix, because PyTorch's own layer is slow. Compute in float32,
    because 16 bits lose what the sum adds to the bias."""
    if tiled.can_normalise(word, x, at):
        return tiled.NormalisedRows.apply(x, word, at.library)
    channels = x.shape[1]
    near = torch.arange(channels, device=x.device)
    band = ((near[:, None] - near[None, :]).abs() <= word["radius"]).float() * word["alpha"]
    last = x.permute(0, 2, 3, 1).float()
    with uncast(x, at.half):
        if at.is_compiled:
            found = last * (torch.matmul(last * last, band) + word["bias"]).pow(-word["beta"])
        else:
            found = Normalised.apply(last.reshape(-1, channels), band, word["bias"], word["beta"]).view(last.shape)
    return found.permute(0, 3, 1, 2).to(x.dtype)


class Normalised(torch.autograd.Function):
    """x [n, channels] / (bias + x * x times a symmetric band) ** beta, with a backward pass in five passes over it."""

    @staticmethod
    def forward(ctx, x, band, bias, beta):
        scale = torch.mm(x * x, band).add_(bias)
        root = scale.rsqrt()
        # A power takes as long as several roots. PyTorch 2.13's sqrt of many numbers is off by up to 2.5e-4 of them in
        # one of four processes (an Intel Xeon with AMX); its rsqrt was not.
        power = root / root.rsqrt() if beta == 0.75 else scale.pow(-beta)
        found = x * power
        ctx.save_for_backward(x, band, scale, power, found)
        ctx.beta = beta
        return found

    @staticmethod
    def backward(ctx, gradient):
        x, band, scale, power, found = ctx.saved_tensors
        pull = torch.mm((gradient * found).div_(scale), band * (-2 * ctx.beta))
        return pull.mul_(x).addcmul_(gradient, power), None, None, None


def dropout(word, x, at):
    """On a CPU draw 16 bits per value, by dropout.c or 64 at a time: PyTorch's own dropout draws value by value, which
    takes longer than a convolution. The share that is dropped equals the rate to within 1/131072."""
    if at.is_compiled or not (at.is_training and WIDE and x.device.type == "cpu"):
        return functional.dropout(x, word["rate"], at.is_training)
    if tiled.can_drop(x, at):
        return tiled.Dropped.apply(x, word, at.library)
    words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None)
    drawn = words.view(torch.int16)[:x.numel()]
    kept = (drawn >= round(word["rate"] * 2**16) - 2**15).to(x.dtype).mul_(1 / (1 - word["rate"]))
    # in the layout of x, so that one pass multiplies them
    return x * (kept.view(x.shape) if tiled.layout(x) is None else kept.as_strided(x.shape, x.stride()))


def smooth(word, x, at):
    return functional.avg_pool2d(x, word["size"], 1, padding=word["padding"], count_include_pad=False)


def batch_norm(word, x, at):
    scale, offset = at.get(word, "scale") if word["scaled"] else None, at.get(word, "offset")
    running, share = [at.get(word, "mean"), at.get(word, "variance")], 1 - word["momentum"]
    if not at.is_training or x.dim() == 4:
        return functional.batch_norm(
            x, *running, scale, offset, training=at.is_training, momentum=share, eps=word["epsilon"])
    found = [torch.zeros_like(one) for one in running]  # with a momentum of 1 they become the batch's own
    y = functional.batch_norm(x, *found, scale, offset, training=True, momentum=1.0, eps=word["epsilon"])
    for one, batch, factor in zip(running, found, (1, (len(x) - 1) / len(x))):
        one.add_(batch * factor - one, alpha=share)
    return y


def lstm(word, x, at):
    """Use PyTorch's LSTM, cuDNN's on a GPU: its gates are in the same order; its second biases are set to zero."""
    size, weights, biases = word["inputs"], at.get(word, "weights"), at.get(word, "biases")
    states = at.get(word, "hidden"), at.get(word, "cell")
    begin = states if at.is_training else [x.new_zeros(len(x), word["outputs"])] * 2
    arrays = weights[:size].t(), weights[size:].t(), biases, torch.zeros_like(biases)
    begin = [state[None].clone() for state in begin]  # the backward pass needs them as they were
    with uncast(x, at.half):  # autocast would cast some of them, and not on every device
        x, *lists = [[each.to(at.recurrent or x.dtype) for each in many] for many in ([x], begin, arrays)]
        lists[1] = in_one_piece(lists[1])
        found, *last = torch.lstm(x[0], *lists, True, 1, 0.0, at.is_training, False, True)
    if at.is_training:
        for state, value in zip(states, last):
            state.copy_(value[0].detach())
    return found


def in_one_piece(arrays):
    """Place the arrays one behind the other in memory: cuDNN needs an LSTM's weights so, or each step copies them and
    PyTorch warns."""
    flat = torch.cat([one.reshape(-1) for one in arrays])
    parts = flat.split([one.numel() for one in arrays])
    return [part.view(one.shape) for part, one in zip(parts, arrays)]


def pad_channels(word, x, at):
    return functional.pad(x, (0, 0, 0, 0, word["before"], word["after"]))


LAYERS = {
    "conv": conv,
    "dense": dense,
    "relu": lambda word, x, at: functional.relu(x),
    "sigmoid": lambda word, x, at: torch.sigmoid(x),
    "silu": lambda word, x, at: functional.silu(x),
    "max_pool": max_pool,
    "avg_pool": lambda word, x, at: functional.avg_pool2d(x, word["size"], word["stride"]),
    "smooth": smooth,
    "global_avg_pool": lambda word, x, at: x.reshape(*x.shape[:2], -1).mean(2),  # before 1.1 only over one dimension
    "pad_channels": pad_channels,
    "lrn": lrn,
    "batch_norm": batch_norm,
    "dropout": dropout,
    "residual": lambda word, x, at: layers.added(word, x, at, LAYERS),
    "concat": lambda word, x, at: torch.cat(layers.branches(word, x, at, LAYERS), dim=1),
    "embedding": lambda word, x, at: functional.embedding(x.long(), at.get(word, "weights")),  # all releases take int64
    "lstm": lstm,
}
if not hasattr(torch, "lstm"):  # 0.4: https://github.com/pytorch/pytorch/pull/10481
    del LAYERS["lstm"]
