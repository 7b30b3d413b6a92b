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
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from ngcdl import processes
from ngcdl.engines.base import Unconnected
from ngcdl.engines.local.family import Family
from ngcdl.engines.values import Chunk, Exit, Started

LOOK_SECONDS = 0.1  # between looks at a process that is not our child
# After the command has ended, processes that it left in the background may go on writing. Output is then read until
# nothing arrives for SILENT_SECONDS, for at most OVER_SECONDS, and after that only as much as a pipe can hold (man 7
# pipe): what was already in it, however slowly ngcdl's reader takes it.
OVER_SECONDS, SILENT_SECONDS, PIPE_BYTES = 2.0, 0.2, 1 << 20


class LocalJob:
    """A process of this host, in a session of its own, for the run in `folder`; `screen` is our end of its terminal, if
    it has one. `is_training`: it must go on even if nobody reads its output."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        folder: Path,
        *,
        screen: int | None = None,
        is_training: bool = False,
    ) -> None:
        self._process, self._screen = process, screen
        self._is_training = is_training
        self._stopped_by_us = False
        self._stop = threading.Lock()  # held by a stop until all processes have ended
        self._hung_up: set[str] = set()
        began = processes.began(process.pid)
        self._family = Family(process.pid, began, folder)
        self.identity = f"pid:{process.pid}:{began}"
        self.started = Started(pid=process.pid)
        self.detached = False

    def output(self) -> Iterator[Chunk]:
        ends = {"stdout": self._process.stdout, "stderr": self._process.stderr}
        streams = {end.fileno(): name for name, end in ends.items() if end}
        if self._screen is not None:
            streams = {self._screen: "stdout"}
        until, more_bytes = math.inf, PIPE_BYTES
        while streams:
            is_late = time.monotonic() > until and not self._stop.locked()
            pause = 1.0 if until == math.inf else 0.0 if is_late else SILENT_SECONDS
            ready, _, _ = select.select(list(streams), [], [], pause)
            for descriptor in ready:
                data = _read(descriptor)
                if data:
                    yield Chunk(streams[descriptor], data)
                if not data or streams[descriptor] in self._hung_up:
                    del streams[descriptor]
                more_bytes -= len(data) if is_late else 0
            if until == math.inf:
                until = math.inf if self._process.poll() is None else time.monotonic() + OVER_SECONDS
            elif not self._stop.locked() and (not ready or more_bytes < 0):
                return

    def hang_up(self, stream: str) -> bool:
        """As in Piped. False also while the job is being stopped: it may have more to write, and to save."""
        end = {"stdout": self._process.stdout, "stderr": self._process.stderr}.get(stream)
        if end is None or self._is_training or self._stopped_by_us:
            return False
        self._hung_up.add(stream)
        end.close()
        return True

    def write(self, data: bytes) -> None:
        """Write all of `data` to the job's input. Raise OSError, even for no data, if the job has ended or reads a
        stdin that does not come from ngcdl."""
        if self._process.poll() is not None:
            raise BrokenPipeError(errno.EPIPE, "it has ended")
        into = self._process.stdin.fileno() if self._process.stdin else self._screen
        if into is None:
            raise OSError(errno.EBADF, "it reads its own stdin")
        while data:
            data = data[os.write(into, data) :]

    def close_input(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()

    def resize(self, rows: int, columns: int) -> None:
        if self._screen is not None:
            with contextlib.suppress(OSError):  # it is being closed
                termios.tcsetwinsize(self._screen, (rows, columns))

    def wait(self) -> Exit:
        self._process.wait()
        with self._stop:  # a stop waits until the processes that it left behind have ended, too
            return self._exit(self._process.wait())

    def ended(self) -> Exit | None:
        code = self._process.poll()
        return None if code is None else self._exit(code)

    def _exit(self, code: int) -> Exit:
        if code >= 0:
            return Exit(code, False, None, time.time())
        # The kernel does not say why it killed a process outside any container.
        reason = None if self._stopped_by_us else f"ended by {_name(-code)}"
        if reason and -code == signal.SIGPIPE and self._hung_up:
            reason += f": nobody read its {' and '.join(sorted(self._hung_up))} any more"
        return Exit(128 - code, None if code == -signal.SIGKILL else False, reason, time.time())

    def waiting(self) -> str | None:
        return None

    def interrupt(self, grace_seconds: float) -> None:
        self._stopped_by_us = True
        with self._stop:
            self._family.interrupt(grace_seconds)
            self._family.stop(grace_seconds)

    def pass_on(self, number: int) -> None:
        with contextlib.suppress(PermissionError):  # sudo's program is root's
            self._process.send_signal(number)

    def pids(self) -> frozenset[int]:
        return frozenset(one.pid for one in self._family.living())

    def stop(self, grace_seconds: float) -> None:
        self._stopped_by_us = True
        with self._stop:
            self._family.stop(grace_seconds)

    def kill(self) -> None:
        self._stopped_by_us = True
        self._family.kill()

    def remove(self) -> None:
        if self._process.poll() is None:
            self.kill()
        for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
            if stream:
                stream.close()
        if self._screen is not None:
            os.close(self._screen)  # what is left in its terminal gets SIGHUP
            self._screen = None


def _name(number: int) -> str:
    """Return the name of a signal; real-time ones (man 7 signal) are counted from the first."""
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"SIGRTMIN+{number - signal.SIGRTMIN}" if number > signal.SIGRTMIN else f"signal {number}"


def _read(descriptor: int) -> bytes:
    """Return what there is to read, b"" at the end: on Linux a terminal that nobody else has open gives EIO."""
    try:
        return os.read(descriptor, 65536)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""


class FoundJob(Unconnected):
    """A process that an earlier ngcdl started for the run in `folder`: only that ngcdl got its output and exit code."""

    def __init__(self, pid: int, began: int, folder: Path) -> None:
        self._pid, self._began = pid, began
        self._family = Family(pid, began, folder)
        self.identity = f"pid:{pid}:{began}"
        self.started = Started(pid=pid)
        self.detached = False

    @classmethod
    def named(cls, identity: str, folder: Path) -> Self | None:
        """Return the job with that identity; None if it names no process."""
        kind, _, numbers = identity.partition(":")
        pid, _, began = numbers.partition(":")
        is_one = kind == "pid" and pid.isdecimal() and began.isdecimal()
        return cls(int(pid), int(began), folder) if is_one else None

    def output(self) -> Iterator[Chunk]:
        return iter(())

    def wait(self) -> Exit:
        while self.ended() is None:
            time.sleep(LOOK_SECONDS)
        return Exit(None)

    def ended(self) -> Exit | None:
        return None if processes.is_running(self._pid, self._began) else Exit(None)

    def waiting(self) -> str | None:
        return None

    def stop(self, grace_seconds: float) -> None:
        if self.ended() is None:
            self._family.stop(grace_seconds)

    def kill(self) -> None:
        if self.ended() is None:
            self._family.kill()

    def remove(self) -> None:
        self.kill()
