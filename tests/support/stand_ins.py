"""Programs that stand in for real ones, each a few lines of shell; and a call that stands in for one on a full disk."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import NoReturn


def stand_in(folder: Path, name: str, lines: str, shell: str = "/bin/sh") -> Path:
    """Write a program; it is the one found if its folder comes first in PATH."""
    path = folder / name
    path.write_text(f"#!{shell}\n{lines}\n")
    path.chmod(0o755)
    return path


def says(folder: Path, name: str, text: str) -> Path:
    return stand_in(folder, name, f"cat <<'end'\n{text}\nend")


def refuses(folder: Path, name: str, text: str) -> Path:
    return stand_in(folder, name, f"echo '{text}' >&2; exit 1")


def no_space(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
