"""Which runs are named, and the figures of a running one: all of them while it is short, else only recent ones."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from house import House

from ngcdl.cli import lookup
from ngcdl.errors import EngineAbsent, StateNotWritable
from ngcdl.record import Run
from ngcdl.storing.store import Store


def made(store: Store, status: str, steps: int) -> Run:
    """Return a run that logged and sampled once a second, its loss falling from 9."""
    run = Run("r", status, 0.0)
    folder = store.create(run)
    told: list[dict[str, Any]] = [{"event": "start", "t": 0.0, "dataset": "cifar10", "device": "gpu", "pad": "x" * 80}]
    for step in range(steps):
        told.append({"event": "step", "t": float(step), "step": step, "loss": 9 - step / steps,
                     "examples_per_second": 100.0 if step < steps / 2 else 200.0, "pad": "x" * 100})  # fmt: skip
        if step == steps // 3:
            told.append({"event": "eval", "t": float(step), "step": step, "precision_at_1": 0.75})
    written(folder / "events.jsonl", told)
    sampled = ({"t": float(t), "host_cpu_percent": 10.0 if t < steps / 2 else 50.0, "gpus": [], "pad": "x" * 120}
               for t in range(steps))  # fmt: skip
    written(folder / "samples.jsonl", sampled)
    return run


def written(path: Path, lines: Iterable[dict[str, Any]]) -> None:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def test_all_runs_that_can_t_be_found_are_named_at_once(kept: House) -> None:
    for words in ("runs rm last no-1 no-2", "wait no-1 no-2", "runs diff no-1 no-2", "report no-1 last no-2"):
        done = kept.run(*words.split())
        assert (done.returncode, done.stdout) == (125, "")
        assert done.stderr == (
            f"ngcdl: There is no run 'no-1' in {kept.store.root}. There is no run 'no-2' in {kept.store.root}.\n"
            "      ngcdl runs\n"
        )
    done = kept.run("runs", "export", "no-1", "last", "compare-9", "x.tar")
    assert "There is no run 'no-1'" in done.stderr
    assert "There is no comparison 'compare-9'" in done.stderr
    assert kept.store.ids(), "and none is removed"


def test_of_a_long_run_that_still_runs_only_the_recent_part_is_read_and_that_is_said(store: Store) -> None:
    found = lookup.with_figures(store, made(store, "running", 120_000))
    assert found.notes == (lookup.RECENT,)
    assert 40_000 < (found.summary.samples or 0) < 50_000
    assert found.summary.cpu_percent_mean == 50
    assert found.summary.examples_per_second == 200
    assert (found.summary.steps, found.dataset, found.device) == (119_999, "cifar10", "gpu")
    assert (found.summary.loss_first, found.summary.loss_last) == (9, pytest.approx(8, abs=1e-4))
    assert found.summary.precision_at_1 == 0.75, "no event but steps is left out"


def test_a_run_that_has_not_run_for_long_is_read_as_a_whole(store: Store) -> None:
    found = lookup.with_figures(store, made(store, "running", 2000))
    assert (found.notes, found.summary.samples, found.summary.cpu_percent_mean) == ((), 2000, 30)


def test_a_long_run_that_has_ended_is_read_as_a_whole(store: Store) -> None:
    found = lookup.with_figures(store, made(store, "finished", 120_000))
    assert (found.notes, found.summary.samples, found.summary.cpu_percent_mean) == ((), 120_000, 30)


def test_a_record_that_can_t_be_written_is_told_from_an_engine_that_does_not_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with lookup.asking() as obstacles:
        obstacles.engines["docker"] = EngineAbsent("x", "there is no socket")
        obstacles.records = StateNotWritable("/r/run.json", "No space left on device")
    engine, records = capsys.readouterr().err.splitlines()
    assert engine.endswith("What became of the runs there is not known yet.")
    assert records.endswith("No space left on device. How runs ended is not recorded yet.")
