"""Checks whether a training can continue from the run that --resume names, before anything is fetched."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ngcdl.errors import BadOption, RecordBroken
from ngcdl.folder import EVENTS, has_checkpoint, lines, size
from ngcdl.record import Run
from ngcdl.running.reconcile import reconcile, still_runs
from ngcdl.running.recorded_job import engine_of
from ngcdl.spec import KINDS, USUAL, Placement, Workload, kind_of
from ngcdl.storing.store import Store


def check(asked: Workload, before: str, engine: str, placement: Placement, store: Store) -> None:
    """Raise BadOption if the run `before` is still running, if a run on `engine` can't see its checkpoints, or if the
    trainer would refuse to continue from it. Raise EngineError or RunElsewhere if its cluster is not selected here."""
    run = _recorded(before, engine, store)
    folder, is_here = store.folder(before), kind_of(engine).shares_files
    trained = _trained(folder, run)
    if trained is None:
        raise BadOption(f"--resume {before}: no training began in it.", f"    ngcdl show {before}")
    # If no events have arrived from a pod, it is unknown whether its trainer has saved a checkpoint.
    if not (has_checkpoint(folder) if is_here else not size(folder / EVENTS) or reports_checkpoint(folder)):
        raise BadOption(f"--resume {before}: it has no checkpoint to continue from.", f"    ngcdl show {before}")
    _check_same(asked, before, trained)
    if run and not is_here:
        _check_claim(run, placement)


def line(folder: Path, run: Run) -> str | None:
    """Return the command that continues from the last checkpoint of `run` with all options of that run; if they were
    not recorded, with what the trainer reported. None if no training began."""
    if run.workload:
        from ngcdl.report.measured import retyped

        spec = {**(run.spec or {}), "workload": {**run.workload, "resume": run.id}}
        return retyped.command(replace(run, spec=spec))
    trained = _trained(folder, run)
    return shlex.join(["ngcdl", "run", *_same(trained, run.id)]) if trained else None


def _recorded(before: str, engine: str, store: Store) -> Run | None:
    """Return the record of `before`. If it can't be read, return None if the checkpoints are files in the same folder,
    which may be intact, else raise RecordBroken. Raise BadOption as `check` does."""
    try:
        run = reconcile(store, store.load(before))
    except RecordBroken:
        if kind_of(engine).shares_files:
            return None
        raise
    if still_runs(store, run):
        raise BadOption(
            f"--resume {before}: it is still running; a second training would do the same work beside it.",
            f"Watch it, or stop it first:\n    ngcdl logs -f {before}\n    ngcdl stop {before}",
        )
    was_here, is_here = run.kind.shares_files, kind_of(engine).shares_files
    if run.engine != engine and not (was_here and is_here):
        where = "in a folder of this machine" if was_here else f"on {run.engine}"
        its = run.engine if run.engine in KINDS else USUAL
        raise BadOption(
            f"--resume {before}: what it saved is {where}, and --engine {engine} can't see that.",
            f"    ngcdl run ... --engine {its} --resume {before}",
        )
    return run


def _trained(folder: Path, run: Run | None) -> Mapping[str, Any] | None:
    """Return what is known of the training in `folder`: workload, batch and seed; None if no training began."""
    start = next((event for event in lines(folder / EVENTS) if event.get("event") == "start"), None)
    if start or run is None or not run.workload or run.kind.shares_files:
        return start
    typed = run.workload  # its events are in its pod's log, which may be lost
    return {
        "workload": typed.get("name"),
        "batch": None if typed.get("largest_batch") else typed.get("batch"),
        "seed": typed.get("seed"),
    }


def _check_same(asked: Workload, before: str, trained: Mapping[str, Any]) -> None:
    """Raise BadOption if the workload, batch or seed that is asked for differs from what was trained."""
    compared = ("workload", "seed") if asked.largest_batch else ("workload", "batch", "seed")
    known = {name: trained.get(name) for name in compared}
    wanted = {"workload": asked.name, "batch": asked.batch, "seed": asked.seed}
    other = [name for name, value in known.items() if value is not None and value != wanted[name]]
    if other:
        said = ", ".join(f"{name} {known[name]}" for name in other)
        same = _same({**trained, "workload": known["workload"] or asked.name}, before)
        raise BadOption(
            f"--resume {before}: it trained with {said}, and can continue with nothing else.",
            f"    ngcdl run ... {shlex.join(same)}",
        )


def _same(trained: Mapping[str, Any], before: str) -> list[str]:
    """Return the options without which no training can continue from `before`."""
    known = {"--train": trained.get("workload"), "--batch": trained.get("batch"), "--seed": trained.get("seed")}
    given = {option: str(value) for option, value in known.items() if value is not None}
    return [word for pair in {**given, "--resume": before}.items() for word in pair]


def reports_checkpoint(folder: Path) -> bool:
    """Return whether the trainer reported a checkpoint."""
    reported = lines(folder / EVENTS, among=re.compile(rb"checkpoint"))
    return any(event.get("event") == "checkpoint" for event in reported)


def words_for_claim(run: Run) -> list[str]:
    """Return the options that name the claim that the checkpoints of `run` are on; none if it had no claim."""
    claim, namespace = run.placement.get("data_pvc"), run.placement.get("namespace")
    return ["--data-pvc", claim, *(["--namespace", namespace] if namespace else [])] if claim else []


def _check_claim(run: Run, placement: Placement) -> None:
    """Raise BadOption if the new run would not have the claim that the checkpoints of `run` are on. Raise RunElsewhere
    if another cluster is selected."""
    claim, namespace = run.placement.get("data_pvc"), run.placement.get("namespace")
    if not claim:
        raise BadOption(
            f"--resume {run.id}: it ran without a claim (--data-pvc), so its checkpoints were lost with its pods.",
            f"    ngcdl show {run.id}",
        )
    place = engine_of(run, "run ... --resume").placed(placement) or placement
    if place.data_pvc != claim or (namespace and place.namespace != namespace):
        raise BadOption(
            f"--resume {run.id}: its checkpoints are on a claim that this run would not have.",
            f"    ngcdl run ... {' '.join(words_for_claim(run))} --resume {run.id}",
        )
