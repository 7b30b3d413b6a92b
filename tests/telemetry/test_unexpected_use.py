"""The watch for a run that computes on a card although it was to have none."""

from __future__ import annotations

from .stand_in import Host

LOOKS = """
import json, pynvml, threading
from ngcdl.telemetry import unexpected_use

unexpected_use.FIRST_SECONDS = unexpected_use.PAUSE_SECONDS = 0.01
begun, looked = [], threading.Semaphore(0)
begin = pynvml.nvmlInit
pynvml.nvmlInit = lambda: (begin(), begun.append(1))

def pids():
    looked.release()
    return ()

with unexpected_use.UnexpectedUse(pids, print):
    for _ in range(3):
        assert looked.acquire(timeout=20)
print(json.dumps(len(begun)))
"""


def test_it_keeps_one_connection_to_the_driver(card: Host) -> None:
    card.set(gpu1__processes="1:1000")
    assert card.ask(LOOKS) == 1
