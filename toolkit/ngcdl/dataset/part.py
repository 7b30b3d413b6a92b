"""The part of the archive downloaded so far, kept between tries and between runs."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Part:
    path: Path

    @property
    def bytes(self) -> int:
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def finish(self, path: Path) -> None:
        """Give the complete, verified archive its final name."""
        with self.path.open("rb") as file:
            os.fsync(file.fileno())
        self.path.replace(path)

    def reject(self) -> Path:
        """Set a part with the wrong hash aside as .bad; the next try starts from zero."""
        bad = self.path.with_suffix(".bad")
        self.path.replace(bad)
        return bad

    def forget(self) -> None:
        self.path.unlink(missing_ok=True)
