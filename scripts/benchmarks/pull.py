"""What a pull costs compared with docker's own: cold, over a slow line, and again after its client was killed.

One image has real files; the others have noise and zeros, which gunzip faster, as half of the data is stored.

It uses a temporary engine and registry of its own; needs root and the lab's packages (scripts/lab up). For a killed
pull the figure is the share of the image's bytes that is transferred again.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import conditions
import train_cpu
from figures import Figure, Goal, Missing
from lab_parts import engines, image_writer, registry
from lab_parts.where import Lab
from turns import in_turn, seconds

ROOT = Path(__file__).resolve().parents[2]
REPOSITORY, TAG = "nvidia/bench", "1"
ENGINE = "bare"  # Docker 26.1; floor: 20.10
SLOW = 12_000_000  # bytes per second and connection, as from a CDN
SMALLEST_PACKAGE = 8_000_000  # bytes: smaller ones would make negligible layers


@dataclass(frozen=True)
class Stage:
    """An engine, a registry with one image of `bytes`, and a user with the home folder `home`."""

    host: str
    engine: str
    data: Path
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

    @property
    def conditions(self) -> dict[str, str]:
        """The version of the stage's own engine, which is not the one of the caller's shell."""
        return {"docker": conditions.docker(self.environment)}

    def cold(self) -> None:
        """Remove the image, ngcdl's cache, and the request log."""
        quiet = {"env": self.environment, "capture_output": True}
        names = subprocess.run(["docker", "images", "-q"], text=True, check=True, **quiet).stdout.split()  # type: ignore[call-overload]
        if names:
            subprocess.run(["docker", "rmi", "-f", *set(names)], check=True, **quiet)  # type: ignore[call-overload]
        shutil.rmtree(self.home / ".cache", ignore_errors=True)
        self.log.write_text("")

    def travelled(self) -> int:
        """Return how many bytes of blobs the registry has sent since the last cold()."""
        lines = [json.loads(line) for line in self.log.read_text().splitlines()]
        return sum(line["bytes"] for line in lines if "/blobs/" in line["path"])

    def arrived(self, seen: dict[Path, int]) -> int:
        """Return how many bytes of layers have been downloaded, to ngcdl's cache or, if there are none, to the engine's
        folder.

        `seen` keeps the largest size of each file, which may be removed meanwhile."""
        for path in (*self.home.glob(".cache/ngcdl/blobs/sha*"), *self.data.glob("tmp/GetImageBlob*")):
            with contextlib.suppress(OSError):
                seen[path.with_suffix("")] = max(seen.get(path.with_suffix(""), 0), path.stat().st_size)
        ours = [size for path, size in seen.items() if path.is_relative_to(self.home)]
        return sum(ours or seen.values())


