"""What layers an engine got unpacked: those it knows by what they hold, not by the name that registries give them.

    FOLDER/unpacked-<engine>      a content's digest a line

Asked for such a layer by the other name it would fetch it again. What is lost or wrong here costs just that.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from ngcdl.registry.manifest import is_digest
from ngcdl.registry.turn import tail


def read(folder: Path, engine: str | None) -> frozenset[str]:
    """Give the contents, by digest; none where nothing is known."""
    try:
        lines = _path(folder, engine).read_text(errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(line for line in lines if is_digest(line))


def add(folder: Path, engine: str | None, content: str) -> None:
    """Write down that it has unpacked this one, too. A folder that takes nothing is no error.

    It stays known to the engine by that name when its last image is gone, so nothing is ever taken away here.
    """
    if content not in read(folder, engine):
        with contextlib.suppress(OSError), _path(folder, engine).open("a") as file:
            file.write(f"{content}\n")


def _path(folder: Path, engine: str | None) -> Path:
    return folder / f"unpacked-{tail(engine)}"
