"""Which run --resume may name when pods can't see this machine's folders and checkpoints stay on a claim."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ngcdl.cli import resumed
from ngcdl.errors import BadOption, NgcdlError, RecordBroken, RunElsewhere
from ngcdl.record import Run
from ngcdl.spec import Placement, Workload
from ngcdl.storing.store import Store

RUN = "20261121-192252-cifar10-beefca"
WORK = {"name": "cifar10", "batch": 8, "seed": 3}
SPEC = {"workload": WORK, "placement": {"data_pvc": "cifar", "namespace": "vision"}}
BEFORE = Run(RUN, "interrupted", 1.0, 2.0, engine="kubernetes", engine_id="stub", spec=SPEC)
START = {"event": "start", "t": 1.0, "workload": "cifar10", "batch": 8, "seed": 3}
SAVED = {"event": "checkpoint", "t": 2.0, "step": 9, "path": "checkpoints/step-9.npz"}
CLAIM = Placement(data_pvc="cifar")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A store, and a kubectl whose context is `stub` and namespace `vision`."""
    kubectl = tmp_path / "bin/kubectl"
    kubectl.parent.mkdir()
    kubectl.write_text('#!/bin/sh\ncase "$*" in *current-context*) echo stub ;; *) echo vision ;; esac\n')
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(kubectl.parent), prepend=":")
    return Store(tmp_path / "runs")


def kept(store: Store, run: Run = BEFORE, *events: dict[str, Any]) -> Path:
    folder = store.create(run)
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    return folder


def check(store: Store, engine: str = "kubernetes", placement: Placement = CLAIM, **more: Any) -> None:
    asked = replace(Workload("cifar10", batch=8, seed=3, resume=RUN), **more)
    resumed.check(asked, RUN, engine, placement, store)


@pytest.mark.parametrize("events", [(START, SAVED), ()], ids=["reported", "its log was lost"])
@pytest.mark.parametrize("placement", [CLAIM, replace(CLAIM, namespace="vision")])
def test_a_run_that_had_the_same_claim_is_continued(
    store: Store, events: tuple[dict[str, Any], ...], placement: Placement
) -> None:
    kept(store, BEFORE, *events)
    check(store, placement=placement)


@pytest.mark.parametrize("placement", [
    Placement(), Placement(data_pvc="other"), Placement(data_pvc="cifar", namespace="speech"),
])  # fmt: skip
def test_another_claim_is_refused_with_the_one_to_name(store: Store, placement: Placement) -> None:
    kept(store, BEFORE, START, SAVED)
    with pytest.raises(BadOption, match="its checkpoints are on a claim that this run would not have") as refused:
        check(store, placement=placement)
    assert refused.value.hint == f"    ngcdl run ... --data-pvc cifar --namespace vision --resume {RUN}"


def test_a_run_without_a_claim_left_nothing_to_continue_from(store: Store) -> None:
    kept(store, replace(BEFORE, spec={"workload": WORK, "placement": {"namespace": "vision"}}), START, SAVED)
    with pytest.raises(BadOption, match="its checkpoints were lost with its pods"):
        check(store)


def test_a_run_of_another_cluster_is_refused_with_how_to_choose_it(store: Store) -> None:
    kept(store, replace(BEFORE, engine_id="far"), START, SAVED)
    with pytest.raises(RunElsewhere) as refused:
        check(store)
    assert refused.value.hint.endswith(f"kubectl config use-context far\n    ngcdl run ... --resume {RUN}")


@pytest.mark.parametrize(
    ("its", "engine", "where", "way"),
    [
        ("kubernetes", "auto", "on kubernetes", "kubernetes"), ("kubernetes", "slurm", "on kubernetes", "kubernetes"),
        ("local", "kubernetes", "of this machine", "local"), (None, "kubernetes", "of this machine", "docker"),
        ("trainer", "kubernetes", "of this machine", "docker"),
    ],
)  # fmt: skip
def test_an_engine_that_can_t_see_the_checkpoints_is_refused_with_the_one_that_can(
    store: Store, its: str | None, engine: str, where: str, way: str
) -> None:
    kept(store, replace(BEFORE, engine=its, owner=None), START, SAVED)
    with pytest.raises(BadOption, match=f"{where}, and --engine {engine} can't see that") as refused:
        check(store, engine)
    assert refused.value.hint == f"    ngcdl run ... --engine {way} --resume {RUN}"


@pytest.mark.parametrize("events", [(START, SAVED), ()], ids=["reported", "its log was lost"])
def test_another_training_is_refused_by_what_was_reported_or_asked_for(
    store: Store, events: tuple[dict[str, Any], ...]
) -> None:
    kept(store, BEFORE, *events)
    with pytest.raises(BadOption, match="it trained with batch 8, seed 3") as refused:
        check(store, batch=16, seed=4)
    assert f"--train cifar10 --batch 8 --seed 3 --resume {RUN}" in refused.value.hint


@pytest.mark.parametrize(
    ("run", "events", "said"),
    [
        (BEFORE, (START,), "it has no checkpoint"),
        (replace(BEFORE, spec={"placement": {"data_pvc": "cifar"}}), (), "no training began in it"),
    ],
)
def test_what_left_no_checkpoint_is_refused(
    store: Store, run: Run, events: tuple[dict[str, Any], ...], said: str
) -> None:
    kept(store, run, *events)
    with pytest.raises(BadOption, match=said):
        check(store)


def test_a_batch_that_the_trainer_chose_and_could_not_report_is_left_to_it(store: Store) -> None:
    kept(store, replace(BEFORE, spec={**SPEC, "workload": {**WORK, "largest_batch": True, "batch": 128}}))
    check(store, batch=512)


def test_a_record_that_can_t_be_read_names_no_claim(store: Store) -> None:
    (kept(store, BEFORE, START, SAVED) / "run.json").write_text("{")
    with pytest.raises(RecordBroken):
        check(store)


def test_without_kubectl_nobody_can_tell_which_cluster_it_is(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    kept(store, BEFORE, START, SAVED)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NgcdlError, match="kubectl can't be run"):
        check(store)
