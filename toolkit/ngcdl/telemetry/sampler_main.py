"""The process that samples a run with GPUs, so that a driver call that hangs or crashes affects nothing else.

A separate program (python -m ngcdl.telemetry.sampler_main JSON), started, watched and ended by sampler_process.py. It
samples until its stdin closes. If sampling fails, it writes the reason as a line to its stdout and exits. The argument
holds
{"path", "interval_seconds", "started": CLOCK_MONOTONIC, s, "usage": as usage.meter() takes it, or null,
 "run": {"uuids", "container", "pid"} as in card_samples.py}
"""

from __future__ import annotations

import gc
import json
import os
import select
import sys
import threading
from pathlib import Path
from typing import Any

from ngcdl.errors import NvmlUnavailable
from ngcdl.telemetry import card_samples, gpu, usage
from ngcdl.telemetry.sampler import Gap, SystemClock, sources
from ngcdl.telemetry.watched_sampler import WatchedSampler

_IN, _OUT = 0, 1


class _UntilTheInputEnds(SystemClock):
    def wait(self, event: threading.Event, seconds: float) -> bool:
        del event
        return bool(select.select([_IN], [], [], seconds)[0])


class _Driver:
    """Reads the cards of a run. A driver that can't be opened is not tried again."""

    def __init__(self, run: card_samples.RunProcesses) -> None:
        self._run = run
        self._cards: card_samples.Cards | None = None
        self._why: str | None = None

    def read(self, is_brief: bool = False) -> list[dict[str, Any]]:
        if self._why:
            raise Gap(self._why)
        try:
            self._cards = self._cards or card_samples.Cards(gpu.connect(), self._run)
        except NvmlUnavailable as error:
            self._why = error.message
            raise Gap(self._why) from error
        return self._cards.read(is_brief)


def main(argument: str) -> None:
    wanted = json.loads(argument)
    meter = usage.meter(wanted["usage"]) if wanted["usage"] else None
    reads = sources(meter, _Driver(card_samples.RunProcesses(**wanted["run"])))
    path, seconds, started = Path(wanted["path"]), wanted["interval_seconds"], wanted["started"]
    sampler = WatchedSampler(path, reads, seconds, _UntilTheInputEnds(), started)
    gc.freeze()  # the objects that exist now stay: collections can skip them
    sampler.run()
    os.write(_OUT, "\n".join(sampler.problems).encode())
    os.close(_OUT)  # a call that never returns keeps the process and its files open
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
