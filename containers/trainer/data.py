"""How CIFAR-10 is read, synthesized, shuffled and distorted: on the CPU, in numpy, the same for every framework.

Real data is in the binary format (files of 10,000 records of 3,073 bytes: a label, then 32x32 red, green, blue bytes)
or the pickled Python format, in the given folder or its usual subfolder: https://www.cs.toronto.edu/~kriz/cifar.html
The synthetic set has ten patterns, one per label, under noise: speed does not depend on the pixels, precision does.
"""
from __future__ import absolute_import, division, print_function

import collections
import hashlib
import io
import os
import pickle
import threading

import numpy as np

from .events import Stop
from .trace import Slice

RECORD = 1 + 32 * 32 * 3
RECORDS = 10000
BINARY = "cifar-10-batches-bin", ["data_batch_%d.bin" % k for k in range(1, 6)], ["test_batch.bin"]
PICKLED = "cifar-10-batches-py", ["data_batch_%d" % k for k in range(1, 6)], ["test_batch"]

SYNTHETIC_SEED = 20180216
SYNTHETIC = {"train": (20000, 1), "test": (10000, 2)}  # images, and what is added to the seed
AMPLITUDE, NOISE = 50, 40
SYNTHETIC_NOTE = "generator seed %d, difficulty easy (amplitude %d, noise %d)" % (SYNTHETIC_SEED, AMPLITUDE, NOISE)


class Dataset(object):
    """Images uint8 [n, 32, 32, 3], labels int32 [n], and their source; files: how many equal parts they come in.

    Other workloads have examples [n, ...] and their labels; count: how many examples, if not as many as labels.
    """

    def __init__(self, images, labels, name, files, sha256=None, note=None, count=None):
        self.images, self.labels, self.name, self.files = images, labels, name, files
        self.sha256, self.note, self.count = sha256, note, len(labels) if count is None else count


def training(folder):
    return real(folder, 1) if folder else synthetic("train")


def testing(folder):
    return real(folder, 2) if folder else synthetic("test")


def real(folder, part):
    """Read the training (1) or test (2) files. Raise Stop("data") if one is missing or truncated."""
    place, form = find(folder)
    contents, digest = [], hashlib.sha256()
    for name in form[part]:
        content = read_bytes(os.path.join(place, name))
        digest.update(content)
        contents.append(unpack(content, name) if form is BINARY else unpickle(content, name))
    images = np.concatenate([images for images, _ in contents])
    labels = np.concatenate([labels for _, labels in contents])
    return Dataset(images, labels, "cifar10", len(contents), digest.hexdigest())


def find(folder):
    """Return the folder that holds the files, and their format."""
    for form in BINARY, PICKLED:
        for place in os.path.join(folder, form[0]), folder:
            if os.path.exists(os.path.join(place, form[1][0])):
                return place, form
    raise Stop("data", "Failed to find file: %s" % os.path.join(folder, BINARY[0], BINARY[1][0]))


def read_bytes(path):
    if os.path.exists(path) and not os.path.isfile(path):  # reading a pipe or a device may never end
        raise Stop("data", "%s cannot be read: it is not a regular file" % path)
    try:
        with open(path, "rb") as file:
            return file.read()
    except EnvironmentError as error:
        if os.path.exists(path):
            raise Stop("data", "%s cannot be read: %s" % (path, error))
        raise Stop("data", "Failed to find file: %s" % path)


def unpack(content, name, records=RECORDS):
    """Turn bytes in the binary format into images and labels."""
    if len(content) != records * RECORD:
        raise Stop("data", "%s has %d bytes, not %d records of %d" % (name, len(content), records, RECORD))
    rows = np.frombuffer(content, np.uint8).reshape(records, RECORD)
    return planes_last(rows[:, 1:], name, rows[:, 0])


def unpickle(content, name, records=RECORDS):
    """Turn bytes in the Python format into images and labels; rebuild nothing but arrays, lists, dicts and strings."""
    try:
        batch = ArraysOnly.of(content)
        rows = batch.get("data", batch.get(b"data"))
        labels = np.array(batch.get("labels", batch.get(b"labels")), np.int64)
    except Exception as error:  # a pickle can fail in any way; every failure means that this is not data
        raise Stop("data", "%s is not a batch of CIFAR-10: %s" % (name, error))
    if getattr(rows, "shape", None) != (records, RECORD - 1) or rows.dtype != np.uint8 or labels.shape != (records,):
        raise Stop("data", "%s does not hold %d images of %d bytes" % (name, records, RECORD - 1))
    return planes_last(rows, name, labels)


