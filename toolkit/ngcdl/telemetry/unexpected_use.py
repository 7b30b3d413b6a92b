"""Whether a run that was to have no card computes on one. In a container such a run sees no card; without a container,
a program that sets CUDA_VISIBLE_DEVICES itself can use any card."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection
from typing import Self

from ngcdl.errors import GpuError
from ngcdl.telemetry.card import compute_devices
from ngcdl.telemetry.free_cards import VARIABLE
from ngcdl.telemetry.gpu import Nvml, open_nvml

FIRST_SECONDS, PAUSE_SECONDS = 1.0, 5.0


class UnexpectedUse:
    """Looks every PAUSE_SECONDS within `with`, until the run is seen on a card. `uuids` are the cards on which the run
    was seen, and `told` is the warning about that."""

    def __init__(self, pids: Callable[[], Collection[int]], say: Callable[[str], None]) -> None:
        """`pids` returns the PIDs of the run's processes."""
        self._pids, self._say = pids, say
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="ngcdl-unexpected-use", daemon=True)
        self.uuids: tuple[str, ...] = ()
        self.told: str | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(PAUSE_SECONDS)  # a thread that hangs in the driver is left behind

    def _watch(self) -> None:
        if self._over.wait(FIRST_SECONDS):
            return
        # One connection throughout: without persistence mode each new one may wake all cards beside a timed run.
        with contextlib.suppress(GpuError), open_nvml() as nvml:  # without NVML nobody can tell
            self._look(nvml)
            while not (self.told or self._over.wait(PAUSE_SECONDS)):
                self._look(nvml)

    def _look(self, nvml: Nvml) -> None:
        cards = compute_devices(nvml.read())
        on_card = {name: {one.pid for one in card.processes or () if one.computes} for name, card in cards.items()}
        its = self._pids() if any(on_card.values()) else ()
        for name, card in cards.items():
            pids = on_card[name].intersection(its)
            if pids and card.uuid:
                self.uuids += (card.uuid,)
                first = min(pids)
                self.told = f"WARNING: the run was to have no GPU, but its process {first} computes on GPU {name}."
        if self.told:
            self._say(f"{self.told} Without a container, a program that sets {VARIABLE} itself gets any.")
