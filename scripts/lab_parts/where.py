"""Where the lab keeps downloads and running parts, and how it reports what it does."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PARTS = Path(__file__).resolve().parent


class LabError(Exception):
    """A step failed; the text says what happened and what to type."""


class Lab:
    """The lab's two folders: `dir`, removed by `down`, and `cache`, which makes the next `up` fast."""

    def __init__(self, dir: Path, cache: Path) -> None:
        self.dir, self.cache = dir, cache

    @classmethod
    def from_environment(cls, dir: str | None = None) -> Lab:
        folder = Path(dir or os.environ.get("NGCDL_LAB_DIR") or f"/tmp/ngcdl-lab-{os.getuid()}").absolute()
        if len(str(folder / "floor/docker.sock")) > 99:  # the limit is 107 bytes, for some clients less
            raise LabError(f"the path {folder} is too long for sockets: set NGCDL_LAB_DIR to a shorter one")
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return cls(folder, Path(os.environ.get("NGCDL_LAB_CACHE") or Path(home) / "ngcdl-lab").absolute())

    @property
    def json(self) -> Path:
        return self.dir / "lab.json"

    @property
    def bin(self) -> Path:
        return self.dir / "bin"


def say(text: str) -> None:
    print(f"lab: {text}", file=sys.stderr, flush=True)


@contextmanager
def step(text: str) -> Iterator[None]:
    """Print one line on success: what was done and how many seconds it took."""
    began = time.monotonic()
    yield
    say(f"{text} ({time.monotonic() - began:.1f} s)")


def recipe_key(*parts: object) -> str:
    """Return a hash of what something is made from (of paths, their content), so that a changed recipe gets a new
    folder."""
    text = json.dumps([p.read_text() if isinstance(p, Path) else p for p in parts], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_json(path: Path) -> dict[str, Any]:
    """Return what a file has that write_whole() wrote; {} if there is none."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        return {}


_writing = threading.Lock()


def write_whole(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace a file atomically: a reader sees the old text or the new one."""
    with _writing:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(path.name + ".draft")
        draft.write_text(text)
        draft.chmod(mode)
        draft.replace(path)
