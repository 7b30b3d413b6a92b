"""The cache of what --autotune chose, for the same machine, frameworks and training: one file per choice in a folder.

<16 hex digits of the key>.json: {"format": 1, "key": what the choice depends on, "measured": seconds since the epoch,
"chosen": settings (trial.py), "seconds": how long the trials took, "tries": as in the start event}. A file that can't
be read, or has another format, is ignored with a message, and rewritten.
"""
from __future__ import absolute_import, division, print_function

import hashlib
import json
import os
import sys
import time

from . import host, nvml, trial
from .events import line, stopped_by
from .files import write_whole

FORMAT = 1
ONEDNN = "TF_ENABLE_ONEDNN_OPTS"
VARIABLES = "OMP_NUM_THREADS", "MKL_NUM_THREADS", ONEDNN  # if set, they override how frameworks compute


def key(asked, here):
    """Return everything that a choice depends on, as JSON holds it."""
    with nvml.opened() as library:
        names = sorted(str(card["name"]) for card in library.cards()) if library else []
        driver = library.driver() if library else None
    found = {name: getattr(asked, name) for name in (
        "workload", "batch", "framework", "device", "precision", "compile", "threads", "channels_last", "teacher",
        "no_dropout", "clip", "replicas", "gpu_memory_fraction")}
    found.update(
        feed=None if asked.is_feed_free else asked.feed, data=asked.dataset if asked.data else "synthetic",
        trainer=source_checksum(), variables={name: os.environ[name] for name in asked.variables},
        installed=installed(sys.path), python=sys.version, cpu=host.processor(),
        processors=[here.usable, here.allowed, here.physical],
        memory_bytes=host.Container().memory_limit_bytes(), gpus=names, driver=driver)
    return json.loads(line(found).decode("ascii"))


def source_checksum():
    """Return a checksum of this trainer's source: another version may compute differently."""
    checksum = hashlib.sha256()
    for folder, _, names in sorted(os.walk(os.path.dirname(os.path.abspath(__file__)))):
        for name in sorted(name for name in names if name.endswith((".py", ".c", ".h"))):
            with open(os.path.join(folder, name), "rb") as file:
                checksum.update(file.read())
    return checksum.hexdigest()[:16]


def installed(folders):
    """Return what identifies the release of each installed framework, without importing it: the names of pip's metadata
    folders beside it, and when its files were written."""
    found = []
    for module in "tensorflow", "torch":
        for folder in folders:
            path = os.path.join(folder, module, "__init__.py")
            if os.path.exists(path):
                beside = sorted(name for name in os.listdir(folder or ".")
                                if name.startswith(module) and name.endswith("-info"))
                found.append([module, beside, int(os.path.getmtime(path))])
                break
    return found


def path_of(folder, key):
    return os.path.join(folder, "%s.json" % hashlib.sha256(line(key)).hexdigest()[:16])


def recall(folder, key, say):
    """Return the remembered choice; None if there is none, or if its file can't be read, which is said."""
    path = path_of(folder, key)
    try:
        with open(path) as file:
            kept = json.load(file)
        is_ours = kept["format"] == FORMAT and kept["key"] == key and trial.is_choice(kept["chosen"], kept["tries"])
        if not is_ours:
            raise ValueError("it has another format")
        time.gmtime(kept["measured"])
        return kept
    except (EnvironmentError, ValueError, KeyError, TypeError, OverflowError) as error:
        if os.path.exists(path):
            say("--autotune: ignoring %s: %s" % (path, error))
        return None


def keep(folder, key, found, say):
    """Write the choice and return whether that succeeded. A failure is said, and the training goes on."""
    try:
        write_whole(path_of(folder, key), line(dict(found, format=FORMAT, key=key)))
        return True
    except EnvironmentError as error:
        say("--autotune: not remembered: %s" % stopped_by(error, folder).message)
        return False
