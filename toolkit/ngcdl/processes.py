"""This host's processes, as /proc shows them: https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html

Also how a process of ngcdl starts another one, and ends one that may hang."""

from __future__ import annotations

import pwd
import re
import signal
import subprocess
import sys
from pathlib import Path

from ngcdl.frozen import dataclass

_PROC = Path("/proc")
_KILL_SECONDS = 0.5
_COMMAND_BYTES = 4096  # of a command line: its beginning says what runs
_PYTHON = re.compile(r"python[\d.]*")
_ALONE = re.compile(r"-[bBdEiIOPqsSuvx]+")  # Python's options that take no value

# Processes that were killed but are stuck in the kernel. Their objects are kept, because garbage collection would warn
# that the processes still run.
abandoned: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class Process:
    """One process. `began`, in clock ticks since boot, distinguishes it from a later process with the same PID.
    `has_ended`: it is a zombie, or dead. `catches_stop`: it has a handler for SIGTERM."""

    pid: int
    began: int
    parent: int
    group: int
    session: int
    has_ended: bool
    ignores_ctrl_c: bool
    catches_stop: bool


def of_ngcdl(module: str, *words: str) -> list[str]:
    """Return the argv that starts a module of ngcdl in this Python. -P: a docker.py in the caller's folder must not
    shadow the library. -E, if this process has it: nor must one on PYTHONPATH."""
    ignoring = ["-E"] if sys.flags.ignore_environment else []
    return [sys.executable, *ignoring, "-P", "-m", module, *words]


def reaped(killed: subprocess.Popen[bytes]) -> bool:
    """Wait for a process that was killed. If it is stuck in the kernel, keep it aside, and return False."""
    try:
        killed.wait(_KILL_SECONDS)
    except subprocess.TimeoutExpired:
        abandoned.append(killed)
        return False
    return True


def boot_id() -> str | None:
    """Return the kernel's id of this boot, which differs after each reboot; None if it can't be read."""
    try:
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def namespace() -> str | None:
    """Return which PID namespace this process is in; None if that can't be read.
    https://man7.org/linux/man-pages/man7/pid_namespaces.7.html"""
    try:
        return str((_PROC / "self/ns/pid").readlink())
    except OSError:
        return None


def look(pid: int) -> Process | None:
    """Return the process with that PID; None if there is none."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
        state, *numbers = text.rpartition(")")[2].split()  # the name in front may contain anything
        parent, group, session, began, ignored, caught = (int(numbers[at]) for at in (0, 1, 2, 18, 29, 30))
    except (OSError, IndexError, ValueError):
        return None
    ignores_ctrl_c, catches_stop = ignored >> signal.SIGINT - 1 & 1, caught >> signal.SIGTERM - 1 & 1
    return Process(pid, began, parent, group, session, state in "ZX", bool(ignores_ctrl_c), bool(catches_stop))


def table() -> dict[int, Process]:
    """Return all processes by PID."""
    pids = (int(path.name) for path in _PROC.iterdir() if path.name.isdecimal())
    return {pid: found for pid in pids if (found := look(pid))}


def began(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if there is none with that PID."""
    found = look(pid)
    return found.began if found else None


def is_running(pid: int, began: int | None) -> bool:
    """Whether the process with that PID that started at `began` is still running."""
    found = look(pid)
    return found is not None and found.began == began and not found.has_ended


def program(pid: int) -> str | None:
    """Return the name of the file that a process runs; None if it can't be read."""
    try:
        return (_PROC / str(pid) / "exe").readlink().name
    except OSError:
        return None


def script(pid: int) -> str | None:
    """Return what a Python runs, such as train.py, or -m MODULE; None if it is no Python, or that can't be read. What
    else its command line has may be a secret."""
    try:
        with (_PROC / str(pid) / "cmdline").open("rb") as file:
            own, *words = file.read(_COMMAND_BYTES).decode(errors="replace").split("\0")
    except OSError:
        return None
    if not _PYTHON.fullmatch(Path(own).name):
        return None
    for at, word in enumerate(words):
        if word.startswith("-m"):
            module = word[2:] or "".join(words[at + 1 : at + 2])
            return f"-m {module}" if module else None
        if not _ALONE.fullmatch(word):
            return Path(word).name or None if not word.startswith("-") else None
    return None


def user(pid: int) -> str | None:
    """Return the name of a process's user, or their number if they have no name; None if it can't be read."""
    try:
        number = (_PROC / str(pid)).stat().st_uid
    except OSError:
        return None
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def environment(pid: int) -> frozenset[bytes]:
    """Return the variables, as NAME=value, that a process got when its program started; none if they can't be read."""
    try:
        return frozenset((_PROC / str(pid) / "environ").read_bytes().split(b"\0")) - {b""}
    except OSError:
        return frozenset()
