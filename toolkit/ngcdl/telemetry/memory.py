"""How much memory a control group can get at most, and how hard it is pressed for it.

Version 2: memory.max, memory.pressure, memory.events: https://docs.kernel.org/admin-guide/cgroup-v2.html. Version 1:
memory.limit_in_bytes and memory.oom_control, and no pressure: https://docs.kernel.org/admin-guide/cgroup-v1/memory.html.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil

SHORTEST_SECONDS = 1.0  # the pressure is a mean of ten


@dataclass(frozen=True)
class Pressure:
    """`percent`: of the last 10 s, in which some of the group's threads waited for memory. `oom_kills`: so far."""

    percent: float | None = None
    oom_kills: int | None = None


class Limits:
    """Reads them of a group by its folders, {"": of version 2, "memory": of version 1}."""

    def __init__(self, folders: Mapping[str, Path], now: Callable[[], float] = time.monotonic) -> None:
        self._folders, self._now = folders, now
        self._read_at: float | None = None
        self._pressure = Pressure()
        self._limit: int | None = None

    @property
    def limit_bytes(self) -> int | None:
        """The limit; `docker update` and systemd change it while the group works."""
        self._look()
        return self._limit

    def pressure(self) -> Pressure:
        self._look()
        return self._pressure

    def _look(self) -> None:
        """Read, where what was read last is a second old: it costs some files."""
        now = self._now()
        if self._read_at is None or now - self._read_at >= SHORTEST_SECONDS:
            self._read_at, self._pressure, self._limit = now, self._read(), self._limit_bytes()

    def _read(self) -> Pressure:
        some = _text(self._folders.get(""), "memory.pressure").partition("avg10=")[2].split(" ")[0]
        events = _text(self._folders.get(""), "memory.events") or _text(
            self._folders.get("memory"), "memory.oom_control"
        )
        kills = next((line.split()[1] for line in events.splitlines() if line.startswith("oom_kill ")), "")
        return Pressure(_float(some), int(kills) if kills.isdecimal() else None)

    def _limit_bytes(self) -> int | None:
        """Give the lowest limit of the group and those around it, or all memory where it has none."""
        limits = [
            limit
            for controller, file in (("", "memory.max"), ("memory", "memory.limit_in_bytes"))
            for limit in _upwards(self._folders.get(controller), file)
        ]
        return (
            min([psutil.virtual_memory().total, *(int(one) for one in limits if one.isdecimal())]) if limits else None
        )


def _upwards(folder: Path | None, file: str) -> list[str]:
    """Read a file of a group, and of those around it as far as they have it."""
    found: list[str] = []
    for one in (folder, *folder.parents) if folder else ():
        text = _text(one, file).strip()
        if not text:
            break
        found.append(text)
    return found


def _text(folder: Path | None, file: str) -> str:
    try:
        return (folder / file).read_text() if folder else ""
    except OSError:
        return ""


def _float(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
