"""What a person watches during a comparison: on a terminal which run is under way, and the last line it wrote."""

from __future__ import annotations

import re
import sys

from ngcdl import console
from ngcdl.cli.screen import STEP_SECONDS, Screen
from ngcdl.engines.values import Chunk

_LONGEST = 4096  # bytes to keep of a line that has not ended
_ENDS = re.compile(rb"[\r\n]+")  # a progress bar goes back to the beginning of its line


class ComparisonScreen(Screen):
    """A Screen without the runs' output, which is in their log.txt and would bury the results here. What a cluster lets
    them wait for is still shown: nothing else comes on stderr from there."""

    def __init__(self, is_cluster: bool) -> None:
        super().__init__(output_to_stderr=True)
        self._is_cluster = is_cluster
        self._what = ""
        self._is_drawn = False
        self._written = b""
        self._drawn = -STEP_SECONDS

    def begins(self, what: str) -> None:
        """Show that a run begins; `what` says which."""
        self._what, self._written = what, b""
        self._draw("running")

    def chunk(self, chunk: Chunk) -> None:
        if self._is_cluster and chunk.stream == "stderr":
            self.say(chunk.data.decode(errors="replace").rstrip())
            return
        self._written = (self._written + chunk.data)[-_LONGEST:]
        if not self._moving or self._clock() - self._drawn < STEP_SECONDS:
            return
        lines = [line for line in _ENDS.split(self._written) if line.strip()]
        if lines:
            self._drawn = self._clock()
            self._draw(lines[-1].decode(errors="replace"))

    def say(self, text: str) -> None:
        self._wipe()
        super().say(text)

    def quiet(self) -> None:
        self._wipe()
        super().quiet()

    def _draw(self, text: str) -> None:
        width = console.columns(sys.stderr)
        if width is None or not self._moving or self._progress:
            return
        line = " ".join(console.plain(f"{self._what}: {text}").split())
        self._write(sys.stderr, f"\r{console.filling(line, width - 1)}".encode(errors="replace"))
        self._is_drawn = True

    def _wipe(self) -> None:
        if self._is_drawn:
            self._write(sys.stderr, b"\r\x1b[K")
            self._is_drawn = False
