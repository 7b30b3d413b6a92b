"""Shows a comparison while it goes on: on a terminal, which run is under way, and the last line that the run wrote."""

from __future__ import annotations

import re
import sys

from ngcdl import console
from ngcdl.cli.screen import CHATTER, STEP, STEP_SECONDS, Screen
from ngcdl.engines.values import Chunk
from ngcdl.terminal_text import cut, plain

_LONGEST = 4096  # bytes to keep of a line that has not ended
_ENDS = re.compile(rb"[\r\n]+")  # a progress bar uses \r to rewrite its line


class ComparisonScreen(Screen):
    """A Screen without the runs' output, which is in their log.txt and would bury the results here. What a
    cluster job sends on stderr is still shown: it is never the run's own, but says what the run waits for."""

    def __init__(self, is_cluster: bool) -> None:
        super().__init__(output_to_stderr=True)
        self._is_cluster = is_cluster
        self._what = ""
        self._is_drawn = False
        self._written = b""
        self._drawn = -STEP_SECONDS
        self._said = set[str]()

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
        lines = [line for line in _ENDS.split(self._written) if line.strip() and not CHATTER.match(line)]
        if lines:
            self._drawn = self._clock()
            last = lines[-1]
            step = STEP.match(last)  # the speed has more room without the time
            self._draw(last[step.end("when") if step else 0 :].decode(errors="replace"))

    def say(self, text: str) -> None:
        """Say a message; only once if it is advice, which has several lines, or comes before the first run: what is
        known of one run, such as a failure with its remedy, may be so of all."""
        self._wipe()
        if text not in self._said:
            super().say(text)
        if "\n" in text or not self._what:
            self._said.add(text)

    def quiet(self) -> None:
        self._wipe()
        super().quiet()

    def _draw(self, text: str) -> None:
        width = console.columns(sys.stderr)
        if width is None or not self._moving or self._progress:
            return
        line = " ".join(plain(f"{self._what}: {text}").split())
        # Not to the last columns: a Ctrl-C's ^C behind it would begin another line, and _wipe would miss this one.
        self._write(sys.stderr, f"\r{cut(line, width - 3)}\x1b[K".encode(errors="replace"))
        self._is_drawn = True

    def _wipe(self) -> None:
        if self._is_drawn:
            self._write(sys.stderr, b"\r\x1b[K")
            self._is_drawn = False
