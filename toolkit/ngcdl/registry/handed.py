"""What layers an engine got unpacked: those it knows by what they hold, not by the name that registries give them.

    FOLDER/unpacked-<engine>      a content's digest a line

Asked for such a layer by the other name it would fetch it again. What is lost or wrong here costs just that.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
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


def add(folder: Path, engine: str | None, contents: Iterable[str], chains: Iterable[Iterable[str]]) -> None:
    """Write down that it has got `contents` so, too; what stands in none of its images' `chains` is gone there.

    A folder that takes nothing is no error.
    """
    new = set(contents)
    if not new:
        return
    known = read(folder, engine).intersection(content for chain in chains for content in chain)
    path = _path(folder, engine)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        beside.write_text("".join(f"{digest}\n" for digest in sorted(known | new)))
        beside.replace(path)


def _path(folder: Path, engine: str | None) -> Path:
    return folder / f"unpacked-{tail(engine)}"
