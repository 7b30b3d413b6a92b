#!/usr/bin/env python3
"""What a pull costs, cold and after a killed client: ngcdl with its relay, ngcdl with the engine's own pull, docker.

    scripts/benchmarks/pull.py [--megabytes 300] [--layers 12] [--runs 3] [--engine bare|floor] [--rate BYTES]
                               [--connections 4 ...] [--cuts 50 99]

Turn and turn about, onto an engine and from a registry of its own, which are gone afterwards; wants the packages of the
bench (scripts/lab up) and root. `--rate` limits each connection, as a CDN does. Told are median (least..most) of the
seconds, of their ratio to docker's, and after a cut the share of the image's bytes that travelled again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from lab_parts import engines, image_writer, registry
from lab_parts.where import Lab

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY, TAG = "nvidia/bench", "1"
# The number of connections is no setting of ngcdl's: this is the one place that changes it.
NGCDL = (
    "import sys; from ngcdl.registry.relay import Relay; "
    "Relay.__init__.__kwdefaults__['connections'] = int(sys.argv.pop(1)); "
    "from ngcdl.__main__ import main; sys.exit(main())"
)


@dataclass(frozen=True)
class Stage:
    """An engine, a registry with one image of `bytes`, and somebody at home in `home`."""

    host: str
    engine: str
    data: Path
    faults: Path
    log: Path
    home: Path
    bytes: int

    @property
    def image(self) -> str:
        return f"{self.host}/{REPOSITORY}:{TAG}"

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("NGC", "DOCKER_", "XDG_"))}
        path = str(ROOT / "toolkit")
        return {**kept, "HOME": str(self.home), "DOCKER_HOST": self.engine, "PYTHONPATH": path}

    def cold(self) -> None:
        """Take the image away, and what was kept of it."""
        quiet = {"env": self.environment, "capture_output": True}
        names = subprocess.run(["docker", "images", "-q"], text=True, check=True, **quiet).stdout.split()  # type: ignore[call-overload]
        if names:
            subprocess.run(["docker", "rmi", "-f", *set(names)], check=True, **quiet)  # type: ignore[call-overload]
        shutil.rmtree(self.home / ".cache", ignore_errors=True)
        self.log.write_text("")

    def travelled(self) -> int:
        """How many bytes of blobs left the registry since the last cold()."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return sum(line["bytes"] for line in lines if "/blobs/" in line["path"])

    def arrived(self, seen: dict[Path, int]) -> int:
        """How many bytes of layers lie on this disk half-way: in ngcdl's cache, or in the engine's folder for them."""
        for path in (*self.home.glob(".cache/ngcdl/blobs/sha*"), *self.data.glob("tmp/GetImageBlob*")):
            with contextlib.suppress(OSError):
                seen[path.with_suffix("")] = max(seen.get(path.with_suffix(""), 0), path.stat().st_size)
        ours = [size for path, size in seen.items() if path.is_relative_to(self.home)]
        return sum(ours or seen.values())


@contextlib.contextmanager
def staged(asked: argparse.Namespace) -> Iterator[Stage]:
    bench = Lab.from_environment()
    folder = Path(tempfile.mkdtemp(prefix="ngcdl-pull-", dir="/tmp"))  # a socket's path must be short
    lab = Lab(folder, folder / "cache")
    lab.cache.mkdir()
    for one in bench.cache.iterdir():
        if one.name not in ("registry", "layers.json"):
            (lab.cache / one.name).symlink_to(one)
    try:
        about = registry.up(lab)
        total = _image(lab, asked.layers, asked.megabytes * 1_000_000)
        engine = engines.up(lab, asked.engine)
        faults = Path(str(about["fault_file"]))
        if asked.rate:
            faults.write_text(json.dumps({"blob": {"bytes_per_second": asked.rate}}))
        (folder / "home").mkdir()
        data = folder / asked.engine / "data"
        log = Path(str(about["request_log"]))
        yield Stage(str(about["host"]), str(engine["host"]), data, faults, log, folder / "home", total)
    finally:
        engines.down(lab, asked.engine)
        registry.down(lab)
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            if line.split()[1].startswith(f"{folder}/"):
                subprocess.run(["umount", "-l", line.split()[1]], check=False)
        shutil.rmtree(folder, ignore_errors=True)


