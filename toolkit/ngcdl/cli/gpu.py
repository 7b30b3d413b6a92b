"""`ngcdl gpu`: shows what the NVIDIA driver reports about this host's GPUs, and who uses them."""

from __future__ import annotations

import json as json_format
import re
import sys
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict, field
from typing import Any

from ngcdl import console, processes, waiting
from ngcdl.catalog.chips import ON_ARM_CHIPS
from ngcdl.command_lines import typable
from ngcdl.errors import BadOption, NgcdlError, NvmlUnavailable
from ngcdl.figures import NOT_AVAILABLE, activity
from ngcdl.frozen import dataclass
from ngcdl.telemetry.card import EXCLUSIVE, Driver, GpuProcess, GpuReading, compute_devices, is_prohibited
from ngcdl.telemetry.driver import asking, within
from ngcdl.telemetry.gpu import Nvml, connect, open_nvml
from ngcdl.terminal_text import JOINT, cells, cut, plain, table

_ENGINE_SECONDS = 1
_SHORTEST_SECONDS, _LONGEST_SECONDS = 0.1, 1_000_000_000  # time.sleep takes up to 9.2e9
_NONE = NOT_AVAILABLE
_INDENT = 4  # of what does not fit into a line of a terminal
_LONGEST_NAME = 32  # characters of a program and its script
_FIELDS = re.compile(r" {2,}")  # what parts the fields of a line
_IN_FIELD = re.compile(r"(?<! ) (?! )")


@dataclass(frozen=True)
class _Report:
    driver: Driver
    gpus: tuple[GpuReading, ...]
    names: Mapping[str, str] = field(default_factory=dict)  # of containers, by id


def gpu(json: bool = False, watch: float | None = None) -> None:
    """Show all GPUs once, or every `watch` seconds until Ctrl-C. Raise NvmlUnavailable."""
    if watch is None:
        with asking(_once) as answer:
            report = _named(*answer())
        if json:
            console.result_json(_document(report))
        else:
            console.result(_text(report))
        return
    seconds = watched_seconds(watch)
    nvml = within(connect)
    try:
        with suppress(KeyboardInterrupt):
            _watch(nvml, json, seconds)
    finally:
        with suppress(NvmlUnavailable):
            within(nvml.close, 1)


def watched_seconds(seconds: float) -> float:
    """Return the interval that --watch asks for, in s. Raise BadOption if it is not above 0, or too long to wait."""
    if not 0 < seconds <= _LONGEST_SECONDS:
        raise BadOption(f"--watch {seconds:g}: must be a number of seconds above 0, at most {_LONGEST_SECONDS:,}.")
    return max(seconds, _SHORTEST_SECONDS)


def _watch(nvml: Nvml, json: bool, seconds: float) -> None:
    """Redraw on a terminal; elsewhere append each reading with its time, or, for JSON, as one line."""
    if json or not console.on_terminal(sys.stdout):
        while True:
            now, report = time.time(), _read(nvml)
            if json:
                console.result(json_format.dumps({"t": round(now, 3), **_document(report)}))
            else:
                console.result(f"{time.strftime('%F %T', time.localtime(now))}   {_text(report)}\n")
            time.sleep(seconds)
    from rich.live import Live
    from rich.text import Text

    with Live(console=console.out(), auto_refresh=False) as live:
        while True:
            report = _read(nvml)
            shown = Text(_text(report))
            height = live.console.height
            if len(live.console.render_lines(shown, pad=False)) > height:
                shown = Text("\n".join(_brief(report, height)), no_wrap=True, overflow="ellipsis")
            live.update(shown, refresh=True)
            time.sleep(seconds)


def _once() -> tuple[tuple[GpuReading, ...], Driver]:
    with open_nvml() as nvml:
        return nvml.read(), nvml.driver()


