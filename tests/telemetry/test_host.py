from __future__ import annotations

import os
from collections import namedtuple

from ngcdl.telemetry import host
from ngcdl.telemetry.card import Card

Times = namedtuple("Times", "user nice system idle iowait guest")


def test_this_machine_says_what_it_is() -> None:
    facts = host.machine()
    assert facts.hostname
    assert facts.kernel
    assert facts.cores
    assert facts.memory_bytes
    assert facts.cpu


def test_a_record_gets_the_machine_with_its_cards() -> None:
    machine = host.machine("535.104.05", [Card(0, "GPU-1", "A card", "6.1", 4 << 30)])
    assert machine.driver == "535.104.05"
    assert machine.gpus[0].compute_capability == "6.1"
    assert machine.gpus[0].memory_bytes == 4 << 30
    assert machine.cores == os.cpu_count()


def test_the_cpu_s_use_is_what_was_not_idle_since_the_last_reading() -> None:
    readings = iter([Times(10, 0, 10, 80, 0, 5), Times(40, 0, 20, 120, 20, 30), Times(40, 0, 20, 120, 20, 30)])
    meter = host.CpuMeter(lambda: next(readings))
    assert meter.percent() == 40.0
    assert meter.percent() is None


def test_the_memory_in_use_is_less_than_there_is() -> None:
    used, whole = host.memory_bytes(), host.machine().memory_bytes
    assert used is not None
    assert whole is not None
    assert 0 < used < whole
