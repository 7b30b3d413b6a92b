"""Persistence mode: does the driver stay awake between programs? Only ever a hint."""

from __future__ import annotations

from ngcdl.doctor.chain import Finding, Link, Step, ok
from ngcdl.doctor.sight import Sight

NAME = "persistence"
# https://docs.nvidia.com/deploy/driver-persistence/
_URL = "https://docs.nvidia.com/deploy/driver-persistence/"


def judge(sight: Sight) -> Finding | None:
    known = [card for card in sight.cards if card.persistence is not None]
    off = [card for card in known if card.persistence is False]
    if not known:
        return None
    if not off:
        return ok(NAME, "on")
    found = "off" if len(off) == len(known) else f"off on GPU {', '.join(str(card.index) for card in off)}"
    hint = "The first program on idle cards waits 1 to 3 s per card for the driver to wake, and clock settings are lost"
    # The same remedy if the daemon nvidia-persistenced runs: Ubuntu's unit starts it with --no-persistence-mode.
    return ok(NAME, found, hint, Step("sudo nvidia-smi -pm 1"), source=_URL)


LINKS = (Link(30, NAME, judge),)
