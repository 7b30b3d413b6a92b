"""The processes of a run on this host: which they are, and how all of them are asked to end, or killed.

A run's first process leads a session and a process group. The run's processes are those in that session or group, all
their descendants, and every process with the variable that names the run's folder in its environment: a worker may have
a session of its own, and outlive its parent.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path

from ngcdl import processes
from ngcdl.folder import HOME
from ngcdl.processes import Process

COMMANDS, TRAININGS = "NGCDL_RUN", "KERAS_HOME"  # the variables by which a run's processes are known
FIRST_SECONDS, LOOK_SECONDS = 0.01, 0.2  # the first and the longest pause between two looks
# A shell runs its trap for a signal only once the command that it waits for has ended, so that command gets SIGTERM:
# https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html#tag_19_11
_SHELLS = frozenset({"ash", "bash", "busybox", "dash", "ksh", "ksh93", "mksh", "sh", "yash", "zsh"})
KILL_SECONDS = 10.0  # only a process that hangs in the kernel, or is another user's, takes longer


def mark(folder: Path, *, is_training: bool) -> dict[str, str]:
    """Return the variable, with its value, that all processes of the run in `folder` get.

    The user's own command reports its steps in the folder that NGCDL_RUN names. A training's variable names the folder
    in which Keras writes a file, below the run's."""
    return {TRAININGS: str(folder / HOME)} if is_training else {COMMANDS: str(folder)}


class Family:
    """The processes of the run in `folder`. Its first process has the PID `pid` and started at `began`, in clock ticks
    since boot."""

    def __init__(self, pid: int, began: int | None, folder: Path) -> None:
        self._pid, self._began = pid, began
        marks = mark(folder, is_training=False) | mark(folder, is_training=True)
        self._marks = frozenset(os.fsencode(f"{name}={value}") for name, value in marks.items())
        self._known = {(pid, began)}
        self._strangers: set[tuple[int, int]] = set()

    def living(self) -> list[Process]:
        """Return the processes that run now, the oldest first, except the calling one: a run's own shell may call
        `ngcdl stop` for it."""
        table = processes.table()
        first = table.get(self._pid)
        is_same = first is None or first.began == self._began  # no new process gets the number of an existing session
        family = {
            one.pid
            for one in table.values()
            if (one.pid, one.began) in self._known
            or (is_same and self._pid in (one.session, one.group))
            or self._is_marked(one)
        }
        while more := {one.pid for one in table.values() if one.parent in family} - family:
            family |= more
        found = [table[pid] for pid in family - {os.getpid()}]
        self._known.update((one.pid, one.began) for one in found)
        return sorted((one for one in found if not one.has_ended), key=lambda one: (one.began, one.pid))

    def _is_marked(self, one: Process) -> bool:
        if (one.pid, one.began) in self._strangers:
            return False
        variables = processes.environment(one.pid)
        if variables and self._marks.isdisjoint(variables):  # a process in the middle of exec has no variables yet
            self._strangers.add((one.pid, one.began))
        return not self._marks.isdisjoint(variables)

    def interrupt(self, grace_seconds: float) -> None:
        """Send SIGINT to the first process's group, as a terminal does on Ctrl-C. Wait for those processes in it that
        do not ignore SIGINT, at most `grace_seconds`."""
        heeding = [one for one in self.living() if one.group == self._pid and not one.ignores_ctrl_c]
        if heeding:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, signal.SIGINT)
        _came(lambda: not any(processes.is_running(one.pid, one.began) for one in heeding), grace_seconds)

    def stop(self, grace_seconds: float) -> None:
        """Send SIGTERM to all processes, and kill those left after `grace_seconds`.

        A process that catches SIGTERM may need its workers until it has saved, or pass the signal on to them: so its
        descendants get SIGTERM only after it has ended."""
        unasked = _above(self.living())  # not those started later: they help these to end

        def are_gone() -> bool:
            living = self.living()
            left = {(one.pid, one.began) for one in living}
            due = [one for one, above in unasked.items() if left.isdisjoint(above)]
            for one in due:
                del unasked[one]
            _send(signal.SIGTERM, [one for one in due if (one.pid, one.began) in left], unasked)
            return not living

        if not _came(are_gone, grace_seconds):
            self.kill()

    def kill(self) -> None:
        """Kill all processes, also those that are started meanwhile."""

        def are_gone() -> bool:
            left = self.living()
            _send(signal.SIGKILL, left)
            return not left

        _came(are_gone, KILL_SECONDS)


def _above(those: list[Process]) -> dict[Process, set[tuple[int, int]]]:
    """Map each of `those` to its ancestors among them that catch SIGTERM and are no shells, as (PID, began)."""
    by_pid = {one.pid: one for one in those}
    above: dict[Process, set[tuple[int, int]]] = {}
    for one in those:
        found, at = set(), by_pid.get(one.parent)
        while at:
            if at.catches_stop and processes.program(at.pid) not in _SHELLS:
                found.add((at.pid, at.began))
            at = by_pid.get(at.parent)
        above[one] = found
    return above


def _send(number: int, those: Collection[Process], spared: Collection[Process] = ()) -> None:
    """Send a signal to `those`, in this order: one that waits for another must not see it end first, and go on. It goes
    to a whole process group at once, so that none in it escapes by forking, unless a `spared` process is in it."""
    pids = {one.pid for one in those}
    left_out = {os.getpgrp(), *(one.group for one in spared)}
    groups = dict.fromkeys(one.group for one in those if one.group in pids and one.group not in left_out)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
    for one in those:
        if one.group not in groups and processes.is_running(one.pid, one.began):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(one.pid, number)


def _came(there: Callable[[], bool], seconds: float) -> bool:
    """Wait until `there` is true, for at most `seconds`; return whether it is."""
    end, pause = time.monotonic() + seconds, FIRST_SECONDS
    while not there():
        if time.monotonic() >= end:
            return False
        time.sleep(pause)
        pause = min(pause * 1.5, LOOK_SECONDS)
    return True
