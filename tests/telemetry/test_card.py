"""A card is free if nothing computes on it, as far as can be known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ngcdl.telemetry.card import GpuProcess, GpuReading, compute_devices

GIB = 1 << 30


def reading(percent: int | None, used: int | None, processes: tuple[GpuProcess, ...] | None = None) -> GpuReading:
    return GpuReading(
        0, "GPU-x", memory_total_bytes=16 * GIB, memory_used_bytes=used, gpu_percent=percent, processes=processes
    )


@pytest.mark.parametrize(
    ("percent", "used", "is_free"),
    [
        (3, 15 * GIB, True),
        (60, 0, False),
        (None, 15 * GIB, False),
        (None, GIB // 2, True),
        (None, None, True),
    ],
)
def test_without_a_list_of_processes_its_use_decides_and_without_that_its_memory(
    percent: int | None, used: int | None, is_free: bool
) -> None:
    assert reading(percent, used).is_free is is_free


def test_a_list_of_processes_decides_alone() -> None:
    assert reading(None, 15 * GIB, ()).is_free
    assert not reading(None, None, (GpuProcess(1),)).is_free


def test_if_only_a_desktop_s_programs_compute_the_card_s_use_decides() -> None:
    desktop = GpuProcess(1, draws=True), GpuProcess(2, draws=True)
    assert reading(5, 15 * GIB, desktop).is_free
    assert not reading(60, 0, desktop).is_free
    assert not reading(0, 0, (*desktop, GpuProcess(3))).is_free


def test_a_card_that_only_draws_is_free_while_nearly_idle() -> None:
    game = (GpuProcess(1, draws=True, computes=False),)
    assert reading(3, 0, game).is_free
    assert not reading(97, 0, game).is_free


def test_an_mps_server_that_is_left_over_uses_nothing_itself() -> None:
    server = GpuProcess(1, name="nvidia-cuda-mps")  # as Linux cuts nvidia-cuda-mps-server
    assert reading(0, GIB, (server,)).is_free
    assert not reading(60, GIB, (server,)).is_free, "somebody computes through it"
    assert not reading(0, GIB, (server, GpuProcess(2, name="python3"))).is_free


def test_a_card_of_one_program_only_is_not_free_while_any_holds_it() -> None:
    server, screen = GpuProcess(1, name="nvidia-cuda-mps"), GpuProcess(2, draws=True, computes=False)
    for holder, is_free in (server, False), (GpuProcess(3, draws=True), False), (screen, True):
        assert replace(reading(0, 0, (holder,)), compute_mode="Exclusive_Process").is_free is is_free


def test_on_a_prohibited_card_nothing_computes() -> None:
    card = reading(0, 0)
    assert compute_devices([card]) == {"0": card}
    assert compute_devices([replace(card, compute_mode="Prohibited")]) == {}
