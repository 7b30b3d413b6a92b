"""The thread that asks the driver: slow, hanging, failing. The driver itself is in test_apart.py."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from ngcdl.errors import NvmlUnavailable
from ngcdl.telemetry.gpu_reader import Cards, Gap, GpuReader
from ngcdl.telemetry.sample import GpuSample


class Driver:
    """Answers with the number of the question, when it may."""

    def __init__(self) -> None:
        self.may, self.asked = threading.Event(), threading.Event()
        self.may.set()
        self.questions = 0

    def connect(self) -> Callable[[], Cards]:
        self.may.wait()
        return self.read

    def read(self) -> Cards:
        self.questions += 1
        number = self.questions
        self.asked.set()
        self.may.wait()
        return (GpuSample(number),)


def until(read: Callable[[], Cards]) -> Cards:
    """Try until it gives something: at most 10 s."""
    end = time.monotonic() + 10
    while time.monotonic() < end:
        with suppress(Gap):
            return read()
    raise AssertionError("no answer in 10 s")


def test_each_reading_is_asked_for_when_it_is_wanted() -> None:
    driver = Driver()
    reader = GpuReader(driver.connect)
    assert reader.ready(10)
    assert driver.questions == 0
    assert [reader.read()[0].index for _ in range(3)] == [1, 2, 3]


def test_a_call_that_hangs_is_a_gap_until_it_returns_and_its_old_answer_is_thrown_away() -> None:
    driver = Driver()
    reader = GpuReader(driver.connect, patience_seconds=0.1)
    assert reader.ready(10)
    driver.may.clear()
    for _ in range(4):
        before = time.monotonic()
        with pytest.raises(Gap, match=r"NVML gave no answer for \d\.\d s"):
            reader.read()
        assert time.monotonic() - before < 1
    driver.may.set()
    assert until(reader.read)[0].index == 2, "what was read before the hang is not what is now"


def test_an_answer_that_is_a_little_late_is_taken() -> None:
    driver = Driver()
    reader = GpuReader(driver.connect, patience_seconds=5)
    assert reader.ready(10)
    driver.may.clear()
    reader._patience = 0.01
    with pytest.raises(Gap):
        reader.read()
    reader._patience = 5
    driver.may.set()
    assert reader.read()[0].index == 1


def test_a_driver_that_hangs_at_its_start_is_waited_for_only_so_long() -> None:
    driver = Driver()
    driver.may.clear()
    reader = GpuReader(driver.connect, patience_seconds=0.05)
    assert not reader.ready(0.05)
    with pytest.raises(Gap, match="NVML gave no answer"):
        reader.read()
    driver.may.set()
    assert reader.ready(10)
    assert reader.read()[0].index == 1


def test_a_driver_that_is_not_there_is_a_gap_with_its_words_and_is_asked_again() -> None:
    errors = [NvmlUnavailable("It is not loaded.", ""), NvmlUnavailable("It is not loaded.", "")]

    def connect() -> Callable[[], Cards]:
        if errors:
            raise errors.pop()
        return lambda: (GpuSample(7),)

    reader = GpuReader(connect)
    assert not reader.ready(10)
    with pytest.raises(Gap, match="It is not loaded"):
        reader.read()
    with pytest.raises(Gap):
        reader.read()
    assert reader.read()[0].index == 7


def test_a_reading_that_fails_is_a_gap_with_its_reason() -> None:
    reader = GpuReader(lambda: lambda: ()[1])
    with pytest.raises(Gap, match="IndexError: tuple index out of range"):
        [reader.read() for _ in range(2)]
