"""Takes samples in a separate process, because the driver may crash or hang whatever calls it, and watches that
process.

If the sampling process exits, or is silent for too long, ngcdl's own process takes the samples from then on, without
GPUs.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

from ngcdl import processes
from ngcdl.telemetry.card_samples import RunProcesses
from ngcdl.telemetry.sampler import Gap, Sampler, sources
from ngcdl.telemetry.usage import Meter

_TOOLKIT = Path(__file__).parents[2]
_LOOK_SECONDS, _SILENT_SECONDS = 2.0, 10.0
_JOIN_SECONDS = 1.0
_MOST_BYTES, _LONGEST = 4096, 200  # kept of what the process wrote to stderr; characters of its last line, in each gap


class _Ended:
    """Stands in for the GPUs when no sampling process reads them."""

    why = "the sampling process did not run"

    def read(self, is_brief: bool = False) -> NoReturn:
        del is_brief
        raise Gap(self.why)


class SamplerProcess:
    """Samples the cards of `run`, its host and its `usage`, from start() to stop(), or within `with`."""

    def __init__(self, path: Path, usage: Meter | None, run: RunProcesses, interval_seconds: float = 1.0) -> None:
        started = time.monotonic()
        self._path = path
        self._gpus = _Ended()
        self._here = Sampler(path, sources(usage, self._gpus), interval_seconds, started=started)
        self._silent_seconds = _SILENT_SECONDS + interval_seconds
        self._argument = json.dumps(
            {
                "path": str(path.absolute()),
                "interval_seconds": interval_seconds,
                "started": started,
                "usage": usage.told() if usage else None,
                "run": asdict(run),
            }
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None
        self._said: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """What went wrong with the sampling itself, for the run's notes."""
        return self._said + self._here.problems

    def start(self) -> None:
        """Start sampling; harmless twice."""
        if self._thread is not None:
            return
        try:
            self._process = self._begun()
        except OSError as error:
            self._gpus.why = f"the sampling process can't be started: {error}"
        self._thread = threading.Thread(target=self._run, name="ngcdl-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End within 2 s, whatever the driver does; harmless twice."""
        self._here.stop()
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)
        if process is not None:
            self._kill(process)

    def __enter__(self) -> SamplerProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _begun(self) -> subprocess.Popen[bytes]:
        paths = [str(_TOOLKIT), os.environ.get("PYTHONPATH", "")]
        return subprocess.Popen(
            processes.of_ngcdl("ngcdl.telemetry.sampler_main", self._argument),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,  # Ctrl-C goes to ngcdl only, which ends this process
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )

    def _run(self) -> None:
        if self._process is not None:
            self._gpus.why = self._watched(self._process)
        if not self._said:
            self._here.run()

    def _watched(self, process: subprocess.Popen[bytes]) -> str:
        """Wait until the process exits, or kill it if it is silent; return how it ended."""
        assert process.stdout is not None
        assert process.stderr is not None
        size, grown, last = -1, time.monotonic(), b""
        while True:
            pipes = [pipe for pipe in (process.stdout, process.stderr) if not pipe.closed]
            ready = select.select(pipes, [], [], _LOOK_SECONDS)[0]
            if process.stderr in ready:  # first: what it wrote before it ended is there when stdout ends
                told = os.read(process.stderr.fileno(), 1 << 16)
                last = (last + told)[-_MOST_BYTES:]
                if not told:
                    process.stderr.close()
            elif process.stdout in ready:
                if not (said := os.read(process.stdout.fileno(), 1 << 16)):
                    return _how(process, last)
                self._said = (said.decode(),)
            before, size = size, _size(self._path)
            now = time.monotonic()
            if size != before:
                grown = now
            elif now - grown > self._silent_seconds:
                process.kill()  # it writes no more: a killed process never returns to user space
                return f"the sampling process wrote nothing for {now - grown:.0f} s, and was ended"

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        process.kill()
        if not processes.reaped(process):
            return
        if self._thread is not None and process.stdout is not None:
            self._thread.join()  # the thread has seen the process end
            process.stdout.close()
            if process.stderr is not None:
                process.stderr.close()


def _how(process: subprocess.Popen[bytes], stderr: bytes) -> str:
    code = None
    with suppress(subprocess.TimeoutExpired):
        code = process.wait(timeout=_JOIN_SECONDS)
    how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    words = stderr.decode(errors="replace").split("\n")
    last = next((line.strip() for line in reversed(words) if line.strip()), None)
    return f"the sampling process ended by itself ({how}{f': {last[:_LONGEST]}' if last else ''})"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
