"""Which folders of pictures, one a class, the folder has that a user names: found as the trainer will (pictures.py)."""

from __future__ import annotations

import os
from pathlib import Path

TRAINING, TESTING = ("train", "training"), ("test", "validation", "val")
ENDINGS = (".jpg", ".jpeg", ".png")


def found(folder: Path, splits: tuple[str, ...] = TRAINING) -> tuple[Path, tuple[str, ...] | None]:
    """Give the folder that is trained on, or what `splits` name, or else `folder` itself; and its folders that hold
    pictures, None where they can't be read."""
    place = folder
    try:
        place = next((folder / name for name in splits if (folder / name).is_dir()), folder)
        below = sorted(one.name for one in place.iterdir() if one.is_dir() and one.name not in TRAINING + TESTING)
        return place, tuple(name for name in below if _has_pictures(place / name))
    except OSError:
        return place, None  # what the caller may not read, the trainer perhaps may


def alike(trained: tuple[str, ...], tested: tuple[str, ...]) -> bool:
    """Are these the same classes, in capitals or not?"""
    return sorted(name.lower() for name in trained) == sorted(name.lower() for name in tested)


def said(names: tuple[str, ...]) -> str:
    """Give them in words: "one folder of pictures, cats"."""
    many = f"the folders of pictures {', '.join(names)}" if names else "no folder of pictures"
    return f"one folder of pictures, {names[0]}" if len(names) == 1 else many


def _has_pictures(folder: Path) -> bool:
    with os.scandir(folder) as files:
        return any(file.name.lower().endswith(ENDINGS) for file in files)
