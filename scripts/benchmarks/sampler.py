#!/usr/bin/env python3
"""What sampling costs: CPU seconds in a minute at one sample a second, of the sampler and of its GPU process.

    scripts/benchmarks/sampler.py [--seconds 60] [--interval 1] [--gpus] [--docker-pid PID]

It measures a busy child as a run's process tree (or a container, by the PID of its first process), and asks NVML with
--gpus. Python's own start is not counted: the first second is left out. Prints one JSON document.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2] / "toolkit"))

from ngcdl.telemetry import gpu, host
from ngcdl.telemetry.container import ContainerMeter, ProcessMeter
from ngcdl.telemetry.gpu_reader import GpuReader
from ngcdl.telemetry.sampler import Sampler, sources


def cpu_seconds() -> tuple[float, float]:
    """Give the CPU time of this process, and of the GPU process that it started."""
    me = psutil.Process()
    workers = [child for child in me.children() if "ngcdl.telemetry.gpu_worker" in child.cmdline()]
    return sum(me.cpu_times()[:2]), sum(sum(one.cpu_times()[:2]) for one in workers)


def measure(options: argparse.Namespace, busy: int, path: Path) -> dict[str, object]:
    meter = ContainerMeter(options.docker_pid) if options.docker_pid else ProcessMeter(busy)
    reader = GpuReader(pid=busy, container_id=None) if options.gpus else None
    with Sampler(path, sources(meter, reader), options.interval) as sampler:
        time.sleep(1)
        before, began, taken = cpu_seconds(), time.monotonic(), sampler.taken
        time.sleep(options.seconds)
        after, wall = cpu_seconds(), time.monotonic() - began
        samples = sampler.taken - taken
    own, worker = ((now - then) * 60 / wall for now, then in zip(after, before, strict=True))
    return {
        "cpu_seconds_per_minute": round(own + worker, 3),
        "sampler": round(own, 3),
        "gpu_process": round(worker, 3),
        "percent_of_one_core": round((own + worker) / 60 * 100, 2),
        "samples": samples,
        "gaps": sampler.gaps,
        "interval_seconds": options.interval,
        "seconds": round(wall, 1),
        "processes_on_host": len(psutil.pids()),
        "cards": len(gpu.probe().cards) if options.gpus else 0,
        "host": host.machine().cpu,
        "cores": host.machine().cores,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--interval", type=float, default=1)
    parser.add_argument("--gpus", action="store_true")
    parser.add_argument("--docker-pid", type=int)
    options = parser.parse_args()
    busy = subprocess.Popen([sys.executable, "-c", "import time\nwhile True: time.sleep(.001)"])
    try:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(measure(options, busy.pid, Path(folder) / "samples.jsonl"), indent=1))
    finally:
        busy.kill()
        busy.wait()


if __name__ == "__main__":
    main()
