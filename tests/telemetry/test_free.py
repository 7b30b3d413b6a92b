"""Cards on which nothing computes are found on the stand-in library, the least used first."""

from __future__ import annotations

from .stand_in import Host

FREE = """
import json, sys
from ngcdl.errors import NoGpu
from ngcdl.telemetry import free
try:
    print(json.dumps(free.cards(int(sys.argv[1]), held=dict(zip(sys.argv[2::2], sys.argv[3::2])))))
except NoGpu as error:
    print(json.dumps(error.message))
"""


def test_the_least_used_cards_are_free_first(card: Host) -> None:
    first, second = (
        f"GPU-{tail}" for tail in ("5f1e2d3c-0a1b-4c2d-8e3f-105010501050", "6a2f3e4d-1b2c-4d3e-9f40-a100a100a100")
    )
    assert card.ask(FREE, "2") == [second, first]
    assert card.ask(FREE, "1", second, "a-run") == [first], "a run holds it"
    assert (
        card.ask(FREE, "2", second, "a-run") == "--gpus 2: 1 of 2 GPUs are free (in use or out of order: 1 by a-run)."
    )
    card.set(gpu1__processes="1:5")
    assert card.ask(FREE, "1") == [first]
    assert card.ask(FREE, "2") == "--gpus 2: 1 of 2 GPUs are free (in use or out of order: 1)."
    card.set(gpu0__processes=None, **{"fail__gpu1__DeviceGetHandleByIndex": 15})
    assert card.ask(FREE, "1") == "--gpus 1: 0 of 2 GPUs are free (in use or out of order: 0, 1)."
