"""A card is free if nothing computes on it, as far as can be known."""

from __future__ import annotations

import pytest

from ngcdl.telemetry.card import GpuProcess, GpuReading

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
