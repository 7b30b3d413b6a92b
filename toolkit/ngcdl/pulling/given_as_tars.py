"""Which layers an engine got as tars: the engine knows these by their content's digest, not by the registry's.

    FOLDER/unpacked-<engine>      one content digest per line

If such a layer were offered under the registry's digest, the engine would fetch it again. That is also the only effect
of a lost or wrong line.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

from ngcdl.pulling.pull_lock import tail
from ngcdl.registry.manifest import is_digest


def read(folder: Path, engine: str | None) -> frozenset[str]:
    """Return the content digests of the layers that `engine` got as tars; empty if nothing is recorded."""
    try:
        lines = _path(folder, engine).read_text(errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(line for line in lines if is_digest(line))


def add(folder: Path, engine: str | None, content: str) -> None:
    """Record that the engine has unpacked the tar with this digest. A folder that can't be written is no error.

    The engine still knows a layer by that digest after its last image is gone, so no line is ever removed.
    """
    if content not in read(folder, engine):
        with contextlib.suppress(OSError), _path(folder, engine).open("a") as file:
            file.write(f"{content}\n")


def _path(folder: Path, engine: str | None) -> Path:
    return folder / f"unpacked-{tail(engine)}"
