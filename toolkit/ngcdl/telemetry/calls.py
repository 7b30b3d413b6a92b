"""The calls of NVML that say what a card does now, made ready once: the function, its arguments, its answer's place.

The binding's own functions make all of them anew whenever they are called, which costs more than most of the calls do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any

from ngcdl.telemetry import driver

_SM_CLOCK, _MEMORY_CLOCK = 1, 2  # NVML_CLOCK_SM, NVML_CLOCK_MEM


@dataclass(frozen=True, slots=True)
class Call:
    """`name` is NVML's, without nvml. function(card, *arguments) gives a code; read() then gives the numbers."""

    name: str
    function: Any
    arguments: tuple[Any, ...]
    read: Callable[[], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Question:
    """`ways` are the calls that answer it, the newest first: a driver without one is asked by the next."""

    ways: list[Call]
    numbers: int = 1  # which an answer has


def questions(binding: Any) -> dict[str, Question]:
    """Make ready what every card is asked, by the unit of the answer; memory is bytes in all and in use, percents are
    of use and of memory traffic. All cards are asked by the same calls: what is small is sooner in the cache."""

    def call(name: str, answer: Any, layout: str, *kind: int) -> Call:
        """`layout` has padding where what is written is of no interest."""
        arguments = (*map(ctypes.c_uint, kind), ctypes.byref(answer))
        return Call(name, _function(binding, name), arguments, partial(Struct(layout).unpack_from, answer))

    def number(name: str, *kind: int) -> Call:
        return call(name, ctypes.c_uint(), "I", *kind)

    def long(name: str) -> Call:
        return call(name, ctypes.c_ulonglong(), "Q")

    percents = call("DeviceGetUtilizationRates", binding.c_nvmlUtilization_t(), "II")
    temperature = [*(call(*one) for one in _temperature(binding)), number("DeviceGetTemperature", 0)]
    # The second name is the older one: https://docs.nvidia.com/deploy/nvml-api/api/deprecated.html
    why = [long("DeviceGetCurrentClocksEventReasons"), long("DeviceGetCurrentClocksThrottleReasons")]
    return {
        "memory": Question([call(*one) for one in _memory(binding)], 2),
        "percents": Question([percents], 2),
        "milliwatts": Question([number("DeviceGetPowerUsage")]),
        "millijoules": Question([long("DeviceGetTotalEnergyConsumption")]),
        "celsius": Question(temperature),
        "sm_mhz": Question([number("DeviceGetClockInfo", _SM_CLOCK)]),
        "memory_mhz": Question([number("DeviceGetClockInfo", _MEMORY_CLOCK)]),
        "reasons": Question(why),
    }


def _memory(binding: Any) -> Iterator[tuple[str, Any, str]]:
    """Version 2, since driver 510, leaves out what the driver itself reserves, as nvidia-smi does."""
    if version := getattr(binding, "nvmlMemory_v2", None):
        yield "DeviceGetMemoryInfo_v2", binding.c_nvmlMemory_v2_t(version=version), "8xQ16xQ"
    yield "DeviceGetMemoryInfo", binding.c_nvmlMemory_t(), "Q8xQ"


def _temperature(binding: Any) -> Iterator[tuple[str, Any, str]]:
    if version := getattr(binding, "nvmlTemperature_v1", None):
        yield "DeviceGetTemperatureV", binding.c_nvmlTemperature_v1_t(version=version), "8xi"


def _function(binding: Any, name: str) -> Any:
    try:
        return binding._nvmlGetFunctionPointer(f"nvml{name}")
    except binding.NVMLError as error:
        code = error.value
        if code != driver.FUNCTION_NOT_FOUND:
            raise
        return lambda *_: code
