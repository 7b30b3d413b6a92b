"""What the NVIDIA driver reports about this host's GPUs, through NVML. The only module that imports pynvml.

A value that the driver does not offer is None, never 0. A query that fails also yields None, and the row's `error` says
why, unless the driver's only reason is "unknown" (999) and other queries of the card succeed: under WSL single calls
fail like that (https://github.com/XuehaiPan/nvitop/pull/30). A lost card has a row with its error, raises nothing, and
is not queried again.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Any, Literal

from ngcdl.catalog.chips import ON_ARM_CHIPS
from ngcdl.errors import NvmlUnavailable
from ngcdl.telemetry import bounds, calls, container, driver, gpm
from ngcdl.telemetry.card import COMPUTE_MODES, Card, Driver, GpuProcess, GpuReading, Probe, is_mig, reasons
from ngcdl.telemetry.queries import Gone, Queries, Row
from ngcdl.telemetry.sample import MEASURED

Binding = Any  # it has no type annotations
Place = tuple[int | None, int | None]  # of a MIG device: the index of its card, and its own there
# How much to ask of a card: its utilization and power; also its state and its processes; also watts_limit, sm_mhz_max,
# compute_mode, and the names of processes that only draw.
Detail = Literal["brief", "usual", "full"]

# The questions of calls.questions() whose answers change quickly, and the others, in the order in which
# _use_and_power() and _state() unpack them.
_QUICK = ("percents", "milliwatts")
_SLOW = ("memory", "millijoules", "celsius", "sm_mhz", "memory_mhz", "reasons")
_COMPUTING = ("DeviceGetComputeRunningProcesses_v3", "DeviceGetComputeRunningProcesses_v2")
_DRAWING = ("DeviceGetGraphicsRunningProcesses_v3", "DeviceGetGraphicsRunningProcesses_v2")
_MPS_CLIENTS = ("DeviceGetMPSComputeRunningProcesses_v3", "DeviceGetMPSComputeRunningProcesses_v2")
# For a MIG device the driver returns the whole card's values of these:
# https://github.com/NVIDIA/dcgm-exporter/issues/257
_OF_THE_WHOLE_CARD = ("watts", "watts_limit", "energy_joules")


class Nvml:
    """An open connection to the driver, made by connect()."""

    def __init__(self, binding: Binding) -> None:
        self._n = binding
        newest = (_COMPUTING[0], _DRAWING[0], _MPS_CLIENTS[0])
        self._queries = Queries(binding, missing=newest if calls.has_wide_records(binding) else ())
        self._cards: dict[int | str, Card] = {}
        questions = calls.questions(binding)
        self._quick = [questions[name] for name in _QUICK]
        self._slow = [questions[name] for name in _SLOW]
        self._quick_most = [most for question in self._quick for most in question.most]
        self._slow_most = [most for question in self._slow for most in question.most]
        self._memory = questions["memory"]
        self._gpm = gpm.Gpm(binding)

    def close(self) -> None:
        self._gpm.close()
        with suppress(self._n.NVMLError):
            self._n.nvmlShutdown()

    def driver(self) -> Driver:
        row = Row()
        cuda = self._queries.first(row, ("SystemGetCudaDriverVersion_v2", "SystemGetCudaDriverVersion"))
        version, nvml_version = (self._queries.ask(row, f"SystemGet{what}Version") for what in ("Driver", "NVML"))
        return Driver(version, nvml_version, f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None, row.error)

    def count(self) -> int:
        """Return the number of cards. Raise NvmlUnavailable if the driver can't report it."""
        try:
            return int(self._n.nvmlDeviceGetCount())
        except self._n.NVMLError as error:
            raise driver.unavailable(error.value) from error

    def inventory(self) -> tuple[Card, ...]:
        """Describe each card. Raise NvmlUnavailable as count() does."""
        return tuple(self._card(index) for index in range(self.count()))

    def read(self, activity: bool = False) -> tuple[GpuReading, ...]:
        """Read each card. With `activity`, say how much of it worked since the previous such call. Raise
        NvmlUnavailable as count() does."""
        cards = tuple(self._reading(index) for index in range(self.count()))
        if activity:
            cards = tuple(replace(card, **self.activity(index)) for index, card in enumerate(cards))
        return cards

    def _reading(self, which: int | str) -> GpuReading:
        values, error = self.use(which, "full")
        card = self._card(which)
        parts = tuple(self._reading(one.uuid) for one in card.mig_devices if one.uuid)
        return GpuReading(
            compute_capability=card.compute_capability,
            mig=card.mig,
            mig_devices=parts,
            error=error,
            **{"compute_mode": card.compute_mode, **values},
        )

    def use(self, which: int | str, detail: Detail = "usual") -> tuple[dict[str, Any], str | None]:
        """Return a card's identity and current state, keyed by GpuReading's fields, and what failed, or None.

        If the card uses the machine's memory and has none of its own, the memory in use is what its processes take of
        that: NVML tells it of each process only (https://github.com/vllm-project/vllm/pull/55828)."""
        card, error = self._card(which), None
        try:
            row = self._queries.open(which)
            values = {"index": card.index, "uuid": card.uuid, "name": card.name, **self._use_and_power(row)}
            if card.compute_capability in ON_ARM_CHIPS:  # a GB10's is always 0, however busy it is:
                # https://github.com/mostlygeek/llama-swap/issues/782
                values["memory_percent"] = values["memory_percent"] or None
            if detail != "brief":
                values |= self._state(row)
                values |= self._limits(row) if detail == "full" else {}
                values["processes"] = self._processes(row, names_all=detail == "full")
                if values.get("memory_used_bytes") is None and card.compute_capability in ON_ARM_CHIPS:
                    values["memory_used_bytes"] = _taken(values["processes"])
            if row.is_part:
                values |= {name: None for name in _OF_THE_WHOLE_CARD if name in values}
            if row.trouble:
                error = row.error
        except Gone as gone:
            values, error = {name: getattr(card, name, None) for name in MEASURED}, str(gone)
        values |= {} if card.card_index is None else {"card_index": card.card_index}
        return values, error or card.error

    def activity(self, which: int | str) -> Mapping[str, Any]:
        """Return how much of a card worked since the previous call, keyed by GpuReading's fields. All are None at the
        first call, for a card that use() did not find, with MIG on, and for a MIG device."""
        row = self._queries.opened(which)
        if row is None or row.not_offered is driver.NOT_OFFERED_WITH_MIG:
            return gpm.UNKNOWN
        return self._gpm.read(which, row.handle)

    def _limits(self, row: Row) -> dict[str, Any]:
        watts = self._queries.ask(row, "DeviceGetEnforcedPowerLimit")
        clock = self._queries.ask(row, "DeviceGetMaxClockInfo", calls.SM_CLOCK)
        return {
            "watts_limit": bounds.thousandths(bounds.within(watts, bounds.MILLIWATTS)),
            "sm_mhz_max": bounds.within(clock, bounds.MHZ),
            "compute_mode": self._compute_mode(row),
        }

    def _use_and_power(self, row: Row) -> dict[str, Any]:
        gpu, traffic, milliwatts = map(bounds.within, self._queries.answers(row, self._quick), self._quick_most)
        return {"gpu_percent": gpu, "memory_percent": traffic, "watts": bounds.thousandths(milliwatts)}

    def _state(self, row: Row) -> dict[str, Any]:
        total, used, millijoules, celsius, sm, memory, mask = map(
            bounds.within, self._queries.answers(row, self._slow), self._slow_most
        )
        return {
            "memory_used_bytes": bounds.within(used, total or bounds.BYTES),
            "memory_total_bytes": total or None,
            "energy_joules": bounds.thousandths(millijoules),
            "celsius": celsius,
            "sm_mhz": sm,
            "memory_mhz": memory,
            "throttle_reasons": None if mask is None else reasons(mask),
        }

    def _card(self, which: int | str, place: Place | None = None) -> Card:
        """Describe a card. The driver is queried once, and again at each call until no query fails. `place`: that of a
        MIG device, if it is known."""
        known = self._cards.get(which)
        if known and known.error is None:
            return known
        index, uuid = (which, None) if isinstance(which, int) else (None, which)
        card_index = None
        if uuid and is_mig(uuid):
            card_index, index = (known.card_index, known.index) if known else place or self._place(uuid)
        try:
            described = self._described(self._queries.open(which), index, uuid)
            card = self._cards[which] = replace(described, card_index=card_index)
        except Gone as gone:
            card = replace(known or Card(index, uuid, card_index=card_index), error=str(gone))
        return card

    def _place(self, uuid: str) -> Place:
        """Return the place of a MIG device; (None, None) if the driver doesn't tell."""
        with suppress(NvmlUnavailable):
            for index in range(self.count()):
                with suppress(Gone):
                    for at, part, _ in self._queries.parts(self._queries.open(index)):
                        if part == uuid:
                            return index, at
        return None, None

    def _described(self, row: Row, index: int | None, uuid: str | None) -> Card:
        mig = self._queries.ask(row, "DeviceGetMigMode")
        if mig and mig[0]:
            row.not_offered = driver.NOT_OFFERED_WITH_MIG
        if index is None and not row.is_part:
            index = self._queries.ask(row, "DeviceGetIndex")
        capability = self._queries.ask(row, "DeviceGetCudaComputeCapability")
        persistence = self._queries.ask(row, "DeviceGetPersistenceMode")
        card = Card(
            index=index,
            uuid=uuid or self._queries.ask(row, "DeviceGetUUID"),
            name=self._queries.ask(row, "DeviceGetName"),
            compute_capability=f"{capability[0]}.{capability[1]}" if capability else None,
            memory_total_bytes=bounds.within(self._queries.answers(row, (self._memory,))[0], bounds.BYTES) or None,
            brand=self._queries.ask(row, "DeviceGetBrand"),
            mig=bool(mig[0]) if mig else None,
            mig_devices=self._mig_devices(row, index) if mig and mig[0] else (),
            persistence=None if persistence is None else bool(persistence),
            fabric=calls.fabric(self._n, row.handle),
            compute_mode=self._compute_mode(row),
        )
        return replace(card, error=row.error)

    def _compute_mode(self, row: Row) -> str | None:
        return COMPUTE_MODES.get(self._queries.ask(row, "DeviceGetComputeMode"))

    def _mig_devices(self, row: Row, card_index: int | None) -> tuple[Card, ...]:
        return tuple(self._card(uuid, (card_index, index)) for index, uuid, _ in self._queries.parts(row))

    def _processes(self, row: Row, names_all: bool) -> tuple[GpuProcess, ...] | None:
        found = self._queries.first(row, _COMPUTING)
        if not found and (found is None or not container.pids_are_the_hosts()):
            return None  # where not every process is visible, others may compute
        drawing = {one.pid: one for one in self._queries.first(replace(row, trouble={}), _DRAWING) or ()}
        both = tuple(_process(one, drawing.pop(one.pid, None) is not None) for one in found)
        if any(one.is_mps_server for one in both):
            both = self._with_mps_clients(row, both)
        named = _process if names_all else _nameless
        return both + tuple(replace(named(one, draws=True), computes=False) for one in drawing.values())

    def _with_mps_clients(self, row: Row, found: Sequence[GpuProcess]) -> tuple[GpuProcess, ...]:
        listed = self._queries.first(replace(row, trouble={}), _MPS_CLIENTS)
        pids = {one.pid for one in found}
        return (
            *(replace(one, lists_clients=one.is_mps_server and listed is not None) for one in found),
            *(_process(one, draws=False) for one in listed or () if one.pid not in pids),
        )


