"""The process that takes the samples of a run with GPUs: a driver call that never returns, or crashes, is its trouble.

A program of its own (python -m ngcdl.telemetry.sampling JSON), started, watched and ended by apart.py. It samples until
its input ends. If that fails, it says why in a line of its output, and ends. The argument holds
{"path", "interval_seconds", "started": CLOCK_MONOTONIC, s, "usage": as usage.meter() takes it, or null,
 "run": {"uuids", "container", "pid"} as in cards.py}
"""

from __future__ import annotations

import gc
import json
import os
import select
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from ngcdl.telemetry import cards, gpu, usage
from ngcdl.telemetry.gpu_reader import GpuReader
from ngcdl.telemetry.sample import GpuSample
from ngcdl.telemetry.sampler import Sampler, SystemClock, sources

_IN, _OUT = 0, 1


class _UntilTheInputEnds(SystemClock):
    def wait(self, event: threading.Event, seconds: float) -> bool:
        del event
        return bool(select.select([_IN], [], [], seconds)[0])


def main(argument: str) -> None:
    wanted = json.loads(argument)
    run = cards.Run(**wanted["run"])

    def connected() -> Callable[[], tuple[GpuSample, ...]]:
        return cards.Cards(gpu.connect(), run).read

    meter = usage.meter(wanted["usage"]) if wanted["usage"] else None
    reads = sources(meter, GpuReader(connected))
    seconds = wanted["interval_seconds"]
    sampler = Sampler(Path(wanted["path"]), reads, seconds, _UntilTheInputEnds(), wanted["started"])
    gc.freeze()  # what is here now stays
    sampler.run()
    os.write(_OUT, "\n".join(sampler.problems).encode())
    os.close(_OUT)  # a call that never returns keeps the process, and what it has open
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
