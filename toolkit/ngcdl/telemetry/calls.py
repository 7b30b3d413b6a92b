"""NVML's calls for what a card does now, prepared once (function, arguments, the buffer of the answer), and calls whose
form depends on the driver.

The binding's own functions rebuild all of these on every call, which costs more than most of the calls themselves.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from struct import Struct
from typing import Any

from ngcdl.telemetry import bounds, driver

SM_CLOCK, MEMORY_CLOCK = 1, 2  # NVML_CLOCK_SM, NVML_CLOCK_MEM


@dataclass(frozen=True, slots=True)
class Call:
    """`name` is NVML's name without the prefix nvml. function(card, *arguments) returns a code; read() then returns the
    numbers."""

    name: str
    function: Any
    arguments: tuple[Any, ...]
    read: Callable[[], tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Question:
    """`ways` are the calls that answer it, newest first: if one fails, the next is used. `most` has the maximum of each
    number in the answer."""

    ways: list[Call]
    most: tuple[int, ...]


def questions(binding: Any) -> dict[str, Question]:
    """Prepare the queries of every card, by the unit of the answer; memory is total and used bytes, percents are use
    and memory traffic. All cards share the same calls: a small working set stays in the CPU's cache."""

    def call(name: str, answer: Any, layout: str, *kind: int) -> Call:
        """Prepare a call; `layout` has padding for fields of no interest."""
        arguments = (*map(ctypes.c_uint, kind), ctypes.byref(answer))
        return Call(name, function(binding, name), arguments, partial(Struct(layout).unpack_from, answer))

    def number(name: str, *kind: int) -> Call:
        return call(name, ctypes.c_uint(), "I", *kind)

    def long(name: str) -> Call:
        return call(name, ctypes.c_ulonglong(), "Q")

    percents = call("DeviceGetUtilizationRates", binding.c_nvmlUtilization_t(), "II")
    temperature = [*(call(*one) for one in _temperature(binding)), number("DeviceGetTemperature", 0)]
    # The second name is the older one: https://docs.nvidia.com/deploy/nvml-api/api/deprecated.html
    why = [long("DeviceGetCurrentClocksEventReasons"), long("DeviceGetCurrentClocksThrottleReasons")]
    return {
        "memory": Question([call(*one) for one in _memory(binding)], (bounds.BYTES, bounds.BYTES)),
        "percents": Question([percents], (bounds.PERCENT, bounds.PERCENT)),
        "milliwatts": Question([number("DeviceGetPowerUsage")], (bounds.MILLIWATTS,)),
        "millijoules": Question([long("DeviceGetTotalEnergyConsumption")], (bounds.MILLIJOULES,)),
        "celsius": Question(temperature, (bounds.CELSIUS,)),
        "sm_mhz": Question([number("DeviceGetClockInfo", SM_CLOCK)], (bounds.MHZ,)),
        "memory_mhz": Question([number("DeviceGetClockInfo", MEMORY_CLOCK)], (bounds.MHZ,)),
        "reasons": Question(why, (bounds.REASONS,)),
    }


def _memory(binding: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield calls for memory. Version 2, since driver 510, leaves out what the driver reserves, as nvidia-smi does."""
    if version := getattr(binding, "nvmlMemory_v2", None):
        yield "DeviceGetMemoryInfo_v2", binding.c_nvmlMemory_v2_t(version=version), "8xQ16xQ"
    yield "DeviceGetMemoryInfo", binding.c_nvmlMemory_t(), "Q8xQ"


def _temperature(binding: Any) -> Iterator[tuple[str, Any, str]]:
    if version := getattr(binding, "nvmlTemperature_v1", None):
        yield "DeviceGetTemperatureV", binding.c_nvmlTemperature_v1_t(version=version), "8xi"


def has_wide_records(binding: Any) -> bool:
    """Return whether version 3 of this driver's lists of processes has records of 32 bytes. The records of version 2,
    of other drivers and of the binding have 24 bytes. This holds for drivers 535.43 to 535.86, recognised by the calls
    that they have, because WSL shows Windows' driver numbers:
    https://github.com/XuehaiPan/nvitop/blob/main/nvitop/api/libnvml.py"""
    return _has(binding, "DeviceGetConfComputeMemSizeInfo") and not _has(binding, "DeviceGetRunningProcessDetailList")


def fabric(binding: Any, card: Any) -> str | None:
    """Return how far the fabric manager has set up a card: not started, in progress, failed or completed. Until this is
    completed, CUDA fails with error 802 on servers with NVSwitches. None on other servers, or if the driver doesn't
    tell:
    https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide/
    https://docs.nvidia.com/deploy/nvml-api/group__nvmlFabricDefs.html"""
    for name, record in _FABRIC:
        if (made := getattr(binding, record, None)) is None:  # bindings before NVML 13 lack the newest
            continue
        info = made()
        if function(binding, name)(card, ctypes.byref(info)) == 0:
            state = {1: "not started", 2: "in progress", 3: "completed"}.get(info.state & 0xFF)  # NVML's has one byte
            return "failed" if state == "completed" and info.status else state
    return None


# The newer call first, each with the binding's record of its answer. NVML will drop the second one:
# https://github.com/NVIDIA/go-nvml/blob/main/gen/nvml/nvml.h
_FABRIC = (
    ("DeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v3_t"),
    ("DeviceGetGpuFabricInfoV", "c_nvmlGpuFabricInfo_v2_t"),
    ("DeviceGetGpuFabricInfo", "c_nvmlGpuFabricInfo_t"),
)


def _has(binding: Any, name: str) -> bool:
    try:
        binding._nvmlGetFunctionPointer(f"nvml{name}")
    except binding.NVMLError:
        return False
    return True


def function(binding: Any, name: str) -> Any:
    """Return the library's function; one that only returns FUNCTION_NOT_FOUND if this driver has none."""
    try:
        return binding._nvmlGetFunctionPointer(f"nvml{name}")
    except binding.NVMLError as error:
        code = error.value
        if code != driver.FUNCTION_NOT_FOUND:
            raise
        return lambda *_: code
