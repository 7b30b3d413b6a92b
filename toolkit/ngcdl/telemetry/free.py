"""Which cards of this host nothing computes on."""

from __future__ import annotations

from collections.abc import Collection

from ngcdl.errors import NoGpu
from ngcdl.telemetry import driver
from ngcdl.telemetry.card import GpuReading
from ngcdl.telemetry.gpu import open_nvml


def cards(count: int, unfit: Collection[str] = ()) -> tuple[str, ...]:
    """Give the UUIDs of the `count` least used cards on which nothing computes, without those of `unfit`.

    Raises NoGpu, NvmlUnavailable."""
    every = driver.within(_all)
    fit = [card for card in every if card.uuid not in unfit]
    free = sorted((card for card in fit if card.is_free), key=lambda card: card.use)
    if len(free) < count:
        busy = ", ".join(str(card.index) for card in fit if not card.is_free) or "none"
        can_t = ", ".join(str(card.index) for card in every if card.uuid in unfit)
        more = f"; of no use to this image: {can_t}" if can_t else ""
        raise NoGpu(str(count), f"{len(free)} of {len(every)} GPUs are free (in use or out of order: {busy}{more})")
    return tuple(card.uuid for card in free[:count] if card.uuid)


def _all() -> tuple[GpuReading, ...]:
    with open_nvml() as nvml:
        return nvml.read(processes=True)
