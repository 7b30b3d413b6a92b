"""Who waits for cards looks again and again, also on a driver that is slow once, or reloaded, and disturbs nobody."""

from __future__ import annotations

import json
from typing import Any

from .stand_in import Host

BUSY = {"gpu0.processes": "1:1000", "gpu1.processes": "1:1000"}
ASLEEP, AWAKE = {"gpu0.persistence": 0}, {"gpu0.persistence": 1}  # the other card has persistence mode
NOT_LOADED = {"fail.Init": 9}
SLOW = {"hang.Init": 1}
LOST = {"fail.gpu1.DeviceGetHandleByIndex": 15}
# Looks once in each state of `steps`, `seconds` after the look before, and prints after each look what it found (None
# if it raised), and how many connections to the driver are open then.
LOOKS = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import pynvml
from ngcdl.errors import NvmlUnavailable
from ngcdl.telemetry import driver
from ngcdl.telemetry.looks import Looks
from telemetry.stand_in import write_state

state, steps, seconds = Path(os.environ["NGCDL_NVML_STATE"]), json.loads(sys.argv[2]), float(sys.argv[3])
driver.patience_seconds = lambda: 1.0 if "hang" in state.read_text() else 60.0
connections, now, said, found = [0], [0.0], [], []
begin, end = pynvml.nvmlInit, pynvml.nvmlShutdown

def nvmlInit():
    begin()
    connections[0] += 1

def nvmlShutdown():
    end()
    connections[0] -= 1

pynvml.nvmlInit, pynvml.nvmlShutdown = nvmlInit, nvmlShutdown
looks = Looks(said.append, lambda: now[0])
cards = [row.split("=")[1] for row in state.read_text().splitlines() if ".uuid=" in row and row.startswith("gpu")][:2]
for changes in steps:
    write_state(state, changes)
    try:
        look = looks.look(cards, {}, lambda _: None)
        what = [len(look.free), look.users.startswith("the driver gives no answer")]
    except NvmlUnavailable as error:
        what = type(error).__name__
    found.append([what, connections[0]])
    now[0] += seconds
looks.close()
print(json.dumps({"found": found, "said": said, "left": connections[0]}))
"""
USED, FREE, SILENT = [0, False], [2, False], [0, True]


def looked(host: Host, *steps: dict[str, Any], seconds: float = 3.0) -> Any:
    tests = str(__file__).rsplit("/", 2)[0]
    return host.ask(
        f"import warnings; warnings.simplefilter('ignore')\n{LOOKS}", tests, json.dumps(steps), str(seconds)
    )


def test_while_the_driver_is_reloaded_nothing_is_free_and_it_is_said_once(card: Host) -> None:
    idle = {"gpu0.utilization": 0}
    it = looked(card, BUSY, *[BUSY | NOT_LOADED] * 3, BUSY, BUSY | NOT_LOADED, idle)
    assert [what for what, _ in it["found"]] == [USED, *[SILENT] * 3, USED, SILENT, FREE]
    assert it["said"] == ["The NVIDIA driver is installed but not loaded. Looking again, for 5 min"]


def test_a_driver_that_is_slow_once_is_asked_again(card: Host) -> None:
    it = looked(card, BUSY, BUSY | SLOW, BUSY)
    assert [what for what, _ in it["found"]] == [USED, SILENT, USED]
    assert it["said"] == ["The NVIDIA driver gave no answer within 1 s. Looking again, for 5 min"]


def test_looks_that_fail_for_five_minutes_in_a_row_are_an_error(card: Host) -> None:
    it = looked(card, BUSY, *[BUSY | NOT_LOADED] * 4, seconds=100.0)
    assert [what for what, _ in it["found"]] == [USED, *[SILENT] * 3, "NvmlUnavailable"]
    failing, well = BUSY | NOT_LOADED, BUSY
    it = looked(card, *[failing] * 3, well, *[failing] * 3, seconds=100.0)
    assert [what for what, _ in it["found"]] == [*[SILENT] * 3, USED, *[SILENT] * 3], "not in a row"


def test_cards_that_would_sleep_are_kept_awake_between_two_looks(card: Host) -> None:
    it = looked(card, BUSY | ASLEEP, BUSY | ASLEEP)
    assert (it["found"], it["left"]) == ([[USED, 1]] * 2, 0)


def test_where_every_card_has_persistence_mode_nobody_is_kept_from_unloading_the_driver(card: Host) -> None:
    it = looked(card, BUSY | AWAKE, BUSY | AWAKE)
    assert it["found"] == [[USED, 0]] * 2


def test_after_a_failed_look_the_driver_is_let_go_until_it_answers_again(card: Host) -> None:
    sleepy = BUSY | ASLEEP
    it = looked(card, sleepy, sleepy | NOT_LOADED, sleepy, sleepy)
    assert it["found"] == [[USED, 1], [SILENT, 0], [USED, 0], [USED, 1]]


def test_while_a_card_is_out_of_order_it_can_be_reset_and_is_seen_when_it_is_back(card: Host) -> None:
    sleepy = BUSY | ASLEEP
    it = looked(card, sleepy, sleepy | LOST, sleepy | LOST, {"gpu0.utilization": 0} | ASLEEP, sleepy)
    assert it["found"] == [[USED, 1], [USED, 0], [USED, 0], [FREE, 0], [USED, 1]]
