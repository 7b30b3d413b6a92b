"""How long ngcdl takes as a whole process for --version, --help, and `runs` with 10,000 runs."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import peers
from figures import Figure, Goal
from made_runs import Made
from turns import in_turn, seconds

ROOT = Path(__file__).resolve().parents[2]
NGCDL = [sys.executable, "-P", "-m", "ngcdl"]
PEERS = ("gpustat", "ramalama")
RUNS = 10_000


def measure(rounds: int | None, until: float) -> Iterator[Figure]:
    rounds = rounds or 15
    with peers.installed(PEERS) as found:
        programs = {name: str(path) for name, path in found.items()}
        if shutil.which("docker"):
            programs = {"docker": "docker"} | programs
        for option, limit in (("--version", 0.05), ("--help", 0.30)):
            yield from _beside(option, limit, programs, rounds, until)
    commands = {"ours": [str(ROOT / "scripts/ngcdl"), "--version"], "theirs": [*NGCDL, "--version"]}
    taken = in_turn({name: partial(seconds, command) for name, command in commands.items()}, rounds, until=until)
    yield Figure("scripts/ngcdl --version", "s", taken["ours"], None, "the same without the script", taken["theirs"])
    with tempfile.TemporaryDirectory() as state:
        _fill(Path(state, "ngcdl/runs"))
        environment = {**os.environ, "XDG_STATE_HOME": state}
        took = in_turn({"runs": partial(seconds, [*NGCDL, "runs"], environment)}, rounds, until=until)["runs"]
        yield Figure("ngcdl runs", "s", took, Goal("ours", 0.5), note=f"{RUNS:,} runs")


def _beside(option: str, limit: float, programs: dict[str, str], rounds: int, until: float) -> Iterator[Figure]:
    ways = {"ngcdl": [*NGCDL, option]} | {name: [program, option] for name, program in programs.items()}
    taken = in_turn({name: partial(seconds, command) for name, command in ways.items()}, rounds, until=until)
    for name in programs:
        yield Figure(f"ngcdl {option}", "s", taken["ngcdl"], Goal("ours", limit), f"{name} {option}", taken[name])
    if not programs:
        yield Figure(f"ngcdl {option}", "s", taken["ngcdl"], Goal("ours", limit))


def _fill(runs: Path) -> None:
    """Create 10,000 runs there, each with the record of a training on a GPU."""
    record = json.dumps(Made().story().run.as_json(), indent=1)
    for number in range(RUNS):
        second = f"{number // 3600:02}{number // 60 % 60:02}{number % 60:02}"
        folder = runs / f"20261121-{second}-cifar10-{number % 4096:03x}abc"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(record.replace('"made"', json.dumps(folder.name)))
