"""Runs that train nothing: forward passes only, an input pipeline only, a smoke test. No view makes up a loss for such
a run, and a figure that the run lacks is n/a."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from house import House
from made_runs import STARTED, Made
from made_summaries import filled

from ngcdl.record import Run
from ngcdl.report.compared.comparison import Arm, comparison
from ngcdl.report.compared.unlike import MeasuredRun
from ngcdl.report.measured import naming, retyped
from ngcdl.report.shown.columns import read_story
from ngcdl.report.shown.difference import difference
from ngcdl.report.shown.markdown import markdown
from ngcdl.report.shown.page import page
from ngcdl.report.shown.sheet import sheet
from ngcdl.report.shown.story import Story
from ngcdl.report.shown.verdict import verdict

MADE = Made("cpu", steps=200, rate=600.0, workload="inference", dataset="synthetic")
SECONDS = {"name": "inference", "steps": None, "batch": 128, "seed": 0, "device": "cpu", "seconds": 45.0}


def forward() -> list[dict[str, Any]]:
    """Events of a trainer that only runs forward passes, for the requested seconds."""
    events = [event for event in MADE.events() if event["event"] in ("start", "step", "finish")]
    events = [{**event, "loss": None} if event["event"] == "step" else event for event in events]
    return [{**events[0], "steps": None, "precision": "float32", "feed": "ahead", "channels_last": True}, *events[1:]]


def smoke() -> list[dict[str, Any]]:
    """Events of a trainer without steps."""
    start = {**next(MADE.events()), "workload": "smoke", "dataset": None, "batch": 1, "steps": 1}
    result = {"event": "smoke", "t": STARTED + 6, "product": [[22, 28], [49, 64]], "device": "cpu"}
    return [start, result, {"event": "finish", "t": STARTED + 7, "step": 1, "seconds": 1.0}]


def pipeline() -> list[dict[str, Any]]:
    """Events of a trainer that only makes batches."""
    stages = [{"name": "crop", "examples_per_second": 214_495.8}, {"name": "flip", "examples_per_second": 137_400.7}]
    start, *steps = forward()
    return [{**start, "feed": "input"}, *steps, {"event": "stages", "t": STARTED + 9, "stages": stages}]


def run_of(events: list[dict[str, Any]], run_id: str = "x") -> Run:
    run = MADE.run(run_id)
    workload = {**SECONDS, "name": events[0]["workload"]}
    return filled(replace(run, dataset=None, spec={**(run.spec or {}), "workload": workload}), events, [])


def story(events: list[dict[str, Any]], letter: str = "A") -> Story:
    return replace(read_story(run_of(events, f"run-{letter}"), events, []), letter=letter)


@pytest.mark.parametrize("events", [forward(), smoke(), pipeline()])
def test_no_loss_is_made_up_on_the_page_and_none_is_missed(events: list[dict[str, Any]]) -> None:
    document = page([story(events)])
    assert not re.search(r"[Ll]oss(?! and accuracy say nothing)", document)
    assert "n/a" in document
    assert "nan" not in document.lower()


def test_the_speed_of_what_trains_nothing_is_not_told_as_a_trainings() -> None:
    start, *rest = forward()
    assert "601.8 examples/s (median), 200 steps" in verdict([story(pipeline())])
    assert "batches made and discarded: nothing was trained" in verdict([story(pipeline())])
    assert "the same batch at every step: not a result" in verdict([story([{**start, "feed": "constant"}, *rest])])
    assert "again" not in verdict([story([{**start, "feed": "resident"}, *rest])])


def test_others_trainings_do_not_stand_beside_what_trains_nothing() -> None:
    start, *rest = forward()
    assert "What others measured" in page([story([start, *rest])])
    assert ", batch 128, SYNTHETIC data" in page([story([start, *rest])])
    for feed in "input", "constant":
        assert "What others measured" not in page([story([{**start, "feed": feed}, *rest])])


def test_a_training_that_told_no_loss_before_it_failed_still_misses_its_chart() -> None:
    failed = story(forward()[:1])
    assert "loss" in page([replace(failed, run=replace(failed.run, status="failed"))])


def test_the_figures_are_those_that_it_has() -> None:
    assert verdict([story(forward())]).startswith("inference on the CPU (")
    assert "examples/s (median), 200 steps" in verdict([story(forward())])
    assert "examples/s" not in verdict([story(smoke())])
    summary = run_of(forward()).summary
    assert (summary.loss_first, summary.loss_last) == (None, None)
    assert summary.examples_per_second is not None
    assert "| examples/s (median) | n/a |" in markdown([story(smoke())])
    assert "45 s" in page([story(forward())]), "how long it was to go on, in the place of a number of steps"


def test_a_cell_of_the_sheet_is_empty_where_there_is_no_loss() -> None:
    for events, count in ((forward(), 20), (smoke(), 0)):
        rows = list(csv.DictReader(io.StringIO("".join(sheet(run_of(events), events, [])))))
        assert [row["loss"] for row in rows] == [""] * count


def test_differences_and_comparisons_have_no_loss_either() -> None:
    found = difference(run_of(forward(), "a"), run_of(smoke(), "b"))
    assert "loss_last" not in found.figures
    assert found.figures["examples_per_second"].b is None
    arms = [
        Arm(name, tuple(MeasuredRun(run_of(forward(), f"{name}{n}"), forward()[0]) for n in (1, 2)))
        for name in ("a", "b")
    ]
    it = comparison(arms, "threads")
    assert (it.refused, it.ratio is None) == ((), False)
    json.dumps(it.as_json(), allow_nan=False)
    lone = [Arm(name, (MeasuredRun(run_of(smoke(), name), smoke()[0]),)) for name in ("a", "b")]
    assert [refusal.field for refusal in comparison(lone, "threads").refused] == ["examples_per_second"]


@pytest.mark.parametrize(("events", "speed"), [(forward(), "examples/s (median)"), (smoke(), "n/a")])
def test_commands_show_it_without_a_loss(tmp_path: Path, events: list[dict[str, Any]], speed: str) -> None:
    house = House(tmp_path)
    folder = house.store.create(run_of(events, "20260101-000000-x-0000"))
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    text = house.run("show", "last").stdout
    assert re.search(rf"^speed +.*{re.escape(speed)}", text, re.MULTILINE)
    assert "CPU, float32" in text
    assert not re.search(r"^loss", text, re.MULTILINE)
    for words in (("runs",), ("report", "last", "--markdown", "-"), ("runs", "diff", "last", "last")):
        assert house.run(*words).returncode == 0
    replay = house.run("runs", "replay", "last", "--dry-run")
    assert "Traceback" not in replay.stderr


def test_the_stages_of_a_pipeline_are_told_with_the_speed_up_to_each(tmp_path: Path) -> None:
    assert "<td>crop 214,496, flip 137,401</td>" in page([story(pipeline())])
    house = House(tmp_path)
    folder = house.store.create(run_of(pipeline(), "20260101-000000-x-0000"))
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in pipeline()))
    told = " ".join(house.run("show", "last").stdout.split())
    assert "stages crop 214,496, flip 137,401 examples/s, each with those before it" in told
    assert "fed input" in told
    for broken in (None, [None], [{"name": "crop"}], "x"):
        assert naming.stages({"stages": broken}) is None


def test_the_line_that_repeats_it_has_its_seconds_and_no_steps() -> None:
    assert "--seconds 45.0" in (retyped.command(run_of(forward())) or "")
    assert "--steps" not in (retyped.command(run_of(forward())) or "")
