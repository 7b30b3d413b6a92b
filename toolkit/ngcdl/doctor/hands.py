"""Doctor's access to this host: files below a root, programs with a time limit, free space, a clock."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from ngcdl import processes
from ngcdl.doctor.sight import Space
from ngcdl.frozen import dataclass

_FILE_BYTES = 1 << 20

Run = Callable[[Sequence[str], float], str | None]


def output(words: Sequence[str], seconds: float) -> str | None:
    """Run a read-only program and return its output; None if it is absent, fails or takes longer than `seconds`."""
    try:
        process = subprocess.Popen(
            list(words), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
    except OSError:
        return None
    try:
        text, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if process.returncode is None:
            _kill(process)
    return text.decode(errors="replace") if process.returncode == 0 else None


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill a program and all that it started. One that hangs in the driver may not end, and isn't waited for."""
    with contextlib.suppress(OSError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    processes.reaped(process)


def space(folder: Path) -> Space | None:
    """Measure the file system of `folder`; `free_bytes` is what this user may use. None if that fails."""
    try:
        found = shutil.disk_usage(folder)
    except OSError:
        return None
    return Space(found.total, found.free)


@dataclass(frozen=True)
class Hands:
    """`root` is the folder that holds /proc, /sys, /dev and /etc: a separate one in tests.

    `environ` is what ngcdl itself reads; access to NVML and to the engine uses this process's environment.
    """

    root: Path = Path("/")
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    run: Run = output
    space: Callable[[Path], Space | None] = space
    now: Callable[[], float] = time.time

    def at(self, path: str | Path) -> Path:
        return self.root / str(path).lstrip("/")

    def read(self, path: str | Path) -> str | None:
        """Return the beginning of a text file (1 MiB); None if it can't be read."""
        try:
            with self.at(path).open("rb") as file:
                return file.read(_FILE_BYTES).decode(errors="replace")
        except OSError:
            return None

    def which(self, program: str) -> str | None:
        # Toolkits are sometimes in sbin, which is not on every user's PATH.
        path = self.environ.get("PATH", os.defpath)
        return shutil.which(program, path=path) or shutil.which(program, path="/usr/local/sbin:/usr/sbin:/sbin")
