"""How a step's images are made on the device: chosen, shifted, flipped, downscaled, brightened. No step waits for the
host."""
from collections import namedtuple

import numpy as np
import torch
from torch.nn import functional

# The random draws of a whole training, on the device: the examples in the order of all epochs, [all]; by how much each
# is shifted down and right when its turn comes, [2, all]; which of them are flipped in even epochs, [examples]; what is
# then added to its pixels, and by what they are multiplied, [2, all], or [2, 0] without jitter
Drawn = namedtuple("Drawn", "order shifts sides tones")
# Where each place of a resized row or column lies in the original: between the places `low` and `high`, and how far
# from the first to the second, 0..1; all [side], on the device
Between = namedtuple("Between", "low high share")


def draw(count, total, reach, jitter, generator, on):
    """Draw for `total` examples out of `count`: every epoch takes each once, the last one a part of them.

    reach, jitter: race.Knobs.shift and jitter."""
    epochs = -(-total // count)
    order = torch.rand(epochs, count, generator=generator, device=on).argsort(dim=1).flatten()
    shifts = torch.randint(-reach, reach + 1, (2, epochs * count), generator=generator, device=on)
    sides = torch.rand(count, generator=generator, device=on) < 0.5
    tones = 2 * torch.rand(2, len(order) if any(jitter) else 0, generator=generator, device=on) - 1
    tones[0].mul_(jitter[0])
    tones[1].mul_(jitter[1]).add_(1)
    return Drawn(order, shifts, sides, tones)


def chosen(drawn, places):
    """Return which examples are at these places of the order, and which of them are flipped.

    An odd epoch flips those that the even one before it did not: each pair of epochs shows both sides of all."""
    which = drawn.order[places]
    return which, drawn.sides[which] ^ (places // len(drawn.sides) % 2 == 1)


def pictured(pixels, which, mirrored, shifts, between):
    """Return images of pixels [n, side, side, 3], shifted, flipped and downscaled: [len(which), 3, side, side]."""
    return resized(cut(pixels, which, mirrored, shifts), between)


def cut(pixels, which, mirrored, shifts):
    """Return images of pixels [n, side, side, 3], shifted and flipped: [len(which), 3, side, side]."""
    side = pixels.shape[1]
    along = torch.arange(side, device=pixels.device)[None]
    rows = reflected(along + shifts[0][:, None], side)
    columns = reflected(along + shifts[1][:, None], side)
    columns = torch.where(mirrored[:, None], side - 1 - columns, columns)
    return pixels[which[:, None, None], rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def reflected(places, side):
    """Reflect places outside the image at its first or last place."""
    return side - 1 - (side - 1 - places.abs()).abs()


def between(old, side, kind, on):
    """Return how images of `old` pixels a side become smaller ones, or keep their size."""
    at = np.maximum((np.arange(side) + 0.5) * old / side - 0.5, 0)
    low = at.astype(np.int64)
    high = np.minimum(low + 1, old - 1)
    return Between(*(torch.from_numpy(one).to(on) for one in (low, high)), torch.from_numpy(at - low).to(on, kind))


def resized(pictures, places):
    """Resize [n, 3, old, old] as interpolate(mode="bilinear", align_corners=False) does. On CUDA its kernel has one
    thread per output pixel if there are fewer than 16 channels, which goes through all images and channels in turn
    (aten/src/ATen/native/cuda/UpSampleBilinear2d.cu). places: what between() returned."""
    if len(places.low) == pictures.shape[2]:
        return pictures
    x, (low, high, share) = pictures.permute(0, 2, 3, 1), places
    for dim in 1, 2:
        x = torch.lerp(x.index_select(dim, low), x.index_select(dim, high), share.view([-1] + [1] * (3 - dim)))
    return x.permute(0, 3, 1, 2)


def toned(pictures, tones):
    """Return the images [n, 3, side, side] brighter or darker, then with more or less contrast; tones: [2, n]."""
    added, factor = tones.to(pictures.dtype)[:, :, None, None, None]
    return (pictures + added) * factor


def views(pictures):
    """Return two lists of views: the images and their mirror images; and those for unsure images, which are both of
    these shifted by a pixel up and left, and both shifted down and right."""
    padded = functional.pad(pictures, (1, 1, 1, 1), mode="reflect")
    moved = padded[:, :, :-2, :-2], padded[:, :, 2:, 2:]
    return [pictures, pictures.flip(3)], [one for other in moved for one in (other, other.flip(3))]
