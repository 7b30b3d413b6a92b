"""The processes that the lab started, with pid and start time, so that no others are ever killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from lab_parts.where import Lab, LabError, read_json, write_whole

_kept: dict[int, subprocess.Popen[bytes]] = {}  # our own children, which must be reaped


def start(
    lab: Lab,
    name: str,
    command: list[str],
    ready: Callable[[], bool],
    env: dict[str, str] | None = None,
    seconds: float = 240,
) -> int:
    """Start a process in its own session, record it, wait until `ready()` is true, and return its pid. Raise LabError
    if it ends first or is not ready within `seconds`; it may then still be running."""
    log = lab.dir / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True, cwd=lab.dir
        )
    _note(lab, name, process.pid)
    _kept[process.pid] = process
    until = time.monotonic() + seconds
    while not ready():
        if process.poll() is not None:
            raise LabError(f"{name} ended with {process.returncode}; the end of {log}:\n{_tail(log)}")
        if time.monotonic() > until:
            raise LabError(f"{name} was not ready in {seconds:.0f} s; the end of {log}:\n{_tail(log)}")
        time.sleep(0.05)
    return process.pid


def pid_of(lab: Lab, name: str) -> int | None:
    """Return the pid of a process that we started, if it is still running and the same process."""
    entry = _entries(lab).get(name)
    return entry["pid"] if entry and _start_ticks(entry["pid"]) == entry["start_ticks"] else None


def stop(lab: Lab, name: str, seconds: float = 20) -> None:
    """Terminate one of our processes, with SIGKILL after `seconds`; harmless if it is gone already."""
    for sign, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 5.0)):
        pid, until = pid_of(lab, name), time.monotonic() + patience
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, sign)
        while pid_of(lab, name) is not None and time.monotonic() < until:
            time.sleep(0.05)
    entry = _entries(lab).get(name)
    if entry and pid_of(lab, name) is None:
        _reap(entry["pid"])


def kill(lab: Lab, name: str) -> None:
    """Kill one of our processes, as if it crashed; harmless if it is gone already."""
    pid = pid_of(lab, name)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
        _reap(pid)


def _reap(pid: int) -> None:
    if pid in _kept:
        _kept.pop(pid).wait()


def names(lab: Lab) -> list[str]:
    return list(_entries(lab))


def stop_descendants(engine: Path) -> int:
    """Kill what a killed engine left behind: its containerd and shims, which have the engine's folder in their
    arguments, and the shims' children. Return how many processes were killed."""
    found = 0
    needle = f"{engine}/".encode()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            argv = (folder / "cmdline").read_bytes().split(b"\0")
            program = argv[0].rpartition(b"/")[2]
            if program not in (b"containerd", b"containerd-shim-runc-v2") or not any(
                a.startswith(needle) for a in argv[1:]
            ):
                continue
            children = (folder / "task" / folder.name / "children").read_text().split()
            for pid in (folder.name, *(children if b"shim" in program else ())):
                os.kill(int(pid), signal.SIGKILL)
                found += 1
        except OSError:
            continue
    return found


_noting = threading.Lock()


def _note(lab: Lab, name: str, pid: int) -> None:
    with _noting:
        entries = {**_entries(lab), name: {"pid": pid, "start_ticks": _start_ticks(pid)}}
        write_whole(lab.dir / "processes.json", json.dumps(entries, indent=1))


def _entries(lab: Lab) -> dict[str, dict[str, int]]:
    return read_json(lab.dir / "processes.json")


def _start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot (field 22 of /proc/PID/stat); None if it is a zombie or
    does not exist."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else int(fields[19])


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-1500:]
