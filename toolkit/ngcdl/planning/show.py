"""Where a preparation and a run report their progress."""

from __future__ import annotations

from typing import Protocol

from ngcdl.engines.values import Chunk, PullEvent


class Show(Protocol):
    """Shows progress. No method but `chunk` may raise, and none may block for long."""

    def say(self, text: str) -> None: ...

    def pull(self, event: PullEvent) -> None: ...

    def download(self, done_bytes: int, total_bytes: int | None, bytes_per_second: float | None) -> None: ...

    def quiet(self) -> None:
        """Remove any animation from the screen."""
        ...

    def chunk(self, chunk: Chunk) -> None:
        """Show a piece of a run's output. Raise BrokenPipeError if nobody reads its stream any more (`| head`)."""
        ...
