"""What sampling eight cards ten times a second costs, and how regular it is, compared with its peers.

Only the cards' utilisation and power are read each time, everything else twice a second (telemetry/sampler.py); the
peers read everything about a card at each sample, nvitop's collector also the host.

The cards are the stand-in's (scripts/lab_parts/nvml.c), which answers here from memory, so only the caller is measured.
All run at the same time, each mostly idle. The first two seconds are left out, so start-up does not count.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from statistics import quantiles

import peers
import psutil
from figures import Figure, Goal, Missing
from turns import numbered

ROOT = Path(__file__).resolve().parents[2]
PARTS = ROOT / "scripts/lab_parts"
CARDS, HERTZ, SECONDS, START_SECONDS = 8, 10, 60, 2
PEERS = ("gpustat", "nvitop")
# nvitop's screen is drawn at most four times a second; the comparable sampler is its collector.
COLLECTOR = """
import sys, time, nvitop
collector = nvitop.ResourceMetricCollector(nvitop.Device.all(), interval=float(sys.argv[1]))
collector.daemonize(on_collect=lambda metrics: True)
time.sleep(1e6)
"""


def measure(rounds: int | None, until: float) -> Iterator[Figure]:
    with peers.installed(PEERS) as found, tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, **_stand_in(Path(folder)), "TERM": "xterm", "PYTHONPATH": str(ROOT / "toolkit")}
        samples = Path(folder, "samples.jsonl")
        commands = {"ngcdl": [sys.executable, __file__, str(samples)]}
        commands |= {name: _command(path) for name, path in found.items()}
        took: dict[str, list[float]] = {name: [] for name in commands}
        late: list[float] = []
        for _ in numbered(rounds or 3, until):
            samples.unlink(missing_ok=True)
            for name, percent in _percents(commands, environment).items():
                took[name].append(percent)
            late.append(_jitter(samples))
    seldom = "but for the cards' use and power all 2 a second"
    note = f"{CARDS} stand-in cards, {HERTZ} a second for {SECONDS} s; {seldom}"
    ours = tuple(took.pop("ngcdl"))
    yield Figure("sampling, of one core", "%", ours, Goal("ours", 0.5), note=note)
    for name, theirs in took.items():
        each = tuple(10 * percent / _hertz(name) for percent in theirs)
        what = "processor time for each sample"
        yield Figure(what, "ms", tuple(10 * one / HERTZ for one in ours), Goal("ratio", 0.2), _said(name), each, note)
    yield Figure("jitter of the samples, 99th percentile", "ms", tuple(late), Goal("ours", 20), note=note)


def _command(program: Path) -> list[str]:
    seconds = str(1 / HERTZ)
    return {
        "gpustat": [str(program), "--interval", seconds, "--no-color"],
        "nvitop": [str(program.with_name("python")), "-c", COLLECTOR, seconds],
    }[program.name]


def _hertz(name: str) -> float:
    """Return its samples per second: gpustat draws once a second, even if a shorter interval is requested."""
    return 1 if name.startswith("gpustat") else HERTZ


def _said(name: str) -> str:
    return f"{name}'s collector" if name.startswith("nvitop") else f"{name} -i {1 / HERTZ:g}"


def _stand_in(folder: Path) -> dict[str, str]:
    """Build the library and its file with eight cards; return the variables to use them. Raise Missing without a
    compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise Missing("building the stand-in for NVML needs a C compiler:  sudo apt-get install gcc libc6-dev")
    library = folder / "libnvidia-ml.so.1"
    build = [compiler, "-shared", "-fPIC", "-O2", "-DNGCDL_STILL", "-o", str(library), str(PARTS / "nvml.c")]
    subprocess.run(build, check=True)
    lines = (PARTS / "nvml.state").read_text().splitlines()
    cards = [line.removeprefix("gpu1.") for line in lines if line.startswith("gpu1.")]
    said = [line for line in lines if line and not line.startswith(("gpu", "#"))]
    for number in range(CARDS):
        said += [f"gpu{number}.{line.replace('a100a100a100', f'a100a100a10{number}')}" for line in cards]
    state = folder / "nvml.state"
    state.write_text("\n".join(said) + "\n")
    return {"LD_LIBRARY_PATH": str(folder), "NGCDL_NVML_STATE": str(state)}


def _percents(commands: Mapping[str, list[str]], environment: Mapping[str, str]) -> dict[str, float]:
    """Run all commands for a while; return the percentage of one core that each took, with its children."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "env": environment}
    started = {name: subprocess.Popen(command, **quiet) for name, command in commands.items()}  # type: ignore[call-overload]
    try:
        time.sleep(START_SECONDS)
        before, began = {name: _cpu_seconds(one) for name, one in started.items()}, time.monotonic()
        time.sleep(SECONDS)
        wall = time.monotonic() - began
        return {name: 100 * (_cpu_seconds(one) - before[name]) / wall for name, one in started.items()}
    finally:
        for one in started.values():
            one.terminate()
            one.wait()


def _cpu_seconds(process: subprocess.Popen[bytes]) -> float:
    if process.poll() is not None:
        sys.exit(f"{process.args} ended by itself with {process.returncode}")
    parent = psutil.Process(process.pid)
    return sum(sum(one.cpu_times()[:2]) for one in (parent, *parent.children(recursive=True)))


def _jitter(samples: Path) -> float:
    """Return the 99th percentile of the deviation of the sampling interval from the requested one, in ms."""
    at = [json.loads(line)["seconds"] for line in samples.read_text().splitlines()]
    at = [t for t in at if START_SECONDS <= t <= SECONDS]
    off = [1000 * abs(later - earlier - 1 / HERTZ) for earlier, later in pairwise(at)]
    return quantiles(off, n=100)[98]


def _sample(path: Path) -> None:
    """Sample as for a run in a container, until terminated."""
    from ngcdl.telemetry.card_samples import RunProcesses
    from ngcdl.telemetry.gpu import open_nvml
    from ngcdl.telemetry.sampler_process import SamplerProcess
    from ngcdl.telemetry.usage import ContainerMeter

    with open_nvml() as nvml:
        uuids = [str(card.uuid) for card in nvml.inventory()]
    with SamplerProcess(path, ContainerMeter(os.getpid()), RunProcesses(uuids, pid=os.getpid()), 1 / HERTZ):
        time.sleep(1e6)


if __name__ == "__main__":
    _sample(Path(sys.argv[1]))
