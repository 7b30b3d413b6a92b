"""Processes of this host as jobs: one just started, and one found again."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from ngcdl.engines.base import Chunk, Exit, NoInput, Started

PID = "pid:"
LOOK_SECONDS = 0.1  # between looks at a process that is not our child
KILL_SECONDS = 10.0  # only a process that hangs in the kernel takes longer


class LocalJob(NoInput):
    """A process of this host, in a session of its own."""

    def __init__(self, process: subprocess.Popen[bytes], clock: Callable[[], float] = time.time) -> None:
        self._process = process
        self._clock = clock
        self._stopped_by_us = False
        self.identity = f"{PID}{process.pid}"
        self.started = Started(pid=process.pid)
        self.detached = False

    def output(self) -> Iterator[Chunk]:
        stdout, stderr = self._process.stdout, self._process.stderr
        assert stdout is not None  # both are PIPEs
        assert stderr is not None
        streams = {stdout: "stdout", stderr: "stderr"}
        while streams:
            ready, _, _ = select.select(list(streams), [], [], 1.0)
            for stream in ready:
                data = os.read(stream.fileno(), 65536)
                if data:
                    yield Chunk(streams[stream], data)
                else:
                    del streams[stream]
            if not ready and self._process.poll() is not None:
                return  # a grandchild may hold the pipe open forever

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
        """Return None while it runs. Its argv names the run's folder; a later process with its PID has another argv."""
        with contextlib.suppress(OSError):
            if os.fsencode(self._folder) in Path(f"/proc/{self._pid}/cmdline").read_bytes():
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