def _read(nvml: Nvml) -> _Report:
    """Read the cards, and how much of them worked since the last reading: one alone can't tell."""
    return _named(*within(lambda: (nvml.read(activity=True), nvml.driver())))


def _named(gpus: tuple[GpuReading, ...], driver: Driver) -> _Report:
    # Only a caller with rights sees the processes of a card's MIG devices on the card, too:
    # https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
    devices = [one for card in gpus for one in (card, *card.mig_devices)]
    ids = {process.container_id for one in devices for process in one.processes or () if process.container_id}
    return _Report(driver, gpus, _container_names(ids))


def _document(report: _Report) -> dict[str, Any]:
    gpus = [asdict(card) for card in report.gpus]
    for one in (device for card in gpus for device in (card, *card["mig_devices"])):
        for process in one["processes"] or ():
            process["user"] = process["name"] and processes.user(process["pid"])
            process["container_name"] = report.names.get(process["container_id"])
    return {
        "driver": report.driver.version,
        "cuda": report.driver.cuda,
        "nvml": report.driver.nvml_version,
        "error": report.driver.error,
        "gpus": gpus,
    }


def _head(driver: Driver) -> str:
    versions = f"Driver {driver.version or _NONE}   CUDA {driver.cuda or _NONE}   NVML {driver.nvml_version or _NONE}"
    return versions + (f"   error: {driver.error}" if driver.error else "")


def _brief(report: _Report, height: int) -> list[str]:
    """Return a line for each card, in at most `height` lines; if there are more cards, the last line says so."""
    rows = [("GPU", "USE", "MEMORY", "POWER", "TEMP", "PROCESSES", "NAME"), *map(_row, report.gpus)]
    lines = [plain(_head(report.driver)), *table(rows, right=range(5))]
    if len(lines) <= height:
        return lines
    shown = max(height - 1, 2)  # what is above the cards, at least
    return [*lines[:shown], typable(f"{len(lines) - shown} more: ngcdl gpu shows all GPUs")]


def _row(card: GpuReading) -> tuple[str, ...]:
    memory = _memory(card)
    count = _NONE if card.processes is None else str(len(card.processes))
    said = f"{len(card.mig_devices)} MIG" if card.mig else count
    use, power, temperature = _value(card.gpu_percent, " %"), _value(card.watts, " W"), _value(card.celsius, " C")
    name = f"error: {card.error}" if card.error else card.name or _NONE
    return _value(card.index), use, memory, power, temperature, said, name


def _text(report: _Report) -> str:
    head = _head(report.driver)
    cards = [_card(card, report.names) for card in report.gpus]
    text = plain("\n\n".join([head, *cards] if cards else [head, "The driver sees no GPU."]))
    return "\n".join(map(_folded, text.splitlines()))


def _folded(line: str) -> str:
    """Wrap a line if stdout is a terminal that it is too wide for: between its fields, if each fits into a line, else
    between words."""
    width = console.columns(sys.stdout)
    if width is None or cells(line) <= width:
        return line
    text = line.lstrip()
    fields = _FIELDS.split(text)
    if len(fields) > 1 and max(map(cells, fields)) <= width - _INDENT:
        text = _IN_FIELD.sub(JOINT, text)
    return console.wrapped(text, sys.stdout, _INDENT, lead=" " * (len(line) - len(text)))


def _card(card: GpuReading, names: Mapping[str, str]) -> str:
    lines = [
        f"GPU {_value(card.index)}  {card.name or _NONE}   compute capability {card.compute_capability or _NONE}",
        f"  {card.uuid or _NONE}",
    ]
    if is_prohibited(card):
        lines.append(f"  compute mode {card.compute_mode}: no program can compute on it")
    elif card.compute_mode in EXCLUSIVE and not card.mig:
        lines.append(f"  compute mode {card.compute_mode}: only one program can compute on it (several through MPS)")
    if card.error:
        lines.append(f"  error: {card.error}")
    if card.error is None or card.memory_used_bytes is not None or card.gpu_percent is not None:
        lines += _use(card)
        lines += [f"  processes {_NONE}"] if card.processes is None and not card.mig else []
    return "\n".join(lines + (_mig(card, names) if card.mig else _processes(card.processes, names)))


