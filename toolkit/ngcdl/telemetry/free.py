"""Which cards of this host nothing computes on, and no run holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ngcdl.errors import NoGpu
from ngcdl.telemetry import driver
from ngcdl.telemetry.card import GpuReading
from ngcdl.telemetry.gpu import open_nvml


def cards(count: int, unfit: Collection[str] = (), held: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Give the UUIDs of the `count` least used cards on which nothing computes, without those of `unfit` and `held`.

    `held` has the run that holds a card. Raises NoGpu, NvmlUnavailable."""
    runs = held or {}
    every = driver.within(_all)
    fit = [card for card in every if card.uuid not in unfit]
    free = sorted((card for card in fit if card.is_free and card.uuid not in runs), key=lambda card: card.use)
    if len(free) < count:
        busy = ", ".join(_said(card, runs) for card in fit if card not in free) or "none"
        can_t = ", ".join(str(card.index) for card in every if card.uuid in unfit)
        more = f"; of no use to this image: {can_t}" if can_t else ""
        raise NoGpu(str(count), f"{len(free)} of {len(every)} GPUs are free (in use or out of order: {busy}{more})")
    return tuple(card.uuid for card in free[:count] if card.uuid)


def _said(card: GpuReading, held: Mapping[str, str]) -> str:
    run = held.get(card.uuid or "")
    return f"{card.index} by {run}" if run else str(card.index)


def _all() -> tuple[GpuReading, ...]:
    with open_nvml() as nvml:
        return nvml.read(processes=True)
