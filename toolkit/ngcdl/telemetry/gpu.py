"""What the NVIDIA driver says about the GPUs of this host, through NVML. The only module that imports pynvml.

A reading that the driver does not give is None, never 0. One that fails is None too, and the row's `error` says why:
a lost card is a row, not a crash, and is not asked again.
"""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ngcdl.errors import NvmlUnavailable
from ngcdl.telemetry import bounds, container, driver
from ngcdl.telemetry.card import Card, Driver, GpuProcess, GpuReading, Probe, reasons

__all__ = ["Card", "Driver", "GpuProcess", "GpuReading", "Nvml", "Probe", "connect", "open_nvml", "probe"]

log = logging.getLogger(__name__)

# The binding has no type annotations.
Binding = Any
Handle = Any

_SM_CLOCK, _MEMORY_CLOCK = 1, 2  # NVML_CLOCK_SM, NVML_CLOCK_MEM


class _Gone(Exception):
    """The card can't be read at all; the text says why."""


@dataclass
class _Row:
    """One card (or the driver: no handle) being asked. `trouble`: what failed, by code, and the first call it met."""

    which: int | str | None = None
    handle: Handle = None
    trouble: dict[int, str] = field(default_factory=dict)

    @property
    def error(self) -> str | None:
        return "; ".join(f"{call}: {driver.words(code)}" for code, call in self.trouble.items()) or None


