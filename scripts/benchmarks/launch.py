"""What ngcdl adds to `docker run`, for a command that does nothing and for a training up to its first step."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from figures import Figure, Goal, Missing
from turns import in_turn, seconds, share

NGCDL = [sys.executable, "-P", "-m", "ngcdl"]
ROOT = Path(__file__).resolve().parents[2]
TRAINING = ("--steps", "2", "--batch", "32", "--data", "synthetic", "--device", "cpu")


def measure(rounds: int | None, until: float) -> Iterator[Figure]:
    registry = os.environ.get("NGCDL_REGISTRY")
    if not registry:
        raise Missing("it needs the lab:  scripts/lab up")
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        key = json.loads(Path(os.environ["NGCDL_LAB_JSON"]).read_text())["registry"]["key"]
        environment = {**os.environ, "HOME": home, "NGC_API_KEY": key}  # the lab's own key, valid only there
        image = f"{registry}/nvidia/busybox:1"
        ours = [*NGCDL, "run", image, "--", "true"]
        seconds(ours, environment)  # warm-up: pulls the image and finds out what this host forbids
        ways = {"ours": ours, "theirs": ["docker", "run", "--rm", "--init", image, "true"]}
        runs = {name: partial(seconds, command, environment) for name, command in ways.items()}
        took = in_turn(runs, rounds or 15, until=share(until, 2))
        peer = "docker run --rm --init IMAGE true"
        yield Figure("ngcdl run IMAGE -- true", "s", took["ours"], Goal("difference", 0.30), peer, took["theirs"])
        image = f"{registry}/nvidia/pytorch:26.07-py3"
        seconds([*NGCDL, "pull", image], environment)
        steps = {"ours": partial(_ours, image, environment), "theirs": partial(_bare, image, environment)}
        took = in_turn(steps, rounds or 7, until=until)
        what, peer = "ngcdl run IMAGE --train cifar10, Enter to first step", "docker run IMAGE python -m trainer"
        note = "PyTorch, batch 32, on the CPU"
        yield Figure(what, "s", took["ours"], Goal("difference", 0.50), peer, took["theirs"], note)


def _ours(image: str, environment: dict[str, str]) -> float:
    with tempfile.TemporaryDirectory(dir="/tmp") as state:
        began = time.time()
        seconds([*NGCDL, "run", image, "--train", "cifar10", *TRAINING], environment | {"XDG_STATE_HOME": state})
        (events,) = Path(state).glob("ngcdl/runs/*/events.jsonl")
        return _first_step(events) - began


def _bare(image: str, environment: dict[str, str]) -> float:
    with tempfile.TemporaryDirectory(dir="/tmp") as out:
        began = time.time()
        mounts = ["-v", f"{ROOT / 'containers' / 'trainer'}:/ngcdl/trainer:ro", "-v", f"{out}:/out", "-w", "/ngcdl"]
        mounts += ["-e", "PYTHONDONTWRITEBYTECODE=1"]  # as ngcdl does: root would otherwise write bytecode
        command = ["python", "-m", "trainer", "cifar10", *TRAINING, "--out", "/out"]
        seconds(["docker", "run", "--rm", "--init", *mounts, image, *command], environment)
        return _first_step(Path(out, "events.jsonl")) - began


def _first_step(events: Path) -> float:
    """Return when the first step was logged, in seconds since the epoch."""
    told = (json.loads(line) for line in events.read_text().splitlines())
    return next(float(event["t"]) for event in told if event["event"] == "step")
