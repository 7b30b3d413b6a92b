"""How fast cifar10-keras trains on this CPU, against Keras' fit by default, and with and without oneDNN.

Each way runs in its own process on the same synthetic images, with its own warm-up: a rate inside an epoch is the
median over intervals of 25 steps after the first 100; whole epochs are timed from the first one's end to the last's.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import turns
from figures import Figure, Goal, Missing

from ngcdl.trainings import bundled

ROOT = Path(__file__).resolve().parents[2]
PEERS = Path(__file__).with_name("training_peers.py")
FRAMEWORKS = ROOT / ".venv-frameworks/bin/python"  # scripts/test makes it
WARM, EVERY, STEPS = 100, 25, 300  # steps: of warm-up, between two readings, in all
# By default fit uses oneDNN on some processors and not on others, so both settings are separate peers.
ON, OFF = {"TF_ENABLE_ONEDNN_OPTS": "1"}, {"TF_ENABLE_ONEDNN_OPTS": "0"}
GOALS = {"cifar10-keras": 1.5, "cifar10": 1.8}  # inside an epoch, times the peer's rate
AGAINST_ONEDNN, WHOLE = 1.15, 1.8
WITH_ONEDNN = "Keras fit, oneDNN on"
OURS = {"PyTorch": "pytorch", "TensorFlow": "tf2"}
NOTE = {"cifar10-keras": "batch 32, 20,000 made-up images", "cifar10": "batch 128, 20,000 made-up images"}


@dataclass(frozen=True)
class Rate:
    """Examples per second inside an epoch, and over whole ones if there were at least two."""

    inside: float
    whole: float | None = None


def measure(rounds: int | None, until: float) -> Iterator[Figure]:
    python = frameworks()
    yield from measured(python, "cifar10-keras", _articles(python), rounds, until)


def measured(python: str, workload: str, peers: dict[str, Peer], rounds: int | None, until: float) -> Iterator[Figure]:
    taken = [_round(python, workload, peers, turn % 2 == 1) for turn in turns.numbered(rounds or 3, until)]
    series = {name: [one[name] for one in taken] for name in taken[0]}
    yield from (replace(one, note=NOTE[workload]) for one in _figures(workload, list(peers), series))


def _round(python: str, workload: str, peers: dict[str, Peer], is_back: bool) -> dict[str, Any]:
    """Return each way's Rate; for `cifar10` also that of "input" (batches alone); and under "gemm" a rate in FLOP/s."""
    ways: dict[str, Trainer | Peer] = {
        f"ours, {name}": _trainer(python, workload, framework) for name, framework in OURS.items()
    }
    ways |= peers
    if workload == "cifar10":
        ways["input"] = _trainer(python, workload, "pytorch", "input")
    taken: dict[str, Any] = {name: way.rate() for name, way in list(ways.items())[:: -1 if is_back else 1]}
    taken["gemm"] = max(_said([python, str(PEERS), "gemm"])["flops_per_second"].values())
    return taken


def _figures(workload: str, peers: list[str], taken: dict[str, list[Any]]) -> Iterator[Figure]:
    unit = "examples/s"
    inside = {name: tuple(one.inside for one in rates) for name, rates in taken.items() if name != "gemm"}
    for name in OURS:
        ours = f"ours, {name}"
        for peer in peers:
            goal = Goal("ratio", AGAINST_ONEDNN if peer == WITH_ONEDNN else GOALS[workload], at_least=True)
            yield Figure(f"{workload}, {name}, inside an epoch", unit, inside[ours], goal, peer, inside[peer])
            wholes = [tuple(one.whole for one in taken[way]) for way in (ours, peer)]
            if all(one is not None for whole in wholes for one in whole):
                goal = Goal("ratio", WHOLE, at_least=True)
                yield Figure(f"{workload}, {name}, whole epochs", unit, wholes[0], goal, peer, wholes[1])
        flops = bundled(workload).flops_per_example
        shares = tuple(rate * flops / gemm * 100 for rate, gemm in zip(inside[ours], taken["gemm"], strict=True))
        what = f"{workload}, {name}, of the rate of a product of 1,024 x 1,024 float32 numbers"
        yield Figure(what, "%", shares, Goal("ours", 65, at_least=True))
    if "input" in inside:
        goal = Goal("ratio", 3, at_least=True)
        best = max((f"ours, {name}" for name in OURS), key=lambda name: median(inside[name]))
        yield Figure(f"{workload}, its batches made alone", unit, inside["input"], goal, "its training", inside[best])