class Nvml:
    """An open connection to the driver; connect() makes it. `dropped` counts values that can't be true."""

    def __init__(self, binding: Binding) -> None:
        self._n = binding
        self._rows: dict[int | str, tuple[Handle, Card]] = {}
        self._lost: dict[int | str, str] = {}
        self._missing: set[str] = set()
        self._calls: dict[str, Callable[..., Any]] = {}  # those that were found
        self._memory_version: int | None = getattr(binding, "nvmlMemory_v2", None)
        self._bounds = bounds.Bounds()

    @property
    def dropped(self) -> int:
        return self._bounds.dropped

    def close(self) -> None:
        with suppress(self._n.NVMLError):
            self._n.nvmlShutdown()

    def driver(self) -> Driver:
        row = _Row()
        cuda = self._first(row, ("SystemGetCudaDriverVersion_v2", "SystemGetCudaDriverVersion"))
        found = Driver(
            self._ask(row, "SystemGetDriverVersion"),
            self._ask(row, "SystemGetNVMLVersion"),
            f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        )
        if row.error:
            log.warning("the driver does not say its versions: %s", row.error)
        return found

    def count(self) -> int:
        """Count the cards. Raises NvmlUnavailable where the driver can't say."""
        try:
            return int(self._n.nvmlDeviceGetCount())
        except self._n.NVMLError as error:
            raise driver.unavailable(error.value) from error

    def inventory(self) -> tuple[Card, ...]:
        """Say what each card is. Raises NvmlUnavailable as count() does."""
        return tuple(self._card(index) for index in range(self.count()))

    def read(
        self, which: int | Sequence[int | str] | None = None, processes: bool = False, limits: bool = True
    ) -> tuple[GpuReading, ...]:
        """Read one card, those named by index or UUID, or all (which then raises NvmlUnavailable as count() does).

        Who runs on it is asked with `processes`, watts_limit and sm_mhz_max with `limits`."""
        wanted = range(self.count()) if which is None else (which,) if isinstance(which, int) else which
        return tuple(self._reading(one, processes, limits) for one in wanted)

    def _reading(self, which: int | str, processes: bool, limits: bool) -> GpuReading:
        card, values, error = self._card(which), {}, None
        try:
            row = self._open(which)
            asked = self._values(row) | (self._limits(row) if limits else {})
            values = asked | {"processes": self._processes(row) if processes else None}
            error = row.error
        except _Gone as gone:
            error = str(gone)
        return GpuReading(
            index=card.index,
            uuid=card.uuid,
            name=card.name,
            compute_capability=card.compute_capability,
            error=error or card.error,
            **({"memory_total_bytes": card.memory_total_bytes} | values),
        )

    def _limits(self, row: _Row) -> dict[str, Any]:
        watts = self._ask(row, "DeviceGetEnforcedPowerLimit")
        clock = self._ask(row, "DeviceGetMaxClockInfo", _SM_CLOCK)
        return {
            "watts_limit": self._bounds.thousandths(watts, bounds.MILLIWATTS),
            "sm_mhz_max": self._bounds.within(clock, bounds.MHZ),
        }

    def _values(self, row: _Row) -> dict[str, Any]:
        within, thousandths = self._bounds.within, self._bounds.thousandths
        total, used = self._memory(row)
        percents = self._ask(row, "DeviceGetUtilizationRates")
        temperature = self._first(row, ("DeviceGetTemperatureV", "DeviceGetTemperature"), 0)
        return {
            "memory_total_bytes": total,
            "memory_used_bytes": used,
            "gpu_percent": within(percents.gpu, bounds.PERCENT) if percents else None,
            "memory_percent": within(percents.memory, bounds.PERCENT) if percents else None,
            "watts": thousandths(self._ask(row, "DeviceGetPowerUsage"), bounds.MILLIWATTS),
            "energy_joules": thousandths(self._ask(row, "DeviceGetTotalEnergyConsumption"), bounds.MILLIJOULES),
            "celsius": within(temperature, bounds.CELSIUS),
            "sm_mhz": within(self._ask(row, "DeviceGetClockInfo", _SM_CLOCK), bounds.MHZ),
            "memory_mhz": within(self._ask(row, "DeviceGetClockInfo", _MEMORY_CLOCK), bounds.MHZ),
            "throttle_reasons": self._throttle_reasons(row),
        }

    def _throttle_reasons(self, row: _Row) -> tuple[str, ...] | None:
        # The second name is the older one: https://docs.nvidia.com/deploy/nvml-api/api/deprecated.html
        calls = ("DeviceGetCurrentClocksEventReasons", "DeviceGetCurrentClocksThrottleReasons")
        mask = self._bounds.within(self._first(row, calls), bounds.REASONS)
        return None if mask is None else reasons(mask)

    def _card(self, which: int | str) -> Card:
        """Say what a card is; asked once, or until nothing fails."""
        if which in self._rows and self._rows[which][1].error is None:
            return self._rows[which][1]
        index, uuid = (which, None) if isinstance(which, int) else (None, which)
        try:
            row = self._open(which)
            card = self._described(row, index, uuid)
            self._rows[which] = row.handle, card
        except _Gone as gone:
            known = self._rows[which][1] if which in self._rows else Card(index, uuid)
            card = replace(known, error=str(gone))
        return card

    def _described(self, row: _Row, index: int | None, uuid: str | None) -> Card:
        capability = self._ask(row, "DeviceGetCudaComputeCapability")
        mig = self._ask(row, "DeviceGetMigMode")
        persistence = self._ask(row, "DeviceGetPersistenceMode")
        card = Card(
            index=self._ask(row, "DeviceGetIndex") if index is None else index,
            uuid=uuid or self._ask(row, "DeviceGetUUID"),
            name=self._ask(row, "DeviceGetName"),
            compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
            memory_total_bytes=self._memory(row)[0],
            brand=self._ask(row, "DeviceGetBrand"),
            mig=bool(mig[0]) if mig else None,
            persistence=None if persistence is None else bool(persistence),
        )
        return replace(card, error=row.error)

    def _memory(self, row: _Row) -> tuple[int | None, int | None]:
        """Give total and used bytes. Version 2 leaves out what the driver itself reserves, as nvidia-smi does."""
        memory = self._ask(row, "DeviceGetMemoryInfo", self._memory_version)
        if self._memory_version and "DeviceGetMemoryInfo" in self._missing:  # before driver 510
            self._memory_version = None
            self._missing.discard("DeviceGetMemoryInfo")
            memory = self._ask(row, "DeviceGetMemoryInfo")
        if memory is None:
            return None, None
        total = self._bounds.within(memory.total, bounds.BYTES) or None
        return total, self._bounds.within(memory.used, total or bounds.BYTES)

    def _processes(self, row: _Row) -> tuple[GpuProcess, ...] | None:
        calls = ("DeviceGetComputeRunningProcesses_v3", "DeviceGetComputeRunningProcesses_v2")
        found = self._first(row, calls)
        if found is None:
            return None
        return tuple(_process(one.pid, self._bounds.within(one.usedGpuMemory, bounds.BYTES)) for one in found)

    def _open(self, which: int | str) -> _Row:
        if which in self._lost:
            raise _Gone(self._lost[which])
        if which in self._rows:
            return _Row(which, self._rows[which][0])
        find = self._n.nvmlDeviceGetHandleByIndex if isinstance(which, int) else self._n.nvmlDeviceGetHandleByUUID
        try:
            return _Row(which, find(which))
        except self._n.NVMLError as error:
            raise self._gone(which, error.value) from error

    def _gone(self, which: int | str, code: int) -> _Gone:
        if code == driver.GPU_LOST:
            self._lost[which] = driver.words(code)
        absent = code == (driver.INVALID_ARGUMENT if isinstance(which, int) else driver.NOT_FOUND)
        return _Gone(f"there is no GPU {which} (any more)" if absent else driver.words(code))

    def _first(self, row: _Row, calls: Sequence[str], *arguments: object) -> Any:
        """Ask the first of `calls` that this driver has."""
        for call in calls:
            value = self._ask(row, call, *arguments)
            if call not in self._missing:
                return value
        return None

    def _ask(self, row: _Row, call: str, *arguments: object) -> Any:
        """Call NVML. None where it gives no value; why goes to the row, if that is a fault."""
        if call in self._missing:
            return None
        function = self._calls.get(call) or getattr(self._n, f"nvml{call}", None)
        if function is None:
            self._missing.add(call)
            return None
        self._calls[call] = function
        try:
            return function(*(() if row.handle is None else (row.handle,)), *arguments)
        except self._n.NVMLError as error:
            if error.value == driver.GPU_LOST and row.which is not None:
                raise self._gone(row.which, error.value) from error
            self._note(row, call, error.value)
            return None

    def _note(self, row: _Row, call: str, code: int) -> None:
        if code == driver.FUNCTION_NOT_FOUND:
            self._missing.add(call)
            log.warning("this driver has no nvml%s; what it would say is unknown", call)
        elif code not in driver.NOT_OFFERED:
            row.trouble.setdefault(code, call)


