"""Idle cards are found through the stand-in library, the least used first."""

from __future__ import annotations

import pytest

from ngcdl.telemetry import free_cards
from ngcdl.telemetry.card import Card

from .stand_in import Host

FREE = """
import json, os, re, sys
from pathlib import Path
from ngcdl.errors import NoGpu
from ngcdl.telemetry import free_cards, gpu
state, later = Path(os.environ["NGCDL_NVML_STATE"]), os.environ.get("LATER_PERCENTS", "").split()
def sleep(seconds):
    assert seconds == 0.5
    if later:
        state.write_text(re.sub("gpu1.utilization=.*", f"gpu1.utilization={later.pop(0)}", state.read_text()))
try:
    shown = free_cards.visible_to_cuda(gpu.probe().cards, os.environ)
    found = free_cards.choose(int(sys.argv[1]), (), dict(zip(sys.argv[2::2], sys.argv[3::2])), shown, sleep)
    print(json.dumps([list(found.uuids), found.rule] if os.environ.get("RULE") else found.uuids))
except NoGpu as error:
    print(json.dumps(error.message))
"""
CARDS = (Card(0, "GPU-5f1e"), Card(1, "GPU-6a2f"), Card(2, "GPU-6b00"), Card(3, None))


def test_the_least_used_cards_are_free_first(card: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(free_cards.VARIABLE, raising=False)
    first, second = (
        f"GPU-{tail}" for tail in ("5f1e2d3c-0a1b-4c2d-8e3f-105010501050", "6a2f3e4d-1b2c-4d3e-9f40-a100a100a100")
    )
    assert card.ask(FREE, "2") == [second, first]
    assert card.ask(FREE, "9") == "--gpus 9: this host has only 2."
    assert card.ask(FREE, "1", second, "a-run") == [first], "a run holds it"
    held = card.ask(FREE, "2", second, "a-run")
    assert held == "--gpus 2: 1 of 2 GPUs are free (in use or out of order: GPU 1 by a-run)."
    card.set(gpu1__processes="1:5")
    assert card.ask(FREE, "1") == [first]
    assert card.ask(FREE, "2") == "--gpus 2: 1 of 2 GPUs are free (in use or out of order: GPU 1)."
    card.set(gpu0__processes=None, **{"fail__gpu1__DeviceGetHandleByIndex": 15})
    assert card.ask(FREE, "1") == "--gpus 1: 0 of 2 GPUs are free (in use or out of order: GPU 0 (87 % busy), 1)."


def test_a_stronger_card_with_a_desktop_on_it_comes_before_an_idle_weak_one(
    card: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(free_cards.VARIABLE, raising=False)
    weak, strong = "GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050", "GPU-6a2f3e4d-1b2c-4d3e-9f40-a100a100a100"
    used = {"gpu0__utilization": 0, "gpu0__memory_used": 0, "gpu1__utilization": 3, "gpu1__memory_used": 700 << 20}
    card.set(**used)
    assert card.ask(FREE, "2") == [strong, weak]
    card.set(**used, gpu0__cc="8.0", gpu0__memory_total=40 << 30, gpu1__memory_total=40 << 30)
    assert card.ask(FREE, "2") == [weak, strong], "of equal ones the least used"
    card.set(**used, gpu0__cc="8.6", gpu0__memory_total=4 << 30)
    assert card.ask(FREE, "2") == [strong, weak], "a display card of a newer generation"
    card.set(**used, gpu0__cc="8.9", gpu0__memory_total=24 << 30)
    assert card.ask(FREE, "2") == [weak, strong], "which is the stronger one then"
    card.set(**used, gpu0__cc="8.6", gpu0__memory_total=10 << 30, gpu1__cc="5.2", gpu1__memory_total=24 << 30)
    assert card.ask(FREE, "2") == [weak, strong], "an old card's memory makes a newer one no display card"


def test_how_free_cards_were_chosen_is_said_where_other_models_were_left_out(
    card: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(free_cards.VARIABLE, raising=False)
    monkeypatch.setenv("RULE", "yes")
    first, second = "GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050", "GPU-6a2f3e4d-1b2c-4d3e-9f40-a100a100a100"
    rule = "of several free cards the newest with enough memory"
    assert card.ask(FREE, "1") == [[second], rule]
    assert card.ask(FREE, "2") == [[second, first], ""]
    assert card.ask(FREE, "1", second, "a-run") == [[first], ""], "the only free one"
    card.set(gpu0__name="NVIDIA A100-SXM4-40GB")
    assert card.ask(FREE, "1") == [[second], ""]
    monkeypatch.setenv(free_cards.VARIABLE, first)
    card.set()
    assert card.ask(FREE, "1") == [[first], ""], "the variable leaves no other"
    card.set(**MIG)
    monkeypatch.setenv(free_cards.VARIABLE, f"MIG-41b3,{first}")
    assert card.ask(FREE, "1") == [["MIG-41b3"], ""], "it names this one first"


def test_a_card_with_a_game_on_it_is_not_free(card: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(free_cards.VARIABLE, raising=False)
    weak, strong = "GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050", "GPU-6a2f3e4d-1b2c-4d3e-9f40-a100a100a100"
    card.set(gpu1__utilization=97, gpu1__graphics_processes="9:1")
    assert card.ask(FREE, "1") == [weak]
    card.set(gpu1__utilization=3, gpu1__graphics_processes="9:1")
    assert card.ask(FREE, "1") == [strong], "a desktop"


@pytest.mark.parametrize(("later", "is_free"), [("7 4", True), ("3", True), ("7 6", False), ("6 49", False)])
def test_a_desktop_that_is_busy_for_a_moment_leaves_its_card_free(
    card: Host, monkeypatch: pytest.MonkeyPatch, later: str, is_free: bool
) -> None:
    monkeypatch.delenv(free_cards.VARIABLE, raising=False)
    monkeypatch.setenv("LATER_PERCENTS", later)
    card.set(gpu0__processes="7:5", gpu1__utilization=49, gpu1__graphics_processes="9:1")
    busy = "--gpus 1: 0 of 2 GPUs are free (in use or out of order: GPU 0, 1 (a desktop, 6 % busy))."
    assert card.ask(FREE, "1") == (["GPU-6a2f3e4d-1b2c-4d3e-9f40-a100a100a100"] if is_free else busy)


def test_how_busy_a_card_is_that_has_no_list_of_processes_is_said(card: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(free_cards.VARIABLE, raising=False)
    card.set(gpu0__processes="7:5", gpu1__utilization=60, gpu1__processes=None)
    assert card.ask(FREE, "1") == "--gpus 1: 0 of 2 GPUs are free (in use or out of order: GPU 0, 1 (60 % busy))."


def test_a_prohibited_card_is_no_gpu_and_it_is_said_how_to_change_it(
    card: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(free_cards.VARIABLE, raising=False)
    card.set(gpu0__compute_mode=3, gpu1__compute_mode=2)
    assert card.ask(FREE, "1") == ["GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050"]
    assert card.ask(FREE, "2") == (
        "--gpus 2: 1 of 1 GPUs are free (compute mode Prohibited, which sudo nvidia-smi -i INDEX -c 0 ends: GPU 1)."
    )


MIG = {
    "gpu1__mig": 1,
    "fail__gpu1__DeviceGetMemoryInfo": 4,
    "gpu1__mig0__uuid": "MIG-41b3",
    "gpu1__mig0__processes": "",
    "gpu1__mig3__uuid": "MIG-6f20",
    "gpu1__mig3__processes": "7:5",
}


def test_of_a_card_with_mig_on_its_mig_devices_are_free_and_after_whole_cards(
    card: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(free_cards.VARIABLE, raising=False)
    card.set(**MIG)
    whole = "GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050"
    assert card.ask(FREE, "2") == [whole, "MIG-41b3"]
    assert card.ask(FREE, "3") == "--gpus 3: 2 of 3 GPUs are free (in use or out of order: GPU 1:3)."
    assert card.ask(FREE, "2", "MIG-41b3", "a-run") == (
        "--gpus 2: 1 of 3 GPUs are free (in use or out of order: GPU 1:0 by a-run, 1:3)."
    )
    monkeypatch.setenv(free_cards.VARIABLE, f"{whole},MIG-41b3")
    assert card.ask(FREE, "2") == ["MIG-41b3", whole]


def test_a_card_with_mig_on_and_no_mig_device_is_no_gpu_and_it_is_said_why(
    card: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(free_cards.VARIABLE, raising=False)
    card.set(gpu1__mig=1)
    assert card.ask(FREE, "2") == (
        "--gpus 2: 1 of 1 GPUs are free (MIG is on, and nvidia-smi -L shows this user no MIG device to name: GPU 1)."
    )


@pytest.mark.parametrize(
    ("said", "left"),
    [
        (None, None),
        ("", ()),
        ("-1", ()),
        ("NoDevFiles", ()),
        ("1", ("GPU-6a2f",)),
        ("2,0", ("GPU-6b00", "GPU-5f1e")),
        ("0,-1,1", ("GPU-5f1e",)),
        ("0, 7, 1", ("GPU-5f1e",)),
        ("GPU-6a2f,0", ("GPU-6a2f", "GPU-5f1e")),
        ("GPU-5", ("GPU-5f1e",)),
        ("GPU-6", ()),
        ("3", ()),
        ("MIG-GPU-5f1e/1/0,1", ("MIG-GPU-5f1e/1/0", "GPU-6a2f")),
    ],
)
def test_the_caller_s_variable_is_read_as_cuda_reads_it(said: str | None, left: tuple[str, ...] | None) -> None:
    assert free_cards.visible_to_cuda(CARDS, {} if said is None else {free_cards.VARIABLE: said}) == left


def test_only_what_the_caller_s_variable_leaves_is_chosen(card: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(free_cards.VARIABLE, "0,1")
    second, first = card.ask(FREE, "2")
    monkeypatch.setenv(free_cards.VARIABLE, "0")
    assert card.ask(FREE, "1") == [first], "the other one is used less"
    assert card.ask(FREE, "2") == (f"--gpus 2: 1 of 2 GPUs are free (hidden by {free_cards.VARIABLE}: GPU 1).")
    monkeypatch.setenv(free_cards.VARIABLE, f"MIG-x,{second}")
    assert card.ask(FREE, "2") == ["MIG-x", second]
    assert card.ask(FREE, "1", "MIG-x", "a-run") == [second]
