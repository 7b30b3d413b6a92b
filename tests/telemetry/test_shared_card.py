"""If no card is free, the one with the most memory left is shared, and ngcdl says who uses the cards."""

from __future__ import annotations

import json
from typing import Any

from .stand_in import Host

SHARED = """
import json, sys
from dataclasses import astuple
from ngcdl.telemetry import shared_card
unfit, held, shown, in_container = json.loads(sys.argv[1])
one = shared_card.choose(unfit, held, shown, in_container=in_container)
print(json.dumps(one and astuple(one)))
"""
FIRST, SECOND = "GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050", "GPU-6a2f3e4d-1b2c-4d3e-9f40-a100a100a100"
ENDED = "4194305:5"  # a program that has ended: no PID is as high
BUSY = {"gpu0__processes": ENDED, "gpu1__processes": ENDED}


def shared(
    host: Host,
    unfit: tuple[str, ...] = (),
    held: object = None,
    shown: tuple[str, ...] | None = None,
    before: str = "",
    in_container: bool = False,
) -> Any:
    return host.ask(before + SHARED, json.dumps([unfit, held or {}, shown, in_container]))


def test_it_is_the_card_with_the_most_memory_left(card: Host) -> None:
    card.set(**BUSY)
    assert shared(card, held={SECOND: "a-run"}) == ["1", SECOND, "GPU 0: another program; GPU 1: a-run"]
    card.set(**BUSY, gpu1__memory_used=42 * 10**9)
    assert shared(card)[:2] == ["0", FIRST]


def test_a_program_that_uses_a_card_is_named_with_its_user(card: Host) -> None:
    card.set(gpu0__processes="7:5", gpu1__processes="8:5")
    names = "from ngcdl.telemetry import container, free_cards; container.name_of = lambda pid: f'program-{pid}'\n"
    names += "free_cards.processes.user = lambda pid: 'alice' if pid == 7 else None\n"
    assert shared(card, before=names)[2] == "GPU 0: program-7 of alice; GPU 1: program-8 of another user"


def test_a_desktop_that_keeps_a_card_busy_is_named(card: Host) -> None:
    card.set(gpu0__processes=ENDED, gpu1__utilization=8, gpu1__graphics_processes="9:1")
    assert shared(card) == ["1", SECOND, "GPU 0: another program; GPU 1: a desktop, 8 % busy"]


def test_a_card_that_does_not_fit_is_not_shared_and_said_so(card: Host) -> None:
    card.set(**BUSY)
    assert shared(card, unfit=(SECOND,)) == [
        "0", FIRST, "GPU 0: another program; GPU 1: of no use to this run",
    ]  # fmt: skip
    assert shared(card, shown=(FIRST,)) == [
        "0", FIRST, "GPU 0: another program; GPU 1: hidden by CUDA_VISIBLE_DEVICES",
    ]  # fmt: skip
    card.set(**BUSY, fail__gpu1__DeviceGetHandleByIndex=15)
    assert shared(card) == ["0", FIRST, "GPU 0: another program; GPU 1: out of order"]


def test_a_card_that_allows_one_program_only_is_not_shared(card: Host) -> None:
    card.set(**BUSY, gpu1__compute_mode=3)
    alone = "another program, and its compute mode allows one program only (several through MPS)"
    assert shared(card) == ["0", FIRST, f"GPU 0: another program; GPU 1: {alone}"]
    card.set(**BUSY, gpu0__compute_mode=3, gpu1__compute_mode=3)
    assert shared(card) == ["", None, f"GPU 0: {alone}; GPU 1: {alone}"]
    mps = "from ngcdl.telemetry import container; container.name_of = lambda pid: 'nvidia-cuda-mps'\n"
    assert shared(card, before=mps)[:2] == ["1", SECOND], "MPS shares it"
    alone = alone.replace("MPS)", "MPS, but not from ngcdl's containers)")
    alone = alone.replace("another program", "nvidia-cuda-mps of another user")
    assert shared(card, before=mps, in_container=True) == ["", None, f"GPU 0: {alone}; GPU 1: {alone}"]
    card.set(gpu0__processes=ENDED, gpu0__compute_mode=3, gpu1__compute_mode=3)
    assert shared(card) == ["1", SECOND, ""]
    card.set(gpu0__processes=ENDED, gpu1__compute_mode=3, gpu1__utilization=30, gpu1__graphics_processes="9:1")
    assert shared(card)[:2] == ["1", SECOND], "what only draws takes no part in it"


def test_a_card_that_is_free_by_now_is_taken_without_a_word(card: Host) -> None:
    card.set(gpu1__processes=ENDED)
    assert shared(card) == ["0", FIRST, ""]


def test_mig_devices_come_after_whole_cards(card: Host) -> None:
    mig = {"gpu1__mig": 1, "gpu1__mig0__uuid": "MIG-41b3", "gpu1__mig0__processes": ENDED}
    card.set(gpu0__processes=ENDED, **mig)
    assert shared(card)[:2] == ["0", FIRST]
    assert shared(card, unfit=(FIRST,))[:2] == ["1:0", "MIG-41b3"]
    assert shared(card, shown=("MIG-41b3",))[:2] == ["1:0", "MIG-41b3"]


def test_where_no_card_can_be_named_there_is_none(card: Host) -> None:
    card.set(gpu0__mig=1, gpu1__mig=1)
    assert shared(card) is None
