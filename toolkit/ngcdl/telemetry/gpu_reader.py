"""GPU readings that can't hold anyone up: they are asked of a process of its own, and only waited for so long."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from ngcdl.telemetry.sample import GpuSample

_TOOLKIT = Path(__file__).parents[2]
# Killed, but stuck in the kernel: kept from the garbage collector, which would complain that they still run.
_abandoned: list[subprocess.Popen[bytes]] = []


class Gap(Exception):
    """There is no reading now; the text says why."""


class GpuReader:
    """Reads GPUs (by UUID; None: all) in a child process.

    `container_id`, or `pid` of a local run's first process, tells the run's processes on a card from others.
    """

    def __init__(
        self,
        uuids: Sequence[str] | None = None,
        container_id: str | None = None,
        pid: int | None = None,
        patience_seconds: float = 0.5,
    ) -> None:
        self._argument = json.dumps(
            {"uuids": None if uuids is None else list(uuids), "container": container_id, "pid": pid}
        )
        self._patience = patience_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._asked: float | None = None  # since when an answer is due
        self._rest = b""
        self._ended: str | None = None

    def start(self) -> None:
        """Start the child; harmless twice. It opens the driver meanwhile."""
        if self._process is not None or self._ended is not None:
            return
        paths = [str(_TOOLKIT), os.environ.get("PYTHONPATH", "")]
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "ngcdl.telemetry.gpu_worker", self._argument],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is for ngcdl, which ends it
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
            )
            self._asked = time.monotonic()
        except OSError as error:
            self._ended = f"the GPU reader can't be started: {error}"

    def ready(self, seconds: float) -> bool:
        """Wait until the driver is open, but not for ever."""
        self.start()
        with suppress(Gap):
            self._wait(seconds)
        return self._asked is None and self._ended is None

    def read(self) -> tuple[GpuSample, ...]:
        """Read the cards. Raises Gap where no answer comes within the patience, or none will."""
        self.start()
        answer = self._late()
        if answer is None:
            self._ask()
            answer = self._wait(self._patience)
        if "error" in answer:
            raise Gap(str(answer["error"]))
        return tuple(GpuSample.from_json(one) for one in answer["gpus"])

    def _late(self) -> dict[str, Any] | None:
        """Give what was asked for in an earlier read(), unless it is older than two patiences. Raises Gap."""
        if self._asked is None:
            return None
        oldest = time.monotonic() - 2 * self._patience
        answer = self._wait(self._patience if self._asked >= oldest else 0)
        return None if answer["at"] < oldest or "ready" in answer else answer

    def close(self) -> None:
        """End the child, within 0.5 s; harmless twice."""
        process, self._process = self._process, None
        self._ended = self._ended or "the GPU reader was closed"
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()
        process.kill()
        try:
            process.wait(timeout=0.5)
        except subprocess.TimeoutExpired:
            _abandoned.append(process)

    def _ask(self) -> None:
        if self._process is None or self._process.stdin is None:
            raise Gap(self._ended or "the GPU reader does not run")
        try:
            self._process.stdin.write(b"\n")
        except OSError as error:
            raise self._end() from error
        self._asked = time.monotonic()

    def _wait(self, seconds: float) -> dict[str, Any]:
        """Wait for the answer that is due. Raises Gap, and leaves it due, where it does not come."""
        if self._process is None or self._process.stdout is None or self._asked is None:
            raise Gap(self._ended or "the GPU reader does not run")
        until, out = time.monotonic() + seconds, self._process.stdout
        while b"\n" not in self._rest:
            left = max(0.0, until - time.monotonic())
            if not select.select([out], [], [], left)[0]:
                raise Gap(f"NVML gave no answer for {time.monotonic() - self._asked:.1f} s")
            received = os.read(out.fileno(), 1 << 16)
            if not received:
                raise self._end()
            self._rest += received
        line, _, self._rest = self._rest.partition(b"\n")
        self._asked = None
        answer: dict[str, Any] = orjson.loads(line)
        return answer

    def _end(self) -> Gap:
        """Say how the child ended. It is not started again: what crashed the driver once will do so each time."""
        code = None
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                code = self._process.wait(timeout=0.2)
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        self._ended = self._ended or f"the GPU reader ended by itself ({how})"
        ended = self._ended
        self.close()
        return Gap(ended)
