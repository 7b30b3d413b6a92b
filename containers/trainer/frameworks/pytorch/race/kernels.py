"""The kernels of cifar10-94 between its convolutions, in Triton: each reads and writes every number once.

Maps lie as [rows, channels], a row for each pixel of each image. Sums over rows are taken in two kernels, so that they
are the same in every run: each program adds up its own rows, and the next kernel adds up the programs. All compute in
float32, whatever the maps are kept in.

A map may have a border of zeros above and left of it (`pad`, 0 or 1): the convolution that reads it then needs no
padding of its own, and computes only what the pool behind it takes (net.first_conv()).
"""
import triton
import triton.language as tl

SIZES = ["rows", "height", "width", "pad", "side", "old", "many", "programs"]


def kernel(function):
    """Compile this function for each dtype and constexpr that it is started with, but not for single SIZES."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    return triton.jit(function, do_not_specialize=[name for name in SIZES if name in names])


@triton.jit
def place(row, height, width, pad):
    """Return the row of a map with a border for this row of the map without one."""
    line = row // width
    image = line // height
    return (image * (height + pad) + line - image * height + pad) * (width + pad) + row % width + pad


@triton.jit
def corner(row, width):
    """Return the first of the four rows that a 2 x 2 pool takes, of a map twice as high and wide as the pool's."""
    return row // width * 4 * width + row % width * 2