def planes_last(rows, name, labels):
    if not len(labels) or labels.min() < 0 or labels.max() > 9:
        raise Stop("data", "%s has labels outside 0..9" % name)
    images = rows.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), labels.astype(np.int32)


class ArraysOnly(pickle.Unpickler):
    """Unpickles arrays in plain containers and refuses every other class: a pickle could otherwise run any program."""

    ALLOWED = {("numpy", "ndarray"), ("numpy", "dtype"),
               ("numpy.core.multiarray", "_reconstruct"), ("numpy._core.multiarray", "_reconstruct")}

    @classmethod
    def of(cls, content):
        try:
            return cls(io.BytesIO(content), encoding="latin1").load()  # the official files were written by Python 2
        except TypeError:  # Python 2 has no such argument
            return cls(io.BytesIO(content)).load()

    def find_class(self, module, name):
        if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes for old readers
            return lambda text, encoding: text.encode("latin1")
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError("it asks for %s.%s" % (module, name))
        if name == "_reconstruct":
            return lambda kind, shape, code: np.ndarray.__new__(np.ndarray, shape, code)
        return getattr(np, name)


def synthetic(split):
    """Make the synthetic set: the same bytes on every Python and numpy, because RandomState's stream is frozen."""
    count, offset = SYNTHETIC[split]
    patterns = np.random.RandomState(SYNTHETIC_SEED).normal(size=(10, 8, 8, 3))
    patterns = 128 + AMPLITUDE * patterns.repeat(4, axis=1).repeat(4, axis=2)
    random = np.random.RandomState(SYNTHETIC_SEED + offset)
    labels = random.randint(0, 10, count)
    images = np.empty((count, 32, 32, 3), np.uint8)
    for start in range(0, count, 2000):  # 49 MB of noise at a time; the numbers are those of a single draw
        part = slice(start, start + 2000)
        noisy = random.normal(size=images[part].shape)
        noisy *= NOISE
        noisy += patterns[labels[part]]
        images[part] = np.clip(np.rint(noisy, out=noisy), 0, 255, out=noisy)
    return Dataset(images, labels.astype(np.int32), "synthetic", 1, note=SYNTHETIC_NOTE)


def generator(seed, step):
    return np.random.RandomState([seed & 0xFFFFFFFF, step & 0xFFFFFFFF])


