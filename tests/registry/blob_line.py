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
    """A registry's side: sends `content`, in the n-th answer only up to `cuts[n]`; `status` 200: it ignores Range."""

    content: bytes = CONTENT
    cuts: list[int] = field(default_factory=list)
    status: int = 206
    starts: list[int] = field(default_factory=list)
    host: str = "nvcr.io"
    at_piece: Callable[[], None] = lambda: None

    def open(self, start: int) -> Line:
        end = self.cuts[len(self.starts)] if len(self.starts) < len(self.cuts) else len(self.content)
        self.starts.append(start)
        self._rest = self.content[start if self.status == 206 else 0 : end]
        return self

    def read(self, limit_bytes: int) -> bytes:
        self.at_piece()
        piece, self._rest = self._rest[: min(limit_bytes, 100_000)], self._rest[min(limit_bytes, 100_000) :]
        return piece

    def is_unread(self) -> bool:
        """Has nothing been read yet?"""
        return len(self._rest) == len(self.content)

    def close(self) -> None: ...