def _process(one: Binding, draws: bool) -> GpuProcess:
    found = _nameless(one, draws)
    if not container.pids_are_the_hosts():
        return found
    return replace(found, name=container.name_of(found.pid), container_id=container.container_of(found.pid))


def _taken(processes: Sequence[GpuProcess] | None) -> int | None:
    """Return how much memory processes take; None if they are unknown, or that of one of them is."""
    taken = [one.memory_bytes for one in processes or ()]
    known = [each for each in taken if each is not None]
    is_known = processes is not None and len(known) == len(taken) and container.pids_are_the_hosts()
    return sum(known) if is_known else None


def _nameless(one: Binding, draws: bool) -> GpuProcess:
    return GpuProcess(one.pid, bounds.within(one.usedGpuMemory, bounds.BYTES), draws=draws)


def _binding() -> Binding:
    try:
        binding: Binding = importlib.import_module("pynvml")
    except ImportError as error:
        raise NvmlUnavailable("NVIDIA's Python binding is missing.", "    pip install nvidia-ml-py") from error
    if not hasattr(binding, "_nvmlGetFunctionPointer"):
        raise driver.wrong_binding(getattr(binding, "__file__", None))
    return binding


def connect() -> Nvml:
    """Connect to the driver. Raise NvmlUnavailable, with the cause and a remedy, if that fails."""
    binding = _binding()
    try:
        binding.nvmlInit()
    except binding.NVMLError as error:
        raise driver.unavailable(error.value) from error
    return Nvml(binding)


