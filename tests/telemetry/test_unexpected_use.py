"""A run that computes on a card, although it was to have none, is noticed."""

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
        assert looked.acquire(timeout=240)
print(json.dumps(len(begun)))
"""


DRAWS = """
import json, os
from ngcdl.telemetry import gpu, unexpected_use
said = []
seen = unexpected_use.UnexpectedUse(lambda: (9,), said.append)
with gpu.open_nvml() as nvml:
    seen._look(nvml)
print(json.dumps([list(seen.uuids), len(said)]))
"""


def test_a_run_that_only_draws_computes_on_no_card(card: Host) -> None:
    card.set(gpu1__graphics_processes="9:1")
    assert card.ask(DRAWS) == [[], 0]
    card.set(gpu1__processes="9:1", gpu1__graphics_processes="9:1")
    assert card.ask(DRAWS) == [["GPU-6a2f3e4d-1b2c-4d3e-9f40-a100a100a100"], 1]


def test_it_keeps_one_connection_to_the_driver(card: Host) -> None:
    card.set(gpu1__processes="1:1000")
    assert card.ask(LOOKS) == 1
