"""Does a run that was to have no card compute on one? In a container there is none; without one, a program that sets
CUDA_VISIBLE_DEVICES itself gets any."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from types import TracebackType
from typing import Self

from ngcdl.errors import GpuError
from ngcdl.telemetry.card import computing
from ngcdl.telemetry.free import VARIABLE, readings

FIRST_SECONDS, PAUSE_SECONDS = 1.0, 5.0


class Strays:
    """Looks now and then, within `with`. `uuids` are the cards on which it was seen, and `told` what was said then."""

    def __init__(self, pids: Callable[[], Collection[int]], say: Callable[[str], None]) -> None:
        """`pids` returns those of the run's processes."""
        self._pids, self._say = pids, say
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ngcdl-strays", daemon=True)
        self.uuids: tuple[str, ...] = ()
        self.told: str | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join(PAUSE_SECONDS)  # a driver that hangs is left behind

    def _watch(self) -> None:
        pause = FIRST_SECONDS
        while not (self._over.wait(pause) or self.told):
            pause = PAUSE_SECONDS
            try:
                cards = computing(readings())
            except GpuError:  # nobody can tell
                return
            on_card = {name: {one.pid for one in card.processes or ()} for name, card in cards.items()}
            its = self._pids() if any(on_card.values()) else ()
            for name, card in cards.items():
                pids = on_card[name].intersection(its)
                if pids and card.uuid:
                    self.uuids += (card.uuid,)
                    first = min(pids)
                    self.told = f"WARNING: the run was to have no GPU, but its process {first} computes on GPU {name}."
            if self.told:
                self._say(f"{self.told} Without a container, a program that sets {VARIABLE} itself gets any.")
