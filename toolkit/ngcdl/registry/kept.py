"""A cache of registry answers: images by digest, valid forever; what a tag names, with the time it was read.

    images/REGISTRY+REPOSITORY/     0700, / written as +
        DIGEST.ARCHITECTURE.json    a Said: an image as its registry describes it, the configuration without history
        tag=TAG.json                {"digest": ..., "time": s since the epoch}
        tags.json                   {"names": [...], "time": ...}

Files are written atomically, 0600. An unreadable file counts as missing and is rewritten. If the folder can't be
written, nothing is kept, without an error. Keys and tokens are never kept.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from ngcdl import whole
from ngcdl.frozen import dataclass

_FORMAT = 1
# The rest of a configuration is mostly history: by far the largest part, and used by nobody.
_KEPT = ("architecture", "os", "variant", "created", "config")


@dataclass(frozen=True)
class Said:
    """One image as its registry describes it.

    `digest` is what the tag names: the index, if there is one. `architecture` is that of the image whose manifest was
    read, `architectures` are all that the registry offers; None: unknown.
    """

    digest: str
    architecture: str
    architectures: tuple[str, ...] | None
    compressed_bytes: int | None
    is_schema_1: bool
    config: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True)
class Tagged:
    digest: str
    age_seconds: float


@dataclass(frozen=True)
class Listed:
    names: tuple[str, ...]
    age_seconds: float


class KeptAnswers:
    """The kept answers about one repository. `name` includes its registry; no folder is made before the first write."""

    def __init__(self, cache: Path, name: str, now: Callable[[], float] = time.time) -> None:
        self._folder = cache / "images" / name.replace("/", "+")
        self._now = now

    def image(self, digest: str, architecture: str) -> Said | None:
        """Return what the registry said about a digest when asked for `architecture`."""
        try:
            said = _said(self._read(_name_of(digest, architecture)))
        except (KeyError, TypeError, ValueError):
            return None
        return said if said.digest == digest else None

    def keep_image(self, architecture: str, said: Said) -> None:
        config = {name: said.config[name] for name in _KEPT if name in said.config}
        self._write(_name_of(said.digest, architecture), {**vars(said), "config": config})

    def tagged(self, tag: str) -> Tagged | None:
        """Return the digest that a tag named when the registry was last asked."""
        from ngcdl.registry.manifest import is_digest

        tree = self._read(f"tag={tag}.json")
        age, digest = self._age(tree), tree.get("digest")
        return Tagged(digest, age) if age is not None and isinstance(digest, str) and is_digest(digest) else None

    def keep_tagged(self, tag: str, digest: str) -> None:
        self._write(f"tag={tag}.json", {"digest": digest, "time": self._now()})

    def listed(self) -> Listed | None:
        """Return the repository's tags as the registry last listed them."""
        tree = self._read("tags.json")
        age = self._age(tree)
        try:
            names = _texts(tree.get("names"))
        except ValueError:
            return None
        return Listed(names, age) if age is not None and names is not None else None

    def keep_listed(self, names: tuple[str, ...]) -> None:
        self._write("tags.json", {"names": names, "time": self._now()})

    def _age(self, tree: Mapping[str, Any]) -> float | None:
        """Return the seconds since an answer was kept, infinity if that is in the future."""
        kept = tree.get("time")
        if not isinstance(kept, int | float) or isinstance(kept, bool):
            return None
        return self._now() - kept if kept <= self._now() else float("inf")

    def _read(self, name: str) -> dict[str, Any]:
        try:
            tree = json.loads((self._folder / name).read_bytes())
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(tree, dict) or tree.pop("format", None) != _FORMAT:
            return {}
        return tree

    def _write(self, name: str, tree: Mapping[str, Any]) -> None:
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            with whole.written(self._folder / name, sync=False) as file:
                file.write(json.dumps({"format": _FORMAT, **tree}).encode())


def _name_of(digest: str, architecture: str) -> str:
    return f"{digest}.{architecture.replace('/', '_')}.json"


def _said(tree: Mapping[str, Any]) -> Said:
    """Parse a Said. Raise KeyError, TypeError or ValueError."""
    said = Said(
        digest=str(tree["digest"]),
        architecture=str(tree["architecture"]),
        architectures=_texts(tree["architectures"]),
        compressed_bytes=None if tree["compressed_bytes"] is None else int(tree["compressed_bytes"]),
        is_schema_1=tree["is_schema_1"] is True,
        config=tree["config"],
    )
    if not isinstance(said.config, dict):
        raise ValueError("no configuration")
    return said


def _texts(value: object) -> tuple[str, ...] | None:
    """Parse a list of strings, or null. Raise ValueError."""
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError("no list of texts")
    return tuple(value)