def _image(lab: Lab, count: int, total: int) -> int:
    """Put an image there whose layers weigh `total` bytes on the way and about twice that unpacked."""
    layers = [
        image_writer.layer(lab, REPOSITORY, f"bench-{number}", lambda number=number: _pieces(number, total // count))
        for number in range(count)
    ]
    image_writer.manifest(lab, REPOSITORY, TAG, layers, {"Cmd": ["true"]})
    return sum(layer.bytes for layer in layers)


def _pieces(number: int, size: int) -> Iterable[bytes]:
    chance = random.Random(number)
    parts = [chance.randbytes(1 << 16) + bytes(1 << 16) for _ in range(size >> 16)]
    return [image_writer.tar_of_files({f"layer-{number}": (b"".join(parts), 0o644)})]


def commands(stage: Stage, connections: list[int]) -> dict[str, tuple[list[str], dict[str, str]]]:
    python = [sys.executable, "-P", "-c", NGCDL]
    ours = {f"relay, {n} connections": ([*python, str(n), "pull", stage.image], {}) for n in connections}
    own = {"the engine's own": ([*python, "4", "pull", stage.image], {"NGCDL_PULL": "engine"})}
    return {**ours, **own, "docker pull": (["docker", "pull", "-q", stage.image], {})}


def start(stage: Stage, command: list[str], more: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command, env=stage.environment | more, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


def finish(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate()
    if process.returncode:
        sys.exit(f"it ended with {process.returncode}: {errors.decode(errors='replace')[-800:]}")


def seconds(what: Callable[[], None]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def again(stage: Stage, command: list[str], more: dict[str, str], percent: int) -> tuple[float, float]:
    """Kill a pull when so much has arrived; give the seconds of the next one, and its share of the image's bytes."""
    stage.cold()
    process = start(stage, command, more)
    seen: dict[Path, int] = {}
    while process.poll() is None and stage.arrived(seen) < stage.bytes * percent / 100:
        time.sleep(0.002)
    process.kill()
    process.communicate()
    time.sleep(1)  # the engine and the registry notice that nobody listens
    before = stage.travelled()
    took = seconds(lambda: finish(start(stage, command, more)))
    return took, (stage.travelled() - before) / stage.bytes


def spread(values: list[float], digits: int = 2) -> str:
    return f"{median(values):.{digits}f} ({min(values):.{digits}f}..{max(values):.{digits}f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=300, help="of the image on the way, up to 2000")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--engine", choices=["bare", "floor"], default="bare", help="Docker 26.1 or 20.10")
    parser.add_argument("--rate", type=int, help="bytes a second that the registry gives each connection")
    parser.add_argument("--connections", type=int, nargs="+", default=[4])
    parser.add_argument("--cuts", type=int, nargs="*", default=[50, 99], help="percent of the bytes")
    asked = parser.parse_args()
    with staged(asked) as stage:
        ways = commands(stage, asked.connections)
        taken: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(asked.runs + 1):
            for name, (command, more) in list(ways.items())[:: 1 if turn % 2 else -1]:
                stage.cold()
                took = seconds(lambda command=command, more=more: finish(start(stage, command, more)))  # type: ignore[misc]
                if turn:  # the first one warms the page cache of the registry
                    taken[name].append(took)
        rate = f", {asked.rate / 1e6:g} MB/s a connection" if asked.rate else ""
        print(
            f"{stage.bytes / 1e6:.0f} MB in {asked.layers} layers, loopback{rate}, engine {asked.engine}, "
            f"{asked.runs} runs, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, "
            f"Python {platform.python_version()}"
        )
        for name, times in taken.items():
            ratios = [a / b for a, b in zip(times, taken["docker pull"], strict=True)]
            print(f"    cold    {name:<22} {spread(times)} s   {spread(ratios)} x")
        for percent in asked.cuts:
            for name, (command, more) in ways.items():
                runs = [again(stage, command, more, percent) for _ in range(asked.runs)]
                took, shares = spread([took for took, _ in runs]), spread([100 * share for _, share in runs])
                print(f"    {percent:>2} %    {name:<22} {took} s   {shares} % again")


if __name__ == "__main__":
    main()
