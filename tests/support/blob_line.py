"""A blob, and the registry's side of the connection that delivers it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field

CONTENT = random.Random(1).randbytes(5_000_000)
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
NAME = DIGEST.replace(":", "-")


@dataclass
class Line:
    """A registry's side: sends `content` from `start_of(requested byte)` on, in the n-th answer up to `cuts[n]`."""

    content: bytes = CONTENT
    cuts: list[int] = field(default_factory=list)
    start_of: Callable[[int], int] = lambda start: start
    starts: list[int] = field(default_factory=list)
    host: str = "nvcr.io"
    whole_bytes: int | None = None
    at_piece: Callable[[], None] = lambda: None

    def open(self, start: int) -> Line:
        end = self.cuts[len(self.starts)] if len(self.starts) < len(self.cuts) else len(self.content)
        self.starts.append(start)
        self.start = self.start_of(start)
        self._rest = self.content[self.start : end]
        return self

    def read(self, limit_bytes: int) -> bytes:
        self.at_piece()
        piece, self._rest = self._rest[: min(limit_bytes, 100_000)], self._rest[min(limit_bytes, 100_000) :]
        return piece

    def is_unread(self) -> bool:
        """Has nothing been read yet?"""
        return len(self._rest) == len(self.content)

    def close(self) -> None: ...
