"""The part of the archive downloaded so far, kept between tries and between runs.

Beside `NAME.part` is `NAME.part.json`: {"from": sha256 of the address, "validator": its ETag or Last-Modified}.
The address itself is not stored, as it may contain a password.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ngcdl.dataset.disk import replace_text


@dataclass(frozen=True)
class Part:
    path: Path

    @property
    def bytes(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    @property
    def _note(self) -> Path:
        return self.path.with_name(self.path.name + ".json")

    def validator(self, url: str) -> str | None:
        """Return what If-Range needs to resume at this address; None if the part came from another one."""
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return None
        if not isinstance(note, dict) or note.get("from") != _key(url):
            return None
        validator = note.get("validator")
        return validator if isinstance(validator, str) else None

    def remember(self, url: str, headers: Mapping[str, str]) -> None:
        """Store the validator of what this address now sends. A weak ETag does not count: RFC 9110, 13.1.5."""
        etag = headers.get("ETag", "")
        validator = etag if etag.startswith('"') else headers.get("Last-Modified")
        replace_text(self._note, json.dumps({"from": _key(url), "validator": validator}))

    def finish(self, path: Path) -> None:
        """Give the complete, verified archive its final name."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self.path.replace(path)
        self._note.unlink(missing_ok=True)

    def reject(self) -> Path:
        """Set a part with the wrong hash aside as .bad; the next try starts from zero."""
        bad = self.path.with_suffix(".bad")
        self.path.replace(bad)
        self._note.unlink(missing_ok=True)
        return bad

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)


def _key(url: str) -> str:
    return hashlib.sha256(url.encode()).hexdigest()
