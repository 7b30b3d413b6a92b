"""Says that the registry asks for a wait: only once, although it asks that of every connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from ngcdl.errors import NgcdlError


class Waits:
    """Called by each connection before it waits. `screen` is held while a line is shown."""

    def __init__(self, say: Callable[[str], None], screen: threading.Lock) -> None:
        self._say, self._screen = say, screen
        self._told_until = 0.0  # the end of the last wait that was announced

    def __call__(self, error: NgcdlError, seconds: float) -> None:
        with self._screen:
            if time.monotonic() < self._told_until:
                return
            self._told_until = time.monotonic() + seconds
            self._say(f"{error.message} Waiting {seconds:.0f} s.")
