"""How a training is kept: checkpoints/step-<n>.npz, readable by every framework, whole or not at all.

A file holds every array that the training is made of under its name in recipe.Model.kept(): each weight and batch
norm's running mean and variance under their names in layers.py, what the optimiser keeps of a weight under
"<slot>/<name>", its moving average under "average/<name>". And "about", JSON in bytes: format 1, step (how many are
done), workload, batch, seed, data (what the images are), queued, dropout and teacher (false where it was left out,
else null or missing), the framework that wrote it, and sha256 over the arrays. It is written beside its place and
renamed, so that an end at any moment leaves the previous ones; what a disk has spoilt since is found by the sha256.
The order of the images needs no keeping: it is a function of the seed and the step (data.Order, epochs.Shuffled).
"""
from __future__ import absolute_import, division, print_function

import hashlib
import io
import json
import os
import re

import numpy as np

from .events import Stop, stopped_by
from .files import write_whole

FORMAT = 1
KEPT = 3
NAME = re.compile(r"step-(\d+)\.npz$")
SAME = "workload", "batch", "seed", "data", "queued", "dropout", "teacher", "clip"


def save(folder, about, arrays):
    """Write DIR/checkpoints/step-<n>.npz, keep the last three, and give the path relative to DIR.

    A full disk raises Stop("disk_full") and leaves the earlier ones as they were. So does Stop("nan"), where the last
    update has left what is no number: its loss, of the weights before it, still was one.
    """
    for name in sorted(arrays):
        if not np.isfinite(arrays[name]).all():
            raise Stop("nan", "Model diverged: %s holds what is no number after %d steps" % (name, about["step"]),
                       about["step"] - 1)
    about = dict(about, format=FORMAT, sha256=digest(arrays))
    arrays = dict(arrays)
    arrays["about"] = np.frombuffer(json.dumps(about, sort_keys=True).encode("ascii"), np.uint8)
    content = io.BytesIO()
    np.savez(content, **arrays)
    place = os.path.join(folder, "checkpoints")
    path = os.path.join(place, "step-%d.npz" % about["step"])
    try:
        if not os.path.isdir(place):
            os.makedirs(place)
        for rest in [name for name in os.listdir(place) if name.endswith(".tmp")]:
            os.remove(os.path.join(place, rest))  # of a trainer that was killed while it saved; the lock is ours now
        write_whole(path, content.getvalue())
        # by when they were written: the folder may hold some of a longer training, or of a clock that went ahead
        others = [other for other in found(place) if other != path]
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
    """Give the paths of a folder's checkpoints, newest first."""
    names = [name for name in os.listdir(place) if NAME.match(name)]
    return [os.path.join(place, name) for name in sorted(names, key=lambda name: -int(NAME.match(name).group(1)))]


def read(path):
    """Give (about, arrays). Raises ValueError if the file is torn, spoilt or none of ours."""
    try:
        with open(path, "rb") as file:
            content = io.BytesIO(file.read())
        with np.load(content, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        about = json.loads(arrays.pop("about").tobytes().decode("ascii"))
        whole = about.get("format") == FORMAT and about.pop("sha256") == digest(arrays)
    except Exception as error:  # zip, numpy and JSON each have their own way to say that bytes are wrong
        raise ValueError("%s: %s" % (type(error).__name__, error))
    if not whole:
        raise ValueError("its content is not what was written")
    return about, arrays


def kept(folder):
    """Give where a run's checkpoints lie, or would, and their paths, newest first."""
    inside = os.path.join(folder, "checkpoints")
    place = inside if os.path.isdir(inside) else folder
    return place, found(place) if os.path.isdir(place) else []


def reached(folder):
    """Give how many steps are done in the newest checkpoint, by its name alone; 0 where there is none."""
    paths = kept(folder)[1]
    return int(NAME.search(paths[0]).group(1)) if paths else 0


def newest(folder, wanted, say):
    """Give the newest good checkpoint of a folder as read() does. No good one, or another training's, raises Stop."""
    path, about, arrays = good(folder, say)
    for key in SAME:
        if about.get(key) != wanted.get(key):
            raise Stop("checkpoint", "%s is of %s %s, this training of %s" % (
                path, key, about.get(key), wanted.get(key)))
    say("Going on from %s" % path)
    return about, arrays


def good(folder, say=str):
    """Give the path of the newest good checkpoint of a folder, whichever training's, and what read() does."""
    place, paths = kept(folder)
    if not paths:
        raise Stop("checkpoint", "No checkpoint file found in %s" % place)
    for path in paths:
        try:
            return (path,) + read(path)
        except ValueError as error:
            say("%s is damaged (%s); trying the one before" % (path, error))
    raise Stop("checkpoint", "every checkpoint in %s is damaged" % place)