@dataclass(frozen=True)
class Trainer:
    command: Sequence[str]
    environment: dict[str, str]

    def rate(self) -> Rate:
        with tempfile.TemporaryDirectory() as folder:
            _run([*self.command, "--out", folder], self.environment)
            told = [json.loads(line) for line in Path(folder, "events.jsonl").read_text().splitlines()]
        return of_events(told)


@dataclass(frozen=True)
class Peer:
    command: Sequence[str]
    environment: dict[str, str]

    def rate(self) -> Rate:
        with tempfile.TemporaryDirectory() as folder:
            command = [word.replace("FOLDER", folder) for word in self.command]
            return of_moments(_said(command, self.environment))


def of_events(told: Sequence[dict[str, Any]]) -> Rate:
    """Return the rate from the trainer's events."""
    rates = [one["examples_per_second"] for one in told if one["event"] == "step" and one["step"] > WARM]
    ends = [(one["examples"], one["t"]) for one in told if one["event"] == "epoch"]
    whole = sum(count for count, _ in ends[1:]) / (ends[-1][1] - ends[0][1]) if ends[1:] else None
    return Rate(median(rates), whole)


def of_moments(told: dict[str, Any]) -> Rate:
    """Return the rate from training_peers.py's output."""
    moments = told["moments"][WARM // EVERY :]
    ends = told["epochs"]
    inside = [(a, b) for a, b in pairwise(moments) if not any(a[0] <= count < b[0] for count, _ in ends)]
    rates = [(b[0] - a[0]) / (b[1] - a[1]) for a, b in inside]
    whole = (ends[-1][0] - ends[0][0]) / (ends[-1][1] - ends[0][1]) if ends[1:] else None
    return Rate(median(rates), whole)


def _trainer(python: str, workload: str, framework: str, feed: str = "ahead") -> Trainer:
    length = ["--epochs", "2"] if workload == "cifar10-keras" else ["--steps", f"{STEPS}"]
    command = [python, "-m", "trainer", workload, "--framework", framework, "--device", "cpu", "--feed", feed, *length]
    return Trainer([*command, "--log-frequency", f"{EVERY}", "--no-eval"], {})


def _articles(python: str) -> dict[str, Peer]:
    command = [python, str(PEERS), "keras", "cifar10-keras"]
    return {
        "Keras fit": Peer([*command, "2"], {}),
        WITH_ONEDNN: Peer([*command, "1"], ON),
        "Keras fit, oneDNN off": Peer([*command, "2"], OFF),
    }


def frameworks() -> str:
    python = str(FRAMEWORKS) if FRAMEWORKS.exists() else sys.executable
    if python == sys.executable and not all(map(find_spec, ("tensorflow", "torch"))):
        raise Missing("it needs both frameworks:  NGCDL_LAB=off scripts/test tests/containers -k none  installs them")
    return python


def _said(command: Sequence[str], environment: dict[str, str] | None = None) -> dict[str, Any]:
    return dict(json.loads(_run(command, environment or {}).splitlines()[-1]))


def _run(command: Sequence[str], environment: dict[str, str]) -> bytes:
    whole = os.environ | {"PYTHONPATH": str(ROOT / "containers"), "PYTHONWARNINGS": "ignore"} | environment
    return turns.run(command, whole)
