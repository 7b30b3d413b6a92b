"""Says what a slow step waits for."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

# Nearly every start takes less than 10 s. Each further message comes after twice the pause, at most 5 min.
FIRST_SECONDS, MOST_SECONDS = 10.0, 300.0


@contextlib.contextmanager
def telling(
    say: Callable[[str], None],
    waits_for: Callable[[], str | None],
    pause: float = FIRST_SECONDS,
    at_ctrl_c: str = "cancels",
) -> Iterator[None]:
    """Report now and then what the block waits for (from `waits_for`; None is not reported), how long it has taken so
    far, and what Ctrl-C does.

    Without these messages a hanging engine would look like a hanging ngcdl."""
    over, began = threading.Event(), time.monotonic()

    def tell() -> None:
        seconds = pause
        while not over.wait(seconds):
            if what := waits_for():
                say(f"waiting for {what} ({time.monotonic() - began:.0f} s so far); Ctrl-C {at_ctrl_c}")
            seconds = min(2 * seconds, MOST_SECONDS)

    thread = threading.Thread(target=tell, name="ngcdl-telling", daemon=True)
    thread.start()
    try:
        try:
            yield
        finally:
            over.set()
    finally:
        over.set()  # a signal may have interrupted the first call
        thread.join()
