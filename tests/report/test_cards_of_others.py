"""What others do on a card that a training was given, but does not use, is not the training's."""

from __future__ import annotations

from typing import Any

import pytest
from made_summaries import GPU_RUN, filled

from ngcdl.record import Run

STEPS = [
    {"event": "step", "t": float(at), "step": at, "examples_per_second": 1000.0, "seconds_per_batch": 0.1}
    for at in range(1, 61)
]


def trained(own: tuple[int | None, int | None], replicas: int = 1) -> Run:
    """Return a training on two cards, of which somebody else keeps the second one busy."""
    mine = {"index": 0, "uuid": "GPU-1", "gpu_percent": 60, "watts": 100.0, "sm_mhz": 1000, "foreign_processes": 0}
    theirs = {"index": 1, "uuid": "GPU-2", "gpu_percent": 99, "watts": 350.0, "sm_mhz": 1980, "foreign_processes": 1}
    gpus = [card | {"own_processes": count} for card, count in zip((mine, theirs), own, strict=True)]
    start: dict[str, Any] = {"event": "start", "t": 0.0, "device": "gpu", "batch": 100, "replicas": replicas}
    samples = [{"t": float(at), "host_cpu_percent": 20.0, "gpus": gpus} for at in range(1, 61)]
    return filled(GPU_RUN, [start, *STEPS], samples)


def test_the_card_on_which_its_processes_were_seen_is_its_own_however_busy_another_is() -> None:
    run = trained((1, 0))
    it = run.summary
    assert [gpu.is_used for gpu in it.gpus] == [True, False]
    assert (it.energy_joules, it.sm_mhz_mean, it.gpu_percent_mean, it.shared_gpu) == (5900, 1000, 60, False)
    assert "shared-gpu" not in [found.rule for found in run.findings or ()]


def test_a_card_of_which_that_is_not_known_may_be_its_own() -> None:
    assert [gpu.is_used for gpu in trained((1, None)).summary.gpus] == [True, None]


@pytest.mark.parametrize(("own", "replicas"), [((1, 1), 2), ((1, None), 1), ((None, None), 1), ((0, 0), 1)])
def test_a_card_that_may_be_its_own_is_shared(own: tuple[int | None, int | None], replicas: int) -> None:
    run = trained(own, replicas)
    assert run.summary.shared_gpu is True
    assert "shared-gpu" in [found.rule for found in run.findings or ()]
