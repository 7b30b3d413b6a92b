"""Which layers an engine got decompressed: it knows these by their content's digest, not by the registry's.

    FOLDER/unpacked-<engine>      one content digest per line

Under the registry's digest the engine would fetch such a layer again. A lost or wrong line here costs only that.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from ngcdl.pulling.pull_lock import tail
from ngcdl.registry.manifest import is_digest


def read(folder: Path, engine: str | None) -> frozenset[str]:
    """Return the content digests, none if nothing is known."""
    try:
        lines = _path(folder, engine).read_text(errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(line for line in lines if is_digest(line))


def add(folder: Path, engine: str | None, content: str) -> None:
    """Record that the engine has unpacked this one, too. A folder that can't be written is no error.

    The engine still knows it by that digest after its last image is gone, so nothing is ever removed here.
    """
    if content not in read(folder, engine):
        with contextlib.suppress(OSError), _path(folder, engine).open("a") as file:
            file.write(f"{content}\n")


def _path(folder: Path, engine: str | None) -> Path:
    return folder / f"unpacked-{tail(engine)}"