def _mig(card: GpuReading, names: Mapping[str, str]) -> list[str]:
    """List the MIG devices by their names for --gpus, with their processes, which are the card's."""
    if not card.mig_devices:
        return ["  MIG is on, but no MIG device is visible: nothing can compute on it"]
    lines = ["  MIG is on: programs compute on its MIG devices"]
    for name, one in compute_devices([card]).items():
        memory = _of(_mib(one.memory_used_bytes), _mib(one.memory_total_bytes), "MiB")
        lines += [f"  {name}  {one.name or _NONE}   memory {memory}", f"    {one.uuid}"]
        lines += [f"    error: {one.error}"] if one.error else []
        lines += [f"  {line}" for line in _processes(one.processes, names)]
    return lines


def _use(card: GpuReading) -> list[str]:
    memory = _memory(card)
    power, clock = _of(card.watts, card.watts_limit, "W"), _of(card.sm_mhz, card.sm_mhz_max, "MHz")
    use, traffic = _value(card.gpu_percent, " %"), _value(card.memory_percent, " %")
    worked = activity(vars(card))
    return [
        f"  use {use}   memory {memory}   memory traffic {traffic}",
        *([f"  {worked}"] if worked else []),
        f"  power {power}   clock {clock}   temperature {_value(card.celsius, ' C')}",
    ]


def _memory(card: GpuReading) -> str:
    used, total = _mib(card.memory_used_bytes), _mib(card.memory_total_bytes)
    if total is None and card.compute_capability in ON_ARM_CHIPS:
        return f"{_value(used, ' MiB')} (the machine's)"
    return _of(used, total, "MiB")


def _processes(found: tuple[GpuProcess, ...] | None, names: Mapping[str, str]) -> list[str]:
    if not found:
        return []
    whole = [("PID", "MEMORY", "USER", "NAME", "CONTAINER")]
    brief = list(whole)
    for one in found:
        user = one.name and processes.user(one.pid)  # without a name, its PID is not one of this host's /proc
        container = names.get(one.container_id or "", (one.container_id or "")[:12]) or "-"
        memory = _value(_mib(one.memory_bytes), " MiB")
        runs = f"{one.name or _NONE} {(one.name and processes.script(one.pid)) or ''}".rstrip()
        whole.append((str(one.pid), memory, user or _NONE, cut(runs, _LONGEST_NAME), container))
        brief.append((*whole[-1][:3], one.name or _NONE, container))
    width = console.columns(sys.stdout)
    drawn = [table(rows, width and width - _INDENT, right=(0, 1)) for rows in (whole, brief)]
    return [f"  {line}" for line in (drawn[0] if len(drawn[0]) == len(whole) else drawn[1])]


def _value(value: float | None, unit: str = "") -> str:
    return _NONE if value is None else f"{value:.0f}{unit}"


def _of(value: float | None, most: float | None, unit: str) -> str:
    return _NONE if value is None and most is None else f"{_value(value)} / {_value(most)} {unit}"


def _mib(value: int | None) -> float | None:
    return None if value is None else value / 2**20


def _container_names(ids: Collection[str]) -> dict[str, str]:
    """Ask Docker for the names of containers, by id. If it does not answer within _ENGINE_SECONDS, return no names."""
    found: Mapping[str, str] = {}
    if ids:
        # Names are a bonus: it is not this command's task to report what is wrong with the engine.
        with suppress(NgcdlError, TimeoutError):
            found = waiting.within(_ask_docker, _ENGINE_SECONDS)
    return {one: found[one] for one in ids if one in found}


def _ask_docker() -> Mapping[str, str]:
    from ngcdl.engines.docker import connect

    return connect().names()