@triton.jit
def four(maps, at, width, inside, CHANNELS: tl.constexpr):
    """Return the maximum of the four rows of a pool, and which it is: 0..3, the first of equals."""
    low = 2 * width.to(tl.int64) * CHANNELS
    best = tl.load(maps + at, mask=inside, other=0.0)
    which = tl.zeros(best.shape, tl.int8)
    for number in tl.static_range(1, 4):
        other = tl.load(maps + at + number // 2 * low + number % 2 * CHANNELS, mask=inside, other=0.0)
        which = tl.where(other > best, number, which).to(tl.int8)
        best = tl.where(other > best, other, best)
    return best, which


@triton.jit
def keep(sums, first, second, CHANNELS: tl.constexpr):
    """Write this program's two sums of each channel, of [rows, channels] each: sums is [programs, 2, channels]."""
    sums += tl.program_id(0) * 2 * CHANNELS + tl.arange(0, CHANNELS)
    tl.store(sums, tl.sum(first, 0))
    tl.store(sums + CHANNELS, tl.sum(second, 0))


@triton.jit
def before_silu(seen, x):
    """Return the gradient of x, whose SiLU has the gradient `seen`."""
    gate = tl.sigmoid(x)
    return seen * gate * (1.0 + x * (1.0 - gate))


@kernel
def pool(maps, pooled, which, sums, rows, width, CHANNELS: tl.constexpr, POOLS: tl.constexpr, ROWS: tl.constexpr):
    """Pool, and add up each channel and its squares: sums is [programs, 2, channels]. Without POOLS only add up."""
    channel = tl.arange(0, CHANNELS)[None, :]
    first, second = (tl.zeros([ROWS, CHANNELS], tl.float32), tl.zeros([ROWS, CHANNELS], tl.float32))
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = start + tl.arange(0, ROWS)
        inside = (row < rows)[:, None]
        at = row.to(tl.int64)[:, None] * CHANNELS + channel
        if POOLS:
            source = corner(row, width).to(tl.int64)[:, None] * CHANNELS + channel
            value, one = four(maps, source, width, inside, CHANNELS)
            tl.store(pooled + at, value, mask=inside)
            tl.store(which + at, one, mask=inside)
        else:
            value = tl.load(maps + at, mask=inside, other=0.0)
        value = value.to(tl.float32)
        first += value
        second += value * value
    keep(sums, first, second, CHANNELS)


@triton.jit
def added(sums, channel, programs, CHANNELS: tl.constexpr, PROGRAMS: tl.constexpr):
    """Return both sums of all programs, for these channels."""
    program = tl.arange(0, PROGRAMS)
    at, inside = program[:, None] * 2 * CHANNELS + channel[None, :], (program < programs)[:, None]
    first = tl.sum(tl.load(sums + at, mask=inside, other=0.0), 0)
    return first, tl.sum(tl.load(sums + at + CHANNELS, mask=inside, other=0.0), 0)


@kernel
def moments(sums, mean, scale, means, variances, programs, count, share, epsilon, CHANNELS: tl.constexpr,
            PROGRAMS: tl.constexpr, AT_ONCE: tl.constexpr):
    """Turn sums over `count` rows into batch norm's mean and scale (one over the deviation); replace `share` of the
    running means and variances."""
    channel = tl.program_id(0) * AT_ONCE + tl.arange(0, AT_ONCE)
    first, second = added(sums, channel, programs, CHANNELS, PROGRAMS)
    middle = first / count
    variance = tl.maximum(second / count - middle * middle, 0.0)
    tl.store(mean + channel, middle)
    tl.store(scale + channel, 1.0 / tl.sqrt(variance + epsilon))
    old = tl.load(means + channel)
    tl.store(means + channel, old + share * (middle - old))
    old = tl.load(variances + channel)
    tl.store(variances + channel, old + share * (variance * (count / (count - 1.0)) - old))


@kernel
def totals(sums, into, programs, CHANNELS: tl.constexpr, PROGRAMS: tl.constexpr, AT_ONCE: tl.constexpr):
    """Add up [programs, 2, channels] to [2, channels]."""
    channel = tl.program_id(0) * AT_ONCE + tl.arange(0, AT_ONCE)
    first, second = added(sums, channel, programs, CHANNELS, PROGRAMS)
    tl.store(into + channel, first)
    tl.store(into + CHANNELS + channel, second)


@kernel
def activate(maps, out, mean, scale, offset, rows, height, width, pad, CHANNELS: tl.constexpr, POOLS: tl.constexpr,
             ROWS: tl.constexpr):
    """Normalise and apply SiLU, with POOLS to the maximum of each 2 x 2. height and width are the result's without its
    border; rows is with it."""
    channel = tl.arange(0, CHANNELS)[None, :]
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    line = row // (width + pad)
    image, j = line // (height + pad), row % (width + pad) - pad
    i = line - image * (height + pad) - pad
    inside = ((row < rows) & (i >= 0) & (j >= 0))[:, None]
    source = (image * height + i) * width + j
    if POOLS:
        at = corner(source, width).to(tl.int64)[:, None] * CHANNELS + channel
        value, _which = four(maps, at, width, inside, CHANNELS)
    else:
        value = tl.load(maps + source.to(tl.int64)[:, None] * CHANNELS + channel, mask=inside, other=0.0)
    x = (value.to(tl.float32) - tl.load(mean + channel)) * tl.load(scale + channel) + tl.load(offset + channel)
    x = tl.where(inside, x * tl.sigmoid(x), 0.0)
    tl.store(out + row.to(tl.int64)[:, None] * CHANNELS + channel, x, mask=(row < rows)[:, None])


@triton.jit
def through(maps, gradient, mean, scale, offset, row, inside, height, width, pad, CHANNELS: tl.constexpr):
    """Return the gradient of what SiLU was applied to, and the normalised maps."""
    channel = tl.arange(0, CHANNELS)[None, :]
    value = tl.load(maps + row.to(tl.int64)[:, None] * CHANNELS + channel, mask=inside, other=0.0).to(tl.float32)
    at = place(row, height, width, pad).to(tl.int64)[:, None] * CHANNELS + channel
    seen = tl.load(gradient + at, mask=inside, other=0.0).to(tl.float32)
    normal = (value - tl.load(mean + channel)) * tl.load(scale + channel)
    return before_silu(seen, normal + tl.load(offset + channel)), normal


@kernel
def gather(maps, gradient, mean, scale, offset, sums, rows, height, width, pad, CHANNELS: tl.constexpr,
           ROWS: tl.constexpr):
    """Add up what batch norm's backward pass needs: the gradients, and their products with the normalised maps."""
    first, second = (tl.zeros([ROWS, CHANNELS], tl.float32), tl.zeros([ROWS, CHANNELS], tl.float32))
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = start + tl.arange(0, ROWS)
        seen, normal = through(
            maps, gradient, mean, scale, offset, row, (row < rows)[:, None], height, width, pad, CHANNELS)
        first += seen
        second += seen * normal
    keep(sums, first, second, CHANNELS)


@kernel
def scatter(maps, gradient, mean, scale, offset, total, which, out, rows, height, width, pad, count,
            CHANNELS: tl.constexpr, POOLS: tl.constexpr, ROWS: tl.constexpr):
    """Write the gradient of batch norm's input; with POOLS that of the pool's."""
    channel = tl.arange(0, CHANNELS)[None, :]
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = (row < rows)[:, None]
    seen, normal = through(maps, gradient, mean, scale, offset, row, inside, height, width, pad, CHANNELS)
    first, second = tl.load(total + channel) / count, tl.load(total + CHANNELS + channel) / count
    seen = tl.load(scale + channel) * (seen - first - normal * second)
    at = row.to(tl.int64)[:, None] * CHANNELS + channel
    if POOLS:
        one = tl.load(which + at, mask=inside, other=0)
        at = corner(row, width).to(tl.int64)[:, None] * CHANNELS + channel
        low = 2 * width.to(tl.int64) * CHANNELS
        for number in tl.static_range(4):
            there = out + at + number // 2 * low + number % 2 * CHANNELS
            tl.store(there, tl.where(one == number, seen, 0.0), mask=inside)
    else:
        tl.store(out + at, seen, mask=inside)


@triton.jit
def whitened(pixels, weights, biases, image, i, j, inside, side, LIVE: tl.constexpr, CHANNELS: tl.constexpr):
    """Return a 2 x 2 convolution of pixels [images, side, side, 3] at rows i and columns j; weights: [LIVE, 2, 2, 3].
    Channels beyond LIVE are 0."""
    channel = tl.arange(0, CHANNELS)
    live = channel < LIVE
    found = tl.zeros([inside.shape[0], CHANNELS], tl.float32) + tl.load(biases + channel, mask=live, other=0.0)[None, :]
    at = ((image * side + i) * side + j).to(tl.int64) * 3
    for number in tl.static_range(12):
        tap, colour = number // 3, number % 3
        value = tl.load(pixels + at + (tap // 2 * side + tap % 2) * 3 + colour, mask=inside, other=0.0)
        weight = tl.load(weights + channel * 12 + number, mask=live, other=0.0)
        found += value.to(tl.float32)[:, None] * weight.to(tl.float32)[None, :]
    return found


@kernel
def whiten(pixels, weights, biases, out, rows, side, pad, LIVE: tl.constexpr, CHANNELS: tl.constexpr,
           ROWS: tl.constexpr):
    """Convolve and apply SiLU; the result has a border of zeros if pad is 1. rows: of the result."""
    channel = tl.arange(0, CHANNELS)[None, :]
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    many = side - 1 + pad
    line = row // many
    image, j = line // many, row % many - pad
    i = line - image * many - pad
    inside = (row < rows) & (i >= 0) & (j >= 0)
    x = whitened(pixels, weights, biases, image, i, j, inside, side, LIVE, CHANNELS)
    x = tl.where(inside[:, None] & (channel < LIVE), x * tl.sigmoid(x), 0.0)
    tl.store(out + row.to(tl.int64)[:, None] * CHANNELS + channel, x, mask=(row < rows)[:, None])


@kernel
def whiten_gather(pixels, weights, biases, gradient, sums, rows, side, pad, LIVE: tl.constexpr, CHANNELS: tl.constexpr,
                  ROWS: tl.constexpr):
    """Add up the gradients of the biases of whiten(); rows: without a border."""
    channel = tl.arange(0, CHANNELS)[None, :]
    found = tl.zeros([ROWS, CHANNELS], tl.float32)
    many = side - 1
    for start in range(tl.program_id(0) * ROWS, rows, tl.num_programs(0) * ROWS):
        row = start + tl.arange(0, ROWS)
        inside = row < rows
        line = row // many
        image = line // many
        x = whitened(
            pixels, weights, biases, image, line - image * many, row % many, inside, side, LIVE, CHANNELS)
        at = place(row, many, many, pad).to(tl.int64)[:, None] * CHANNELS + channel
        seen = tl.load(gradient + at, mask=inside[:, None], other=0.0).to(tl.float32)
        found += before_silu(seen, x)
    keep(sums, found, tl.zeros([ROWS, CHANNELS], tl.float32), CHANNELS)


@triton.jit
def reflected(at, side):
    """Reflect places outside the image at its first or last place."""
    return side - 1 - tl.abs(side - 1 - tl.abs(at))


@kernel
def picture(pixels, which, mirrored, shifts, low, high, share, out, rows, side, old, many, ROWS: tl.constexpr):
    """Shift, flip and downscale images, as pictures.cut() and resized() do: pixels [all, old, old, 3], out
    [many, side, side, 3]; a row is a pixel of the result. low, high and share are those of pictures.Between."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    line = row // side
    one, j = line // side, row % side
    i = line - one * side
    image = tl.load(which + one, mask=inside, other=0).to(tl.int64)
    flips = tl.load(mirrored + one, mask=inside, other=0) != 0
    down = tl.load(shifts + one, mask=inside, other=0).to(tl.int32)
    right = tl.load(shifts + many + one, mask=inside, other=0).to(tl.int32)
    upper = reflected(tl.load(low + i, mask=inside, other=0).to(tl.int32) + down, old)
    lower = reflected(tl.load(high + i, mask=inside, other=0).to(tl.int32) + down, old)
    left = reflected(tl.load(low + j, mask=inside, other=0).to(tl.int32) + right, old)
    far = reflected(tl.load(high + j, mask=inside, other=0).to(tl.int32) + right, old)
    left, far = tl.where(flips, old - 1 - left, left), tl.where(flips, old - 1 - far, far)
    beyond = tl.load(share + i, mask=inside, other=0.0).to(tl.float32)
    aside = tl.load(share + j, mask=inside, other=0.0).to(tl.float32)
    for colour in tl.static_range(3):
        first = pixels + image * old * old * 3 + colour
        a = tl.load(first + (upper * old + left) * 3, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(first + (lower * old + left) * 3, mask=inside, other=0.0).to(tl.float32)
        c = tl.load(first + (upper * old + far) * 3, mask=inside, other=0.0).to(tl.float32)
        d = tl.load(first + (lower * old + far) * 3, mask=inside, other=0.0).to(tl.float32)
        a, c = a + beyond * (b - a), c + beyond * (d - c)
        tl.store(out + row.to(tl.int64) * 3 + colour, a + aside * (c - a), mask=inside)
