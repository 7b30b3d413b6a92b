"""How a training is saved: checkpoints/step-<n>.npz, readable by every framework, whole or not at all.

A file holds every array of the training's state under its name in recipe.Model.kept(): each weight and batch norm's
running mean and variance under their names in layers.py, a weight's optimiser state under "<slot>/<name>", its moving
average under "average/<name>". It also holds "about", JSON in bytes: format 1, step (how many are done), workload,
batch, seed, data (which data set), queued, clip, dropout and teacher (false if it was switched off, else null or
missing), framework (which one wrote the file), and sha256 of the arrays. A checkpoint is written to a temporary file in
the same folder and then renamed, so that a process that ends at any moment leaves the previous checkpoints intact; the
sha256 detects corruption on the disk. The order of the images is not saved: it is a function of the seed and the step
(data.Order, epochs.Shuffled).
"""
from __future__ import absolute_import, division, print_function

import hashlib
import io
import json
import os
import re

import numpy as np

from .events import Stop, stopped_by
from .files import make_folder, write_whole

FORMAT = 1
KEPT = 3
NAME = re.compile(r"step-(\d+)\.npz$")
SAME = "workload", "batch", "seed", "data", "queued", "dropout", "teacher", "clip"


def save(folder, about, arrays):
    """Write DIR/checkpoints/step-<n>.npz, keep the last three, and return the path relative to DIR.

    Raise Stop("disk_full") if the disk is full, and Stop("nan") if an array is not finite. The loss may still have been
    finite then, because it is computed before the step's update. Both leave the earlier checkpoints as they were.
    """
    for name in sorted(arrays):
        if not np.isfinite(arrays[name]).all():
            raise Stop("nan", "Model diverged: %s is not finite after %d steps" % (name, about["step"]),
                       about["step"] - 1)
    about = dict(about, format=FORMAT, sha256=digest(arrays))
    content = io.BytesIO()
    np.savez(content, **dict(arrays, about=np.frombuffer(json.dumps(about, sort_keys=True).encode("ascii"), np.uint8)))
    place = os.path.join(folder, "checkpoints")
    path = os.path.join(place, "step-%d.npz" % about["step"])
    try:
        make_folder(place)
        for rest in [name for name in os.listdir(place) if name.endswith(".tmp")]:
            os.remove(os.path.join(place, rest))  # left by a trainer that was killed while it saved: we hold its lock
        if os.path.isdir(path):  # perhaps what somebody unpacked: moved aside, for it must not cost the training
            os.rename(path, path + ".folder")
        write_whole(path, content.getvalue())
        # by modification time: the folder may hold checkpoints of a longer training, or some dated by a fast clock
        others = [other for other in found(place) if other != path and os.path.isfile(other)]
        for old in sorted(others, key=os.path.getmtime, reverse=True)[KEPT - 1:]:
            os.remove(old)
    except EnvironmentError as error:
        raise stopped_by(error, path, "checkpoint")
    return os.path.relpath(path, folder)


def digest(arrays):
    whole = hashlib.sha256()
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        whole.update(("%s %s %s\n" % (name, array.dtype.str, "x".join(str(n) for n in array.shape))).encode("ascii"))
        whole.update(array.tobytes())
    return whole.hexdigest()


def found(place):
    """Return the paths of a folder's checkpoints, newest first."""
    names = [name for name in os.listdir(place) if NAME.match(name)]
    return [os.path.join(place, name) for name in sorted(names, key=lambda name: -int(NAME.match(name).group(1)))]


def read(path):
    """Return (about, arrays). Raise ValueError if the file is truncated, corrupt, not ours or of a later format."""
    if not os.path.isfile(path):  # opening a pipe would wait for its writer, forever
        raise ValueError("it is not a regular file")
    try:
        with open(path, "rb") as file:
            content = io.BytesIO(file.read())
        with np.load(content, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(arrays.pop("about").tobytes().decode("ascii"))
        later = about["format"] > FORMAT
        whole = about.pop("sha256") == digest(arrays)
    except Exception as error:  # zip, numpy and JSON each report corrupt bytes in their own way
        raise ValueError("%s: %s" % (type(error).__name__, error))
    if later:
        raise ValueError("it has format %s, this trainer reads up to %d: update ngcdl" % (about["format"], FORMAT))
    if not whole:
        raise ValueError("its content is not what was written")
    return about, arrays


def kept(folder):
    """Return the folder where a run's checkpoints are, or would be, and their paths, newest first. Raise Stop if it
    can't be read."""
    inside = os.path.join(folder, "checkpoints")
    place = inside if os.path.isdir(inside) else folder
    try:
        return place, found(place) if os.path.isdir(place) else []
    except EnvironmentError as error:
        raise stopped_by(error, place, "checkpoint")


def reached(folder):
    """Return how many steps were done at the newest checkpoint, by its name alone; 0 if there is none."""
    paths = kept(folder)[1]
    return int(NAME.search(paths[0]).group(1)) if paths else 0


def newest(folder, wanted, say):
    """Return (about, arrays) of a folder's newest undamaged checkpoint. Raise Stop if there is none, or if it is of
    another training than `wanted`."""
    path, about, arrays = good(folder, say)
    for key in SAME:
        if about.get(key) != wanted.get(key):
            raise Stop("checkpoint", "%s has %s %s, this training has %s" % (
                path, key, about.get(key), wanted.get(key)))
    say("Continuing from %s" % path)
    return about, arrays


def good(folder, say=str):
    """Return (path, about, arrays) of a folder's newest undamaged checkpoint, whichever training wrote it."""
    place, paths = kept(folder)
    if not paths:
        raise Stop("checkpoint", "No checkpoint file found in %s" % place)
    for path in paths:
        try:
            return (path,) + read(path)
        except ValueError as error:
            why = str(error)
            say("%s can't be read (%s); trying the one before" % (path, why))
    raise Stop("checkpoint", "no checkpoint in %s can be read; the oldest: %s" % (place, why))
