"""How a step's pictures are made on the device: chosen, moved, mirrored, made smaller. No step waits for the host."""
from collections import namedtuple

import torch
from torch.nn import functional

# What chance says of a whole training, on the device: the examples in the order of all epochs, [all]; by how much each
# is moved down and right when its turn comes, [2, all]; which of them are mirrored in even epochs, [examples]
Drawn = namedtuple("Drawn", "order shifts sides")


def draw(count, total, reach, generator, on):
    """Draw for `total` examples in all, out of `count`: every epoch takes each once, the last a part of them."""
    epochs = -(-total // count)
    order = torch.rand(epochs, count, generator=generator, device=on).argsort(dim=1).flatten()
    shifts = torch.randint(-reach, reach + 1, (2, epochs * count), generator=generator, device=on)
    return Drawn(order, shifts, torch.rand(count, generator=generator, device=on) < 0.5)


def chosen(drawn, places):
    """Give which examples stand at these places of the order, and which of them are mirrored.

    In odd epochs it is those that were not in the even one before: each pair of epochs shows both sides of all."""
    which = drawn.order[places]
    return which, drawn.sides[which] ^ (places // len(drawn.sides) % 2 == 1)


def cut(pixels, which, mirrored, shifts):
    """Give pictures of pixels [n, side, side, 3] as they are moved and mirrored: [len(which), 3, side, side]."""
    side = pixels.shape[1]
    along = torch.arange(side, device=pixels.device)[None]
    rows = reflected(along + shifts[0][:, None], side)
    columns = reflected(along + shifts[1][:, None], side)
    columns = torch.where(mirrored[:, None], side - 1 - columns, columns)
    return pixels[which[:, None, None], rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def reflected(places, side):
    """Mirror what lies outside at the first or the last place."""
    return side - 1 - (side - 1 - places.abs()).abs()


def resized(pictures, side):
    if pictures.shape[-1] == side:
        return pictures
    return functional.interpolate(pictures, size=(side, side), mode="bilinear", align_corners=False)


def views(pictures):
    """Give the pictures and their mirror images; then what is looked at of those that are not sure: the same, moved by
    a pixel up and left, and down and right."""
    padded = functional.pad(pictures, (1, 1, 1, 1), mode="reflect")
    moved = padded[:, :, :-2, :-2], padded[:, :, 2:, 2:]
    return [pictures, pictures.flip(3)], [one for other in moved for one in (other, other.flip(3))]
