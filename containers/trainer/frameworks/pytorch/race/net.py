"""The network of cifar10-94 as it is computed: as declared, without what its pools discard.

A 2 x 2 pool on a map of odd size takes neither the last row nor the last column. The convolution before it is padded
with zeros only at the top and left, and so computes just what is taken: output and gradients are exactly the same, for
a tenth less work. The last pool is the maximum of what is left, whose size depends on that of the images.
"""
import numpy as np
import torch
from torch.nn import functional

from ....race import EPSILON, WIDTHS

FILTERS = [f"block{block}/conv{k}/weights" for block in range(1, len(WIDTHS) + 1) for k in (1, 2)]
NORMS = [f"block{block}/norm{k}" for block in range(1, len(WIDTHS) + 1) for k in (1, 2)]
OFFSETS = [f"{name}/offset" for name in NORMS]
HEAD = ["head/weights", "head/biases"]
WHITENING = "whiten/biases"


def of_images(kind):
    """Return the dtype of the images and of the whitening, for convolutions in `kind`: bfloat16 would round pixels by
    up to half a shade of their 256, and the whitening makes small differences of neighbours large."""
    return torch.float32 if kind == torch.bfloat16 else kind


def whitening(pixels, epsilon):
    """Return the filters [24, 3, 2, 2] whose twelve outputs have variance 1 and no covariance on these images
    [n, h, w, 3]; the other twelve are the same negated. Computed in numpy: a 12 x 12 matrix is no work for a GPU."""
    patches = pixels.float().unfold(1, 2, 1).unfold(2, 2, 1).reshape(len(pixels), -1, 12)  # of channel, row, column
    patches = patches - patches.mean(dim=(0, 1))
    # one product per image: a single one, of 12 rows and millions of columns, would occupy a few cores of a GPU
    covariance = torch.bmm(patches.transpose(1, 2), patches).sum(dim=0) / (patches.shape[0] * patches.shape[1])
    covariance = covariance.cpu().numpy().astype(np.float64)
    sizes, directions = np.linalg.eigh(covariance)
    filters = (directions / np.sqrt(sizes + epsilon)).T.reshape(12, 3, 2, 2)
    return torch.from_numpy(np.concatenate([filters, -filters]).astype(np.float32)).to(pixels.device)


def first_conv(x, weights):
    """Apply a 3 x 3 convolution that a 2 x 2 pool follows: only at the places that the pool takes."""
    if x.shape[2] % 2 == 0:
        return functional.conv2d(x, weights, padding=1)
    return functional.conv2d(functional.pad(x, (1, 0, 1, 0)), weights)


def forward(x, kept, share):
    """Return logits, in the head's dtype, of images [n, 3, side, side] in the whitening's dtype.

    kept: {name: tensor}; share: the share of batch norm's running statistics that those of this batch replace; None to
    use the running ones, for a test."""
    norm = normed(kept, share)
    biases = kept[WHITENING].to(x.dtype)
    x = functional.silu(functional.conv2d(x, kept["whiten/weights"]) + biases[:, None, None])
    x = x.to(kept[FILTERS[0]].dtype)
    for block in range(1, len(WIDTHS) + 1):
        x = functional.max_pool2d(first_conv(x, kept[f"block{block}/conv1/weights"]), 2)
        x = functional.silu(norm(x, f"block{block}/norm1"))
        x = functional.conv2d(x, kept[f"block{block}/conv2/weights"], padding=1)
        x = functional.silu(norm(x, f"block{block}/norm2"))
    return head(x, kept)


def head(x, kept):
    """Return the logits of the last maps. Not by amax(), which trains to NaN if it is compiled in 16 bits: its backward
    pass looks for the places that equal the maximum, and inductor has rounded the maximum, but not the places."""
    x = functional.max_pool2d(x, x.shape[2:]).flatten(1)
    return torch.addmm(kept["head/biases"], x.to(kept["head/biases"].dtype), kept["head/weights"])


def normed(kept, share):
    """Return batch norm, a function of x and the layer's name. share: see forward()."""
    def norm(x, name):
        # cuDNN's fast kernel needs a scale; where the network declares none it is 1
        return functional.batch_norm(
            x, kept[name + "/mean"], kept[name + "/variance"], kept[name + "/scale"], kept[name + "/offset"],
            training=share is not None, momentum=share or 0.0, eps=EPSILON)

    return norm


def loss(logits, labels, smoothing):
    """Return the sum of the cross-entropies: the gradients of their mean would be too small for 16 bits."""
    logs = functional.log_softmax(logits, dim=1)
    wanted = logs.gather(1, labels[:, None]).sum()
    return (smoothing - 1) * wanted - smoothing * logs.mean(dim=1).sum()
