"""Is CIFAR-10 already here, and intact?"""

from __future__ import annotations

from pathlib import Path

from ngcdl.dataset import CIFAR10, FOLDER
from ngcdl.dataset.kept import CachedArchive
from ngcdl.doctor.hands import Hands
from ngcdl.doctor.sight import Dataset
from ngcdl.settings import expanded
from ngcdl.there import exists


def look(hands: Hands, cache: Path) -> Dataset:
    named = hands.environ.get(FOLDER, "").strip() or None
    if named is not None:
        is_there = named == "synthetic" or exists(expanded(named))
        return Dataset(False, None, cache, named, is_there)
    training, damage = CachedArchive(cache.absolute(), CIFAR10).check()
    return Dataset(training is not None, damage, cache)
