"""A record reads back, old ones load forever, and junk is a ValueError."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ngcdl import record
from ngcdl.folder import EVENTS, SAMPLES, lines
from ngcdl.record import Diagnosis, Finding, Gpu, GpuSummary, Image, Machine, Owner, Run, Summary
from ngcdl.report.measured import figures
from ngcdl.report.measured.told import Told
from ngcdl.storing.store import Store

GOLDEN = Path(__file__).parent / "golden/run-format-1"
FULL = Run(
    id="20180216-182126-cifar10-beef",
    status="failed",
    started=1518805286.5,
    finished=1518805290.0,
    exit_code=137,
    oom_killed=True,
    reason="out of memory",
    engine="docker",
    engine_version="29.1.0",
    engine_id="7TWA:KOZU",
    gpu_way="runtime",
    container="c0ffee",
    image=Image("nvcr.io/nvidia/tensorflow:18.01-py2", "sha256:" + "0" * 64),
    dataset="cifar10",
    dataset_note="from the cache",
    device="gpu",
    gpus=("GPU-1",),
    machine=Machine("host", "a CPU", 8, 1 << 34, "6.1", "535.104.05", (Gpu(0, "a card", "GPU-1", 4 << 30, "6.1"),)),
    spec={"image": "nvcr.io/nvidia/tensorflow:18.01-py2"},
    owner=Owner(7, 8, "boot"),
    notes=("loud",),
    summary=Summary(230, 595.8, 0.215, 4.68, 3.72, 0.86, 45.0, 190.0, 1 << 31, 87.0, 3 << 30,
                    (GpuSummary("GPU-1", "a card", 87.0, 3 << 30, 61.0, 0, 600.0, "counter", 1600.0, {"a": 0.5}),),
                    12, 1, 10, 3.6, 99.0, 4.5, 600.0, "counter", 9.0, 1.0, 9.8, 1600.0, {"sw_power_cap": 0.5},
                    True, 1 << 33, 2.5, 0),
    diagnosis=Diagnosis("gpu-lost", "GPU is lost", "It fell off.", "    sudo reboot", "https://x", "seen"),
    findings=(Finding("compute-bound", "GPU 97 % busy", {"gpu_percent": 97.0}, "nothing"), Finding("x", "y")),
)  # fmt: skip
LEAF = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5))
JSON = st.recursive(
    LEAF, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3))
)


@pytest.mark.parametrize("run", [Run("id", "running", 1.0), FULL])
def test_a_run_and_its_json_are_each_other_s_inverse(run: Run) -> None:
    assert Run.from_json(json.loads(json.dumps(run.as_json(), allow_nan=False))) == run


def test_keys_of_a_later_version_are_ignored_and_missing_ones_are_unknown() -> None:
    data = {"format": 1, "id": "x", "status": "lost", "started": 1, "new": {"a": 1}, "machine": {"cores": 2, "new": 1}}
    run = Run.from_json(data)
    assert (run.machine, run.exit_code, run.summary) == (Machine(cores=2), None, Summary())


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": None}, "no id"),
        ({"format": None}, "no format"),
        ({"format": 2}, "update ngcdl"),
        ({"status": "done"}, "status"),
        ({"started": "now"}, "started"),
        ({"exit_code": "0"}, "exit_code"),
        ({"finished": "later"}, "finished"),
        ({"notes": 5}, "wrong shape"),
        ({"reason": {}}, "reason"),
        ({"machine": {"cpu": {}}}, "cpu"),
        ({"owner": {}}, "wrong shape"),
        ({"machine": []}, "wrong shape"),
        ({"spec": "x"}, "spec"),
        ({"spec": {"placement": ["x"]}}, "placement"),
        ({"spec": {"placement": {"options": 5}}}, "options"),
        ({"spec": {"workload": "cifar10"}}, "workload"),
        ({"spec": {"workload": {"name": "cifar10", "threads": ["x"]}}}, "threads"),
        ({"spec": {"workload": {"seconds": float("nan")}}}, "seconds"),
        ({"spec": {"environment": ["A=1"]}}, "environment"),
        ({"spec": {"new": [float("inf")]}}, "JSON"),
        ({"spec": {"new": json.loads("[" * 600 + "]" * 600)}}, "levels"),
        ({"summary": {"steps": "many"}}, "steps"),
        ({"summary": {"gpus": ["x"]}}, "wrong shape"),
        ({"image": {"reference": 5}}, "reference"),
        ({"diagnosis": "shm"}, "wrong shape"),
        ({"diagnosis": {"cause": "x"}}, "wrong shape"),
        ({"findings": [{"text": "x"}]}, "wrong shape"),
        ({"findings": {"rule": "x"}}, "wrong shape"),
        ({"findings": [{"rule": "x", "text": "y", "numbers": {"a": "b"}}]}, "numbers"),
        ({"summary": {"throttled_share": {"sw_power_cap": None}}}, "throttled_share"),
        ({"summary": {"shared_gpu": 1}}, "shared_gpu"),
    ],
)
def test_what_is_no_record_is_refused_with_the_reason(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Run.from_json({"format": 1, "id": "x", "status": "lost", "started": 1.0} | change)


def test_a_spec_with_the_most_levels_is_a_record() -> None:
    spec = {"new": json.loads('[{"x":' * 15 + "[]" + "}]" * 15)}
    run = Run.from_json({"format": 1, "id": "x", "status": "lost", "started": 1.0, "spec": spec})
    assert run.as_json()["spec"] == spec


@given(JSON)
def test_any_json_is_a_run_or_a_value_error(data: Any) -> None:
    with pytest.raises(ValueError):
        Run.from_json(data)


@given(st.dictionaries(st.sampled_from([one.name for one in fields(Run)]), JSON))
def test_a_record_with_parts_of_any_shape_is_a_run_or_a_value_error(parts: dict[str, Any]) -> None:
    try:
        run = Run.from_json({"format": 1, "id": "x", "status": "lost", "started": 1.0} | parts)
    except ValueError:
        return
    assert isinstance(run.seconds, float | int | None)
    assert isinstance(run.summary, Summary)
    assert all(isinstance(note, str) for note in run.notes)


def test_a_note_is_kept_once() -> None:
    assert Run("x", "lost", 1.0).noting("a", "b").noting("b", "c").notes == ("a", "b", "c")


@pytest.mark.parametrize("owner", [None, Owner(7)])
@pytest.mark.parametrize("status", record.STATUSES)
def test_only_what_runs_or_still_has_an_owner_is_open(status: str, owner: Owner | None) -> None:
    run = Run("x", status, 1.0, owner=owner)
    assert run.is_open == (status == "running" or owner is not None)
    assert not run.closed("lost", None, None, 2.0).is_open


def test_what_a_spec_asks_for_is_empty_where_it_asks_for_none() -> None:
    for spec in (None, {}, {"workload": None, "placement": None}):
        run = Run("x", "running", 1.0, spec=spec)
        assert (run.workload, run.placement) == ({}, {})
    run = Run("x", "running", 1.0, spec={"workload": {"name": "cifar10"}, "placement": {"nodes": 2}})
    assert (run.workload["name"], run.placement["nodes"]) == ("cifar10", 2)


def test_data_that_were_made_up_are_known_by_their_name() -> None:
    names = (None, "cifar10", "synthetic", "Synthetic-1")
    assert [Run("x", "running", 1.0, dataset=name).is_synthetic for name in names] == [False, False, True, True]


def test_a_closed_run_has_its_end_and_no_owner() -> None:
    run = Run("x", "running", 1.0, owner=Owner(7)).closed("failed", 3, "why", 5.0)
    assert run == Run("x", "failed", 1.0, 5.0, 3, reason="why")


def test_how_long_a_run_took_is_unknown_until_it_has_ended() -> None:
    assert Run("x", "running", 1.0).seconds is None
    assert FULL.seconds == 3.5
    assert Run("x", "finished", 5.0, 2.0).seconds is None, "a clock was put back"


def test_a_folder_of_format_1_loads_and_sums_up_for_ever() -> None:
    store = Store(GOLDEN.parent)
    run = store.load(GOLDEN.name)
    assert (run.status, run.exit_code, run.dataset, run.device) == ("finished", 0, "synthetic", "cpu")
    assert run.diagnosis is None, "it is from before there were any"
    assert run.image == Image("nvcr.io/nvidia/tensorflow:18.01-py2", "sha256:" + "5" * 64)
    assert run.machine.gpus
    assert run.machine.gpus[0].name == "NVIDIA GeForce GTX 1050 Ti"
    summed = figures.summary(Told(lines(GOLDEN / EVENTS)), lines(GOLDEN / SAMPLES))
    assert (summed.energy_from, summed.throttled_share) == ("power integrated", None)
    assert summed.shared_gpu is None, "in one of its four samples the driver gave no answer"
    assert _as_of_then(summed) == run.summary, "what is summed up since is unknown of it"
    assert (summed.steps, summed.examples_per_second, summed.loss_first, summed.loss_last) == (30, 590.0, 4.68, 4.3)


def _as_of_then(summary: Summary) -> Summary:
    """`summary` with the fields of when the golden folder was made."""
    then = json.loads((GOLDEN / "run.json").read_text())["summary"]
    gpus = tuple(GpuSummary(**{name: getattr(gpu, name) for name in then["gpus"][0]}) for gpu in summary.gpus)
    return Summary(**{name: getattr(summary, name) for name in then} | {"gpus": gpus})


def test_the_history_of_the_format_names_every_format() -> None:
    doc = record.__doc__ or ""
    assert all(f"{number} = " in doc for number in range(1, record.FORMAT + 1))
    assert {path.name for path in GOLDEN.parent.glob("run-format-*")} == {
        f"run-format-{number}" for number in range(1, record.FORMAT + 1)
    }
