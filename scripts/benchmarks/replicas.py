"""What a second replica gains without a second card: two processes with one thread each on a CPU.

Needs a Python that has the frameworks (NGCDL_BENCH_PYTHON), and two idle cores.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from figures import Figure, Missing
from turns import in_turn, run, share

CONTAINERS = Path(__file__).resolve().parents[2] / "containers"
BATCH, SECONDS = 128, 5
TRAIN = f"cifar10-keras --device cpu --batch {BATCH} --seconds {SECONDS} --log-frequency 1 --no-eval"
MODULES = {"pytorch": "torch", "tf2": "tensorflow"}
TWO, ONE, ONE_OF_TWO = "--replicas 2 --threads 1", "--replicas 1 --threads 1", "--replicas 1 --threads 2"
PEERS = {ONE: "one process with one thread", ONE_OF_TWO: "one process with two threads"}


def measure(rounds: int | None, until: float) -> Iterator[Figure]:
    frameworks = [name for name, module in MODULES.items() if find_spec(module)]
    if not frameworks:
        raise Missing("this Python has no framework: NGCDL_BENCH_PYTHON=... names one that does")
    for number, framework in enumerate(frameworks):
        ways = {words: partial(_milliseconds, f"--framework {framework} {words}") for words in (TWO, ONE, ONE_OF_TWO)}
        taken = in_turn(ways, rounds or 3, 0, share(until, len(frameworks) - number))
        for words, peer in PEERS.items():
            yield Figure(
                f"cifar10-keras in two replicas of one thread, {framework}", "ms a step", taken[TWO], against=peer,
                theirs=taken[words], note=f"batch {BATCH} in all, {SECONDS} s each, made-up images",
            )  # fmt: skip


def _milliseconds(words: str) -> float:
    """Train; return the milliseconds per step between the end of the first step and that of the last."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "trainer", *TRAIN.split(), *words.split(), "--out", folder]
        run(command, {**os.environ, "PYTHONPATH": str(CONTAINERS)})
        told = [json.loads(line) for line in Path(folder, "events.jsonl").read_text().splitlines()]
    first, *_, last = [event for event in told if event["event"] == "step"]
    return float(1000 * (last["t"] - first["t"]) / (last["step"] - first["step"]))
