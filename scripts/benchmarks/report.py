"""The time and memory that a report takes for a run of a million logged steps and 100,000 samples."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from figures import Figure, Goal
from turns import numbered

ROOT = Path(__file__).resolve().parents[2]
STEPS, SAMPLES = 1_000_000, 100_000
LOOK_SECONDS = 0.02


def measure(rounds: int | None, until: float) -> Iterator[Figure]:
    with tempfile.TemporaryDirectory() as state:
        paths = f"{ROOT / 'toolkit'}:{ROOT / 'tests/support'}"
        environment = {**os.environ, "XDG_STATE_HOME": state, "PYTHONPATH": paths}
        # in another process: a child's peak memory would otherwise include what it inherits from this one
        subprocess.run([sys.executable, __file__, state], env=environment, check=True)
        taken = [_taken(environment, Path(state, "page.html")) for _ in numbered(rounds or 5, until, -1)][1:]
    note = f"{STEPS:,} logged steps, {SAMPLES:,} samples"
    seconds, megabytes = zip(*taken, strict=True)
    yield Figure("ngcdl report", "s", seconds, Goal("ours", 3), note=note)
    apart = f"{note}; the most of each process, added up"
    yield Figure("ngcdl report, memory at most", "MB", megabytes, Goal("ours", 300), note=apart)


def _taken(environment: dict[str, str], page: Path) -> tuple[float, float]:
    """Make the page; return the seconds, and the sum of its processes' peak MB, which counts shared pages twice."""
    command = [sys.executable, "-P", "-m", "ngcdl", "report", "long", "--html", str(page)]
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    children: dict[int, int] = {}
    ended = threading.Event()
    watch = threading.Thread(target=_watch, args=(process.pid, children, ended))
    watch.start()
    _, status, usage = os.wait4(process.pid, 0)
    took = time.perf_counter() - began
    ended.set()
    watch.join()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{command} ended with {process.returncode}")
    return took, (usage.ru_maxrss + sum(children.values())) / 1000


def _watch(pid: int, children: dict[int, int], ended: threading.Event) -> None:
    """Record the peak KB of each child of a process; the kernel does not report their sum."""
    while not ended.wait(LOOK_SECONDS):
        with suppress(OSError):
            for child in map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
                _, is_told, told = Path(f"/proc/{child}/status").read_text().partition("VmHWM:")
                if is_told:
                    children[child] = int(told.split()[0])


def _make(state: str) -> None:
    """Save the synthetic run there; every tenth step of it is logged."""
    from made_runs import Made

    from ngcdl.storing.store import Store

    Made(steps=10 * STEPS, samples=SAMPLES, rate=100_000.0).keep(Store(Path(state, "ngcdl/runs")), "long")


if __name__ == "__main__":
    _make(sys.argv[1])
