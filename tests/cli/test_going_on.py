"""After an unfinished training, ngcdl prints the command that continues from its checkpoint."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from house import TRAIN, House

from ngcdl.cli import lookup
from ngcdl.folder import EVENTS
from ngcdl.record import Image, Run
from ngcdl.storing.store import Store

SAVED = {"event": "checkpoint", "t": 5.0, "step": 9, "path": "checkpoints/step-9.npz"}
CLAIM = {"data_pvc": "cifar", "namespace": "vision"}
WORK = {"name": "cifar10", "steps": 9, "batch": 8, "seed": 3, "feed": "plain"}
ON = "ngcdl run --train cifar10 --steps 9 --batch 8 --seed 3 --feed plain --resume x --engine kubernetes"


def told(store: Store, run: Run, capsys: pytest.CaptureFixture[str], *events: dict[str, Any]) -> str:
    (store.create(run) / EVENTS).write_text("".join(json.dumps(event) + "\n" for event in events))
    lookup.say_how_to_go_on(store, run)
    return capsys.readouterr().err


@pytest.mark.parametrize(("placement", "events", "said"), [
    (CLAIM, (SAVED,), f"{ON} --data-pvc cifar --namespace vision"),
    ({"data_pvc": "cifar"}, (SAVED,), f"{ON} --data-pvc cifar"),
    (CLAIM, (), ""), ({"namespace": "vision"}, (SAVED,), ""),
])  # fmt: skip
def test_a_checkpoint_on_a_claim_is_gone_on_from_with_that_claim(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], placement: dict[str, str],
    events: tuple[dict[str, Any], ...], said: str,
) -> None:  # fmt: skip
    """The checkpoints stay on the claim; only the trainer's report reaches the run's folder."""
    run = Run("x", "interrupted", 1.0, engine="kubernetes", spec={"placement": placement, "workload": WORK})
    line = f"ngcdl: a checkpoint was saved; continue from it with:\n    {said}\n" if said else ""
    assert told(Store(tmp_path), run, capsys, *events) == line


def test_the_line_has_every_word_that_was_asked_for_no_secret_and_the_newest_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {
        "workload": {**WORK, "resume": "older", "data": "/my data"}, "gpus": "none",
        "mounts": ["/a:/b:ro", "/opt/trainer:/ngcdl/trainer:ro"], "environment": {"TOKEN": "***"},
    }  # fmt: skip
    image = Image("nvcr.io/nvidia/pytorch:25.03-py3", "sha256:" + "5" * 64)
    run = Run("x", "interrupted", 1.0, engine="docker", image=image, spec=spec)
    checkpoints = tmp_path / "x/checkpoints"
    checkpoints.mkdir(parents=True)
    (checkpoints / "step-3.npz").touch()
    lookup.say_how_to_go_on(Store(tmp_path), run)
    assert shlex.split(capsys.readouterr().err.splitlines()[1]) == [
        "ngcdl", "run", f"nvcr.io/nvidia/pytorch@{image.digest}", "--train", "cifar10", "--steps", "9", "--batch", "8",
        "--seed", "3", "--feed", "plain", "--resume", "x", "--data", "/my data", "--gpus", "none", "-v", "/a:/b:ro",
        "-e", "TOKEN",
    ]  # fmt: skip


def test_the_line_can_be_typed(trained: House) -> None:
    assert trained.run(*TRAIN, "--steps", "7", "--no-eval", "-e", "A=b c", env={"STAND_IN": "fail"}).returncode == 7
    first = trained.record()["id"]
    checkpoints = trained.store.folder(first) / "checkpoints"
    checkpoints.mkdir(exist_ok=True)
    (checkpoints / "step-3.npz").touch()
    told = trained.run("show").stderr.splitlines()
    line = told[told.index("ngcdl: a checkpoint was saved; continue from it with:") + 1]
    done = trained.run(*shlex.split(line)[1:])
    assert done.returncode == 0, done.stderr
    work = trained.record()["spec"]["workload"]
    assert (work["resume"], work["steps"], work["evaluate"], work["data"]) == (first, 7, False, "synthetic")
