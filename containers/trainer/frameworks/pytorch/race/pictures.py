"""How a step's images are made on the device: chosen, shifted, flipped, downscaled. No step waits for the host."""
from collections import namedtuple

import torch
from torch.nn import functional

# The random draws of a whole training, on the device: the examples in the order of all epochs, [all]; by how much each
# is shifted down and right when its turn comes, [2, all]; which of them are flipped in even epochs, [examples]
Drawn = namedtuple("Drawn", "order shifts sides")


def draw(count, total, reach, generator, on):
    """Draw for `total` examples out of `count`: every epoch takes each once, the last one a part of them."""
    epochs = -(-total // count)
    order = torch.rand(epochs, count, generator=generator, device=on).argsort(dim=1).flatten()
    shifts = torch.randint(-reach, reach + 1, (2, epochs * count), generator=generator, device=on)
    return Drawn(order, shifts, torch.rand(count, generator=generator, device=on) < 0.5)


def chosen(drawn, places):
    """Return which examples are at these places of the order, and which of them are flipped.

    An odd epoch flips those that the even one before it did not: each pair of epochs shows both sides of all."""
    which = drawn.order[places]
    return which, drawn.sides[which] ^ (places // len(drawn.sides) % 2 == 1)


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


def resized(pictures, side):
    if pictures.shape[-1] == side:
        return pictures
    return functional.interpolate(pictures, size=(side, side), mode="bilinear", align_corners=False)


def views(pictures):
    """Return two lists of views: the images and their mirror images; and those for unsure images, which are both of
    these shifted by a pixel up and left, and both shifted down and right."""
    padded = functional.pad(pictures, (1, 1, 1, 1), mode="reflect")
    moved = padded[:, :, :-2, :-2], padded[:, :, 2:, 2:]
    return [pictures, pictures.flip(3)], [one for other in moved for one in (other, other.flip(3))]
