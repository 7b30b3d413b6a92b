"""After an unfinished training, ngcdl prints the command that continues from its checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ngcdl.cli import kept
from ngcdl.folder import EVENTS
from ngcdl.record import Run
from ngcdl.store import Store

SAVED = {"event": "checkpoint", "t": 5.0, "step": 9, "path": "checkpoints/step-9.npz"}
CLAIM = {"data_pvc": "cifar", "namespace": "vision"}
ON = "ngcdl run ... --engine kubernetes --data-pvc cifar"


@pytest.mark.parametrize(("placement", "events", "said"), [
    (CLAIM, (SAVED,), f"{ON} --namespace vision --resume x"), ({"data_pvc": "cifar"}, (SAVED,), f"{ON} --resume x"),
    (CLAIM, (), ""), ({"namespace": "vision"}, (SAVED,), ""),
])  # fmt: skip
def test_a_checkpoint_on_a_claim_is_gone_on_from_with_that_claim(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], placement: dict[str, str],
    events: tuple[dict[str, Any], ...], said: str,
) -> None:  # fmt: skip
    """The checkpoints stay on the claim; only the trainer's report reaches the run's folder."""
    shelf = Store(tmp_path)
    run = Run("x", "interrupted", 1.0, engine="kubernetes", spec={"placement": placement})
    (shelf.create(run) / EVENTS).write_text("".join(json.dumps(event) + "\n" for event in events))
    kept.say_how_to_go_on(shelf, run)
    told = " ".join(capsys.readouterr().err.split())
    assert told == (f"ngcdl: a checkpoint was saved; continue from it with: {said}" if said else "")
