"""Whether an image's layers fit on the engine's disk and in ngcdl's cache: the free space, and what the image needs."""

from __future__ import annotations

import enum
import os
from collections.abc import Callable
from pathlib import Path

from ngcdl.errors import DiskFull
from ngcdl.figures import size
from ngcdl.frozen import dataclass


@dataclass(frozen=True)
class Room:
    """A file system, identified by `device`."""

    device: int
    free_bytes: int


def file_system_of(folder: Path | None, *, as_root: bool) -> Room | None:
    """Return the file system that `folder` is on, or will be; None if it is not visible from here.

    Space reserved for root counts as free with `as_root`, for an engine, which runs as root. A folder that this user
    may not see is nearly always on the same file system as the folder above it.
    """
    while folder is not None:
        try:
            about, room = folder.stat(), os.statvfs(folder)
        except (FileNotFoundError, PermissionError):
            folder = folder.parent
        except OSError:
            return None
        else:
            return Room(about.st_dev, room.f_frsize * (room.f_bfree if as_root else room.f_bavail))
    return None


# The room that tars need, as a multiple of an image's likely size: twice, because the engine has them as tars and
# unpacked, times 1.5, because some images are larger than is likely: the frameworks' own files take 3.3 times their
# compressed size (scripts/benchmarks/pull.py), where 2.5 is likely.
_AS_TARS_TOO = 3


class LayerForm(enum.Enum):
    NOT_HERE = "this host has no room for the layers in transit"
    PACKED = "layers as the registry has them"
    UNPACKED = "layers that the engine gets as tars: for a while it has them twice, as tars and unpacked"


@dataclass(frozen=True)
class Need:
    """What a pull needs: `missing_bytes` of layers that the engine lacks, and about `likely_bytes` to unpack them.

    `here_bytes` of the missing layers are in ngcdl's cache already.
    """

    image: str
    missing_bytes: int
    here_bytes: int
    likely_bytes: int


def judge(need: Need, engines: Path | None, own: Path, say: Callable[[str], None]) -> LayerForm:
    """Judge the room in `engines`, an engine's image folder, and in `own`, for layers in transit. Raise DiskFull."""
    there, here = file_system_of(engines, as_root=True), file_system_of(own, as_root=False)
    needs = (
        f"{need.image} needs {size(need.missing_bytes)} there at least, and about {size(need.likely_bytes)} in the end"
    )
    to_come_bytes = need.missing_bytes - need.here_bytes
    both_bytes = own_bytes = 0
    if there is not None:
        free = f"{size(there.free_bytes)} are free in {engines}"
        if there.free_bytes < need.missing_bytes:
            raise DiskFull(str(engines), f"{needs}; {free}")
        if there.free_bytes < need.likely_bytes:
            say(f"This may not fit: {needs}; {free}.")
        if here is not None and here.device == there.device:
            both_bytes, own_bytes = need.likely_bytes, to_come_bytes
    if here is not None and here.free_bytes < to_come_bytes + both_bytes:
        return LayerForm.NOT_HERE
    if there is None or there.free_bytes <= own_bytes + _AS_TARS_TOO * need.likely_bytes:
        return LayerForm.PACKED
    return LayerForm.UNPACKED


# On most lines a smaller pull takes a minute or so, and its progress says enough.
_LARGE_BYTES = 1_000_000_000


def announced(need: Need, engines: Path | None) -> str | None:
    """Return the line that announces a large pull by way of ngcdl's cache, None for a smaller pull."""
    to_come_bytes = need.missing_bytes - need.here_bytes
    if to_come_bytes < _LARGE_BYTES:
        return None
    where = f" in {engines}" if engines else ""
    return (
        f"{need.image}: {size(to_come_bytes)} to fetch, about {size(need.likely_bytes)} on disk{where}; "
        "Ctrl-C keeps what has arrived."
    )
