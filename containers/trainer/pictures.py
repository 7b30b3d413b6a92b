"""A folder of real images, one subfolder per class: found, identified by a sha256, decoded as batches need them.

    DIR/cats/*.jpg  DIR/dogs/*.jpg             directly, or below DIR/train (DIR/training); the test set is below
                                               DIR/test, DIR/validation or DIR/val, and may be missing

JPEG and PNG; what is hidden (.name) is left out. A label is the index of its folder's name in the sorted training
folders; the test set has the same names, in any case. Each image is resized by taking the nearest pixel, as Keras'
load_img does by default. Only the names of the files are kept in memory: 20,000 images of 256 x 256 would be 3.9 GB.
A few broken images are reported and left out; more are an error.
"""
from __future__ import absolute_import, division, print_function

import hashlib
import os
import threading

import numpy as np

from .decoders import Undecodable, decoder
from .events import Stop, complain, stopped_by

SPLITS = {"train": ("train", "training"), "test": ("test", "validation", "val")}
ENDINGS = ".jpg", ".jpeg", ".png"
MOST_BROKEN, BROKEN_SHARE = 20, 0.1  # leave out at most this many, and at most this share of all


def dataset(folder, split, classes, side, decoder=decoder):
    """Return a split's Pictures; None if the folder has no test set. Raise Stop("data") if there is no data."""
    place = found(folder, split)
    if place is None:
        return None
    try:
        names = folders(place)
        if len(names) != classes:
            raise Stop("data", "%s has %s: it needs %d folders of images, one per class (such as %s and %s)%s" % (
                place, "the folders " + ", ".join(names) if names else "no folder of images", classes,
                os.path.join(place, "cats"), os.path.join(place, "dogs"), "; or use --no-eval" * (split == "test")))
        if split == "test":
            names = ordered(names, place, found(folder, "train"))
        listed = listing(place, names)
    except EnvironmentError as error:
        raise stopped_by(error, error.filename or place, "data")  # of 20,000 files it may be one link to nowhere
    return Pictures(place, names, listed, side, *decoder())


def found(folder, split):
    if not os.path.isdir(folder):
        raise Stop("data", "%s is not a folder" % folder)
    for name in SPLITS[split]:
        place = os.path.join(folder, name)
        if os.path.isdir(place):
            return place
    return folder if split == "train" else None


def folders(place):
    """Return the sorted names of the folders that hold images."""
    names = [name for name in shown(place) if name not in SPLITS["train"] + SPLITS["test"]]
    return [name for name in names if os.path.isdir(os.path.join(place, name)) and files(place, name)]


def files(place, name):
    return [file for file in shown(os.path.join(place, name)) if file.lower().endswith(ENDINGS)]


def shown(place):
    """Return the sorted names in a folder that are not hidden: .ipynb_checkpoints is no class, and ._cat.jpg no image
    (macOS puts one beside each file in its archives)."""
    return sorted(name for name in os.listdir(place) if not name.startswith("."))


def ordered(names, place, other):
    """Return the names in the order of the training folders, so that a class has the same label in both."""
    trained, same = folders(other), {name.lower(): name for name in names}
    if sorted(same) != sorted(name.lower() for name in trained):
        raise Stop("data", "%s has the folders %s, and %s has %s: the test set needs the classes of the training set; "
                   "or use --no-eval" % (place, ", ".join(names), other, ", ".join(trained)))
    return [same[name.lower()] for name in trained]


def listing(place, names):
    """Return [(label, path below the place, bytes)] of all images, in order."""
    paths = [(label, os.path.join(name, file)) for label, name in enumerate(names) for file in files(place, name)]
    return [(label, path, os.path.getsize(os.path.join(place, path))) for label, path in paths]


class Pictures(object):
    """Serves as a data.Dataset; `images` is the object itself: indexing it decodes images."""

    name, files = "pictures", 1

    def __init__(self, place, names, listed, side, decode, decoded_by):
        self.place, self.side, self.decode = place, side, decode
        self.paths = [path for _, path, _ in listed]
        self.labels = np.array([label for label, _, _ in listed], np.int32)
        self.count, self.images = len(listed), self
        said = "".join("%s %d\n" % (path, size) for _, path, size in listed)
        self.sha256 = hashlib.sha256(said if bytes is str else said.encode("utf-8", "replace")).hexdigest()
        self.note = "%s; %dx%d by nearest pixels, decoded by %s; the sha256 is of their names and sizes" % (
            ", ".join("%d in %s" % ((self.labels == k).sum(), name) for k, name in enumerate(names)),
            side, side, decoded_by)
        self.broken, self.lock = set(), threading.Lock()
        for number, (_, _, size) in enumerate(listed):
            if not size:
                self.leave_out(number, "it is empty")

    def __getitem__(self, chosen):
        """Decode some, uint8 [n, side, side, 3]; chosen: a slice or indices. Thread-safe."""
        chosen = np.arange(self.count)[chosen]
        pixels = np.empty((len(chosen), self.side, self.side, 3), np.uint8)
        for k, number in enumerate(chosen):
            pixels[k] = self.whole(int(number))
        return pixels

    def whole(self, number):
        """Return an image; for a broken one, the next of its class, so that batches and labels stay the same."""
        same = np.flatnonzero(self.labels == self.labels[number])
        at = int(np.searchsorted(same, number))
        for candidate in np.roll(same, -at):
            if candidate not in self.broken:
                try:
                    return nearest(self.decode(self.content(candidate)), self.side)
                except Undecodable as error:
                    self.leave_out(int(candidate), error)
        raise Stop("data", "no image beside %s can be read" % self.paths[number])

    def content(self, number):
        path = os.path.join(self.place, self.paths[number])
        try:
            with open(path, "rb") as file:
                return file.read()
        except EnvironmentError as error:
            raise stopped_by(error, path, "data")

    def leave_out(self, number, why):
        with self.lock:
            if number in self.broken:
                return
            self.broken.add(number)
            count = len(self.broken)
        told = "%s is not an image (%s)" % (os.path.join(self.place, self.paths[number]), why)
        if count > min(MOST_BROKEN, self.count * BROKEN_SHARE):
            raise Stop("data", "%s; that makes %d broken ones of %d: too many to leave out" % (told, count, self.count))
        complain("%s: left out, and replaced by the next of its folder" % told)


def nearest(pixels, side):
    """Resize [height, width, 3] to [side, side, 3]: each pixel is the one at its centre, as in Pillow."""
    rows, columns = (((np.arange(side) + 0.5) * (length / side)).astype(int) for length in pixels.shape[:2])
    return pixels[rows[:, None], columns]
