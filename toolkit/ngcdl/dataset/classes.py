"""The classes in a user's folder, one subfolder of images each, found as the trainer finds them (pictures.py)."""

from __future__ import annotations

import os
from pathlib import Path

from ngcdl.there import is_folder

TRAINING, TESTING = ("train", "training"), ("test", "validation", "val")
ENDINGS = (".jpg", ".jpeg", ".png")


def find(folder: Path, splits: tuple[str, ...] = TRAINING) -> tuple[Path, tuple[str, ...] | None]:
    """Return the subfolder of the split that `splits` names, or else `folder` itself; and the names of its folders
    with images, or None if they can't be read."""
    place = folder
    try:
        place = next((folder / name for name in splits if is_folder(folder / name)), folder)
        below = sorted(one.name for one in place.iterdir() if is_folder(one) and one.name not in TRAINING + TESTING)
        return place, tuple(name for name in below if name[0] != "." and _has_pictures(place / name))
    except OSError:
        return place, None  # the trainer may be allowed to read what the caller is not


def alike(trained: tuple[str, ...], tested: tuple[str, ...]) -> bool:
    """Return whether both sets of classes are the same, ignoring case."""
    return sorted(name.lower() for name in trained) == sorted(name.lower() for name in tested)


def described(names: tuple[str, ...]) -> str:
    """Describe classes in words: "one folder of images, cats"."""
    many = f"the folders of images {', '.join(names)}" if names else "no folder of images"
    return f"one folder of images, {names[0]}" if len(names) == 1 else many


def _has_pictures(folder: Path) -> bool:
    with os.scandir(folder) as files:
        return any(file.name[0] != "." and file.name.lower().endswith(ENDINGS) for file in files)