@contextlib.contextmanager
def staged(image: Callable[[Lab], int], rate: int | None = None) -> Iterator[Stage]:
    """Set up a stage with the image that `image` makes. Raise Missing without root or the lab's packages."""
    usual = Lab.from_environment()
    if os.geteuid() or not usual.cache.is_dir():
        raise Missing("it needs root and the lab's packages:  scripts/lab up")
    folder = Path(tempfile.mkdtemp(prefix="ngcdl-pull-", dir="/tmp"))  # a socket's path must be short
    lab = Lab(folder, folder / "cache")
    lab.cache.mkdir()
    for one in usual.cache.iterdir():
        if one.name not in ("registry", "layers.json"):
            (lab.cache / one.name).symlink_to(one)
    try:
        about = registry.up(lab)
        weight = image(lab)
        engine = engines.up(lab, ENGINE)
        faults = Path(str(about["fault_file"]))
        if rate:
            faults.write_text(json.dumps({"blob": {"bytes_per_second": rate}}))
        (folder / "home").mkdir()
        data, log = folder / ENGINE / "data", Path(str(about["request_log"]))
        yield Stage(str(about["host"]), str(engine["host"]), data, log, folder / "home", weight)
    finally:
        engines.down(lab, ENGINE)
        registry.down(lab)
        engines.unmount(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _noise(total: int, count: int) -> Callable[[Lab], int]:
    """Make an image of noise and zeros whose layers have `total` bytes compressed and about twice that unpacked."""
    return lambda lab: _put(lab, {f"bench-{one}": partial(_pieces, one, total // count) for one in range(count)})


def _packages(lab: Lab) -> int:
    """Make an image of TensorFlow, PyTorch and their dependencies, one layer each: files like those in NVIDIA's."""
    (site,) = Path(train_cpu.frameworks()).parents[1].glob("lib/python*/site-packages")
    folders = sorted(one for one in site.iterdir() if one.is_dir() and _bytes_in(one) > SMALLEST_PACKAGE)
    tars = {one.name: partial(image_writer.tar_of_folder, one, (), f"opt/{one.name}") for one in folders}
    return _put(lab, tars)


def _bytes_in(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _put(lab: Lab, layers: Mapping[str, Callable[[], Iterable[bytes]]]) -> int:
    """Put an image into the registry, from one tar per layer; return the compressed bytes of its layers."""
    made = [image_writer.layer(lab, REPOSITORY, name, tar) for name, tar in layers.items()]
    image_writer.manifest(lab, REPOSITORY, TAG, made, {"Cmd": ["true"]})
    return sum(layer.bytes for layer in made)


def _pieces(number: int, size: int) -> Iterable[bytes]:
    chance = random.Random(number)
    parts = [chance.randbytes(1 << 16) + bytes(1 << 16) for _ in range(size >> 16)]
    return [image_writer.tar_of_files({f"layer-{number}": (b"".join(parts), 0o644)})]


def measure(rounds: int | None, until: float) -> Iterator[Figure]:
    rounds = rounds or 3
    # Without a warm-up: a round takes most of a minute here, and making the image has already warmed the caches.
    with staged(_packages) as stage:
        yield _cold(stage, "TensorFlow, PyTorch and their packages, a loopback without limit", rounds, until, 0)
    with staged(_noise(2_000_000_000, 40)) as stage:
        yield _cold(stage, "40 layers of noise and zeros, a loopback without limit", rounds, until, 0)
    with staged(_noise(300_000_000, 12), SLOW) as stage:
        yield _cold(stage, f"12 layers, {SLOW / 1e6:g} MB/s each connection", rounds, until)
        for percent in (50, 99):
            yield _again(stage, percent, rounds, until)


def _commands(stage: Stage) -> dict[str, list[str]]:
    ours = [sys.executable, "-P", "-m", "ngcdl", "pull", stage.image]
    return {"ours": ours, "theirs": ["docker", "pull", "-q", stage.image]}


def _cold(stage: Stage, line: str, rounds: int, until: float, warm_ups: int = 1) -> Figure:
    def pulled(command: list[str]) -> float:
        stage.cold()
        return seconds(command, stage.environment)

    ways = {name: partial(pulled, command) for name, command in _commands(stage).items()}
    took = in_turn(ways, rounds, warm_ups, until)
    what = f"ngcdl pull of {stage.bytes / 1e9:.1f} GB"
    return Figure(
        what, "s", took["ours"], Goal("ratio", 1.0), "docker pull", took["theirs"], line, conditions=stage.conditions
    )


def _again(stage: Stage, percent: int, rounds: int, until: float) -> Figure:
    shares = {name: partial(_travelled_again, stage, command, percent) for name, command in _commands(stage).items()}
    taken = in_turn(shares, rounds, 0, until)
    what = f"ngcdl pull after a kill at {percent} % of the bytes: fetched again"
    note = f"{stage.bytes / 1e9:.1f} GB in 12 layers"
    goal, theirs = Goal("ours", 2.0), taken["theirs"]
    return Figure(what, "%", taken["ours"], goal, "docker pull", theirs, note, conditions=stage.conditions)


def _travelled_again(stage: Stage, command: list[str], percent: int) -> float:
    """Kill a pull after `percent` of the bytes; return the percentage of the image that the next one fetches again."""
    stage.cold()
    process = subprocess.Popen(
        command, env=stage.environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    seen: dict[Path, int] = {}
    while process.poll() is None and stage.arrived(seen) < stage.bytes * percent / 100:
        time.sleep(0.002)
    process.kill()
    process.wait()
    time.sleep(1)  # for the engine and the registry to notice the disconnect
    seconds(command, stage.environment)
    return 100 * max(0.0, stage.travelled() / stage.bytes - 1)