def _process(pid: int, memory_bytes: int | None) -> GpuProcess:
    if not container.pids_are_the_hosts():
        return GpuProcess(pid, memory_bytes)
    return GpuProcess(pid, memory_bytes, container.name_of(pid), container.container_of(pid))


def _binding() -> Binding:
    try:
        binding: Binding = importlib.import_module("pynvml")
    except ImportError as error:
        raise NvmlUnavailable("NVIDIA's Python binding is missing.", "    pip install nvidia-ml-py") from error
    if not hasattr(binding, "_nvmlGetFunctionPointer"):
        raise driver.wrong_binding(getattr(binding, "__file__", None))
    return binding


def connect() -> Nvml:
    """Connect to the driver. Raises NvmlUnavailable with the cause and a remedy."""
    binding = _binding()
    try:
        binding.nvmlInit()
    except binding.NVMLError as error:
        raise driver.unavailable(error.value) from error
    return Nvml(binding)


@contextmanager
def open_nvml() -> Iterator[Nvml]:
    """Connect to the driver, and let go of it at the end. Raises as connect() does."""
    nvml = connect()
    try:
        yield nvml
    finally:
        nvml.close()


def probe() -> Probe:
    """See what GPUs there are, without raising."""
    try:
        return driver.within(_probe)
    except NvmlUnavailable as error:
        return Probe(error=error, absent=not (driver.has_driver() or error.answered))


def _probe() -> Probe:
    with open_nvml() as nvml:
        return Probe(nvml.inventory(), nvml.driver())
