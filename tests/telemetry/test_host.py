from __future__ import annotations

import os

import pytest

from ngcdl.telemetry import host
from ngcdl.telemetry.card import Card


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
    assert machine.gpus
    assert machine.gpus[0].compute_capability == "6.1"
    assert machine.gpus[0].memory_bytes == 4 << 30
    assert machine.cores == os.cpu_count()


def test_a_record_says_how_many_processors_ngcdl_itself_may_use() -> None:
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})
    try:
        usable = host.machine().usable_cores
    finally:
        os.sched_setaffinity(0, allowed)
    assert usable is not None
    assert 0 < usable <= 1


BEFORE = """cpu  10 0 10 80 0 0 0 0 5 0
cpu0 10 0 10 30 0 0 0 0 5 0
cpu1 0 0 0 50 0 0 0 0 0 0
ctxt 7
procs_running 2
"""
AFTER = """cpu  40 0 20 120 20 0 0 0 30 0
cpu0 40 0 20 40 0 0 0 0 30 0
cpu1 0 0 0 80 20 0 0 0 0 0
ctxt 9
procs_running 5
"""


def meter(*texts: str | None) -> host.CpuMeter:
    readings = iter(texts)
    return host.CpuMeter(lambda: next(readings))


def test_the_cpu_s_use_is_what_was_not_idle_since_the_last_reading_of_all_and_of_each() -> None:
    cpu = meter(BEFORE, AFTER, AFTER)
    assert cpu.read() == host.Cpu(40.0, (80.0, 0.0), 4)
    assert cpu.read() == host.Cpu(None, None, 4), "no time has passed"


def test_what_proc_does_not_tell_is_unknown_and_comes_back() -> None:
    cpu = meter(None, None, BEFORE, AFTER)
    assert cpu.read() == host.Cpu()
    assert cpu.read() == host.Cpu(threads_running=1)
    assert cpu.read().percents == (80.0, 0.0)


def test_a_core_that_was_switched_off_leaves_each_core_s_use_unknown_for_once() -> None:
    one = "cpu  50 0 20 130 20 0 0 0 0 0\ncpu0 50 0 20 50 0 0 0 0 0 0\nprocs_running 1\n"
    cpu = meter(AFTER, one, one.replace("50 0 20", "60 0 20"))
    assert cpu.read() == host.Cpu(50.0, None, 0)
    assert cpu.read() == host.Cpu(100.0, (100.0,), 0)


def test_of_more_than_512_cores_the_first_are_measured() -> None:
    def stat(busy: int) -> str:
        return "".join(f"cpu{number} {busy} 0 0 100 0 0 0 0 0 0\n" for number in ("", *range(600)))

    percents = meter(stat(0), stat(50)).read().percents
    assert percents == (100.0,) * host.MOST_CORES


def test_this_machine_s_cores_are_measured() -> None:
    cpu = host.CpuMeter()
    reading = cpu.read()
    assert reading.threads_running is not None
    assert reading.percents is None or len(reading.percents) == os.cpu_count()


def test_the_memory_in_use_is_less_than_there_is() -> None:
    used, whole = host.memory_used_bytes(host.MEMORY.read_text()), host.machine().memory_bytes
    assert used is not None
    assert whole is not None
    assert 0 < used < whole


@pytest.mark.parametrize("text", [None, "", "MemTotal:  x kB\n", "MemTotal: 5 kB\nMemFree: 3 kB\n"])
def test_a_kernel_that_does_not_tell_what_is_available_leaves_it_unknown(text: str | None) -> None:
    assert host.memory_used_bytes(text) is None


def test_memory_in_use_is_what_is_not_available() -> None:
    text = "MemTotal:       16384 kB\nMemFree:          100 kB\nMemAvailable:    6384 kB\nBuffers: 1 kB\n"
    assert host.memory_used_bytes(text) == 10_000 * 1024
