"""How much room there is where layers go."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Room:
    """A file system: `device` tells it from others."""

    device: int
    free_bytes: int


def of(folder: Path | None, *, as_root: bool) -> Room | None:
    """Look at the file system that `folder` is on, or will be; None where it can't be seen from here.

    What a file system keeps back for root is free for an engine, which is root, and not for us.
    """
    while folder is not None:
        try:
            about, room = folder.stat(), os.statvfs(folder)
        except FileNotFoundError:
            folder = folder.parent
        except OSError:
            return None
        else:
            return Room(about.st_dev, room.f_frsize * (room.f_bfree if as_root else room.f_bavail))
    return None