@contextmanager
def open_nvml() -> Iterator[Nvml]:
    """Connect to the driver, and disconnect when the block ends. Raise NvmlUnavailable as connect() does."""
    nvml = connect()
    try:
        yield nvml
    finally:
        nvml.close()


_begun: list[tuple[ExitStack, Callable[[], Probe]]] = []


def begin_to_probe() -> None:
    """Begin what the next probe() returns, while there is other work: drivers take 0.1 s to some seconds to answer."""
    stack = ExitStack()
    _begun.append((stack, stack.enter_context(probing())))


def end_begun() -> None:
    """End what was begun and not asked for: it would go on until the driver answers."""
    while _begun:
        _begun.pop()[0].close()


def probe() -> Probe:
    """Find this host's GPUs. Never raises NvmlUnavailable: the result carries the error."""
    if not _begun:
        begin_to_probe()
    stack, found = _begun.pop()
    with stack:
        return found()


@contextmanager
def probing() -> Iterator[Callable[[], Probe]]:
    """Begin to find this host's GPUs, and yield a function that returns what probe() returns."""
    with driver.asking(_probe) as answer:
        yield lambda: _found(answer)


def _found(answer: Callable[[], Probe]) -> Probe:
    try:
        return answer()
    except NvmlUnavailable as error:
        return Probe(error=error, absent=not (driver.has_driver() or error.answered))


def _probe() -> Probe:
    with open_nvml() as nvml:
        return Probe(nvml.inventory(), nvml.driver())