class Order(object):
    """The order of the images: files shuffled each epoch, then images mixed in a shuffle buffer, as in the tutorial.

    The tutorial's second queue holds distorted images and takes time to fill; this buffer holds only indices.
    """

    def __init__(self, images, files, buffered, batch, seed):
        self.images, self.files, self.batch = images, files, batch
        self.random = np.random.RandomState(seed & 0xFFFFFFFF)
        self.stream = np.empty(0, np.int64)
        self.buffer = self.following(max(buffered, batch))
        self.step, self.ready, self.lock = 0, {}, threading.Lock()

    def indices(self, step):
        """Return the indices of this step's images. Each step can be taken once; threads may ask out of order."""
        with self.lock:
            while self.step <= step:
                self.ready[self.step] = self.draw()
                self.step += 1
            return self.ready.pop(step)

    def skip(self, steps, check=bool):
        """Skip the batches of the first steps, which an earlier run has trained on: a million of 128 in seconds, but
        if the buffer is tight only some 2,000 of 1024 in a second. check() is called all along, and may raise."""
        with self.lock:
            while self.step < steps:
                check()
                # until the stream needs new files, draw() takes nothing else from the generator than places
                count = 0 if self.is_tight else min(steps - self.step, len(self.stream) // self.batch)
                if count:
                    self.step += self.pass_over(count)
                else:
                    self.draw()
                    self.step += 1

    def pass_over(self, count):
        """Draw as draw() does, but `count` times at once. Return how many batches that makes: those without a
        duplicate."""
        places = self.random.randint(0, len(self.buffer), (count, self.batch))
        places = places[differ(places)]
        self.buffer[places.ravel()] = self.stream[:places.size]  # the last of several values for a place stays
        self.stream = self.stream[places.size:]
        return len(places)

    @property
    def is_tight(self):
        """Whether duplicates are so likely that drawing again until there is none would take forever."""
        return self.batch * 8 > len(self.buffer) or self.batch ** 2 > 4 * len(self.buffer)

    def draw(self):
        places = self.random.randint(0, len(self.buffer), self.batch)
        while not differ(places):
            if self.is_tight:
                places = self.random.permutation(len(self.buffer))[:self.batch]
            else:
                places = self.random.randint(0, len(self.buffer), self.batch)
        chosen = self.buffer[places]
        self.buffer[places] = self.following(self.batch)
        return chosen

    def following(self, count):
        while len(self.stream) < count:
            parts = np.array_split(np.arange(self.images), self.files)
            self.stream = np.concatenate([self.stream] + [parts[k] for k in self.random.permutation(self.files)])
        taken, self.stream = self.stream[:count], self.stream[count:]
        return taken.copy()


def differ(places):
    """Return whether the numbers in the last dimension all differ: several times faster than np.unique."""
    return (np.diff(np.sort(places)) > 0).all(axis=-1)


def windows(images, side):
    """View images [n, 32, 32, 3] as [n, top, left, side, side, 3], without a copy."""
    n, height, width, channels = images.shape
    a, b, c, d = images.strides
    return np.lib.stride_tricks.as_strided(
        images, (n, height - side + 1, width - side + 1, side, side, channels), (a, b, c, b, c, d))


Drawn = collections.namedtuple("Drawn", "tops lefts flips brightness contrast")  # the random draws for each image


def distorted(images, chosen, random, side, count=None, part=slice(None)):
    """Randomly crop, flip, brighten and contrast images, and standardize them: float32 [batch, side, side, 3].

    With a count, apply only the first `count` of DISTORTIONS to the crops. With a part, compute only that slice of the
    batch; its images are the same as in the whole batch."""
    view = windows(images, side)
    n = len(chosen)
    drawn = Drawn(random.randint(0, view.shape[1], n), random.randint(0, view.shape[2], n), random.rand(n) < 0.5,
                  random.uniform(-63, 63, n).astype(np.float32), random.uniform(0.2, 1.8, n).astype(np.float32))
    drawn, chosen = Drawn(*(each[part] for each in drawn)), chosen[part]
    with Slice("crop"):
        values = view[chosen, drawn.tops, drawn.lefts]
    for name, distort in DISTORTIONS[:count]:
        with Slice(name):
            values = distort(values, drawn)
    return values.reshape(len(chosen), side, side, -1)


def flipped(cut, drawn):
    cut[drawn.flips] = cut[drawn.flips][:, :, ::-1]
    return cut


def as_floats(cut, drawn):
    return cut.reshape(len(cut), -1, cut.shape[3]).astype(np.float32)


def brightened(values, drawn):
    values += drawn.brightness[:, None, None]  # standardizing undoes this; it is here because the tutorial does it too
    return values


SIDE_BY_SIDE = 16  # pixels that numpy adds to at once: to three numbers at a time it takes four times as long


def contrasted(values, drawn):
    means = np.einsum("npc->nc", values)[:, None, :] / np.float32(values.shape[1])
    means = np.tile(means, SIDE_BY_SIDE if values.shape[1] % SIDE_BY_SIDE == 0 else 1)
    rows = values.reshape(len(values), -1, means.shape[2])
    rows -= means
    rows *= drawn.contrast[:, None, None]
    rows += means
    return values


def central(images, side):
    edge = (images.shape[1] - side) // 2
    cut = images[:, edge:edge + side, edge:edge + side]
    return standardized(cut.reshape(len(cut), side * side, -1).astype(np.float32)).reshape(cut.shape)


def standardized(values):
    """Scale each image to mean 0 and standard deviation 1, in place. An image of one colour is divided by 1 /
    sqrt(size), not by 0."""
    flat = values.reshape(len(values), -1)
    flat -= flat.mean(axis=1, dtype=np.float32)[:, None]
    deviation = np.sqrt(np.einsum("nv,nv->n", flat, flat) / np.float32(flat.shape[1]))
    flat /= np.maximum(deviation, np.float32(1 / np.sqrt(flat.shape[1])))[:, None]
    return values


DISTORTIONS = (("flip", flipped), ("float", as_floats), ("brightness", brightened), ("contrast", contrasted),
               ("standardise", lambda values, drawn: standardized(values)))


def scaled(images):
    """Return the pixels as float32 from 0 to 1."""
    return images.astype(np.float32) / np.float32(255)
