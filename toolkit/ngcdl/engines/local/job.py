"""Processes of this host as jobs: one just started, and one found again."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ngcdl.engines.base import Chunk, Exit, NoInput, Started

PID = "pid:"
LOOK_SECONDS = 0.1  # between looks at a process that is not our child
KILL_SECONDS = 10.0  # only a process that hangs in the kernel takes longer


class LocalJob:
    """A process of this host, in a session of its own; `screen` is our end of its terminal, if it has one."""

    def __init__(
        self, process: subprocess.Popen[bytes], clock: Callable[[], float] = time.time, screen: int | None = None
    ) -> None:
        self._process, self._screen = process, screen
        self._clock = clock
        self._stopped_by_us = False
        self.identity = f"{PID}{process.pid}"
        self.started = Started(pid=process.pid)
        self.detached = False

    def output(self) -> Iterator[Chunk]:
        ends = {"stdout": self._process.stdout, "stderr": self._process.stderr}
        streams = {end.fileno(): name for name, end in ends.items() if end}
        if self._screen is not None:
            streams = {self._screen: "stdout"}
        while streams:
            ready, _, _ = select.select(list(streams), [], [], 1.0)
            for descriptor in ready:
                if data := _read(descriptor):
                    yield Chunk(streams[descriptor], data)
                else:
                    del streams[descriptor]
            if not ready and self._process.poll() is not None:
                return  # a grandchild may hold the pipe open forever

    def write(self, data: bytes) -> None:
        """Write all of it. Raise OSError if nobody reads it any more; on a terminal also if `data` is empty."""
        if self._process.poll() is not None:
            raise BrokenPipeError(errno.EPIPE, "it has ended")
        into = self._process.stdin.fileno() if self._process.stdin else self._screen
        while data and into is not None:
            data = data[os.write(into, data) :]

    def close_input(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()

    def resize(self, rows: int, columns: int) -> None:
        if self._screen is not None:
            with contextlib.suppress(OSError):  # it is being closed
                termios.tcsetwinsize(self._screen, (rows, columns))

    def wait(self) -> Exit:
        code = self._process.wait()
        if code >= 0:
            return Exit(code, False, None, self._clock())
        # The kernel does not say why it killed a process outside any container.
        reason = None if self._stopped_by_us else f"ended by {signal.Signals(-code).name}"
        return Exit(128 - code, None if code == -signal.SIGKILL else False, reason, self._clock())

    def ended(self) -> Exit | None:
        return None if self._process.poll() is None else self.wait()

    def waiting(self) -> str | None:
        return None

    def stop(self, grace_seconds: float) -> None:
        self._stopped_by_us = True
        self._signal(signal.SIGTERM)
        try:
            self._process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        self._stopped_by_us = True
        self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)

    def gpus_inside(self) -> tuple[str, ...] | None:
        return None

    def remove(self) -> None:
        if self._process.poll() is None:
            self.kill()
        for stream in (self._process.stdout, self._process.stderr):
            if stream:
                stream.close()
        if self._screen is not None:
            os.close(self._screen)  # what is left in its terminal gets SIGHUP
            self._screen = None


def _read(descriptor: int) -> bytes:
    """Return what there is to read, b"" at the end: on Linux a terminal that nobody else has open gives EIO."""
    try:
        return os.read(descriptor, 65536)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""


class FoundJob(NoInput):
    """A process that an earlier ngcdl started for the run in `folder`: only that ngcdl got its output and exit code."""

    def __init__(self, pid: int, folder: Path) -> None:
        self._pid, self._folder = pid, folder
        self.identity = f"{PID}{pid}"
        self.started = Started(pid=pid)
        self.detached = False

    def output(self) -> Iterator[Chunk]:
        return iter(())

    def wait(self) -> Exit:
        self._is_gone_within(math.inf)
        return Exit(None)

    def ended(self) -> Exit | None:
        """Return None while it runs. A training's argv names the run's folder, a command's environment does; those of a
        later process with its PID don't."""
        for where in ("cmdline", "environ"):
            with contextlib.suppress(OSError):
                if os.fsencode(self._folder) in Path(f"/proc/{self._pid}/{where}").read_bytes():
                    return None
        return Exit(None)

    def waiting(self) -> str | None:
        return None

    def stop(self, grace_seconds: float) -> None:
        self._signal(signal.SIGTERM)
        if not self._is_gone_within(grace_seconds):
            self.kill()

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self._is_gone_within(KILL_SECONDS)

    def _signal(self, number: int) -> None:
        if self.ended() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._pid, number)  # it leads a session

    def _is_gone_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while self.ended() is None:
            if time.monotonic() > end:
                return False
            time.sleep(LOOK_SECONDS)
        return True

    def gpus_inside(self) -> tuple[str, ...] | None:
        return None

    def remove(self) -> None:
        self.kill()
