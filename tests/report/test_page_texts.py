"""The texts of a report: the verdict, the command that repeats a run, Markdown, CSV, and published figures."""

from __future__ import annotations

import csv
import io
import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_runs import DIGEST, STARTED, UUID, Made

from ngcdl import trainings
from ngcdl.folder import EVENTS, SAMPLES, lines
from ngcdl.record import Diagnosis, Gpu, GpuSummary, Image, Machine, Run, Summary
from ngcdl.report.compared import pairs, theirs
from ngcdl.report.measured import naming
from ngcdl.report.measured.words import duration, outcome
from ngcdl.report.shown import sheet
from ngcdl.report.shown.columns import read_story
from ngcdl.report.shown.difference import difference
from ngcdl.report.shown.markdown import markdown, plain
from ngcdl.report.shown.page import page
from ngcdl.report.shown.tables import COUNTERPARTS, conditions, figures
from ngcdl.report.shown.verdict import verdict
from ngcdl.storing.store import Store

GOLDEN = Path(__file__).parents[1] / "golden"
GPU = Made(steps=300)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"status": "failed", "exit_code": 1}, "failed with exit code 1 (its log: ngcdl logs made); "),
        ({"status": "failed", "exit_code": 1, "reason": "out of memory"}, "failed with exit code 1: out of memory; "),
        ({"status": "interrupted", "exit_code": 130}, "was interrupted with exit code 130; "),
        ({"status": "lost", "exit_code": None}, "was lost: nobody saw how it ended; "),
        ({"status": "running", "finished": None}, "is still running: "),
    ],
)
def test_a_run_that_did_not_end_well_is_told_to_have_before_its_figures(more: dict[str, object], said: str) -> None:
    text = verdict([GPU.story(**more)])  # type: ignore[arg-type]  # fields of Run
    assert f"1050 Ti) {said}" in text
    assert text.index(said) < text.index("examples/s")


def test_a_run_that_waits_is_said_to_wait_and_one_without_a_figure_to_have_none_yet() -> None:
    run = replace(GPU.run("r"), status="running", finished=None, engine="slurm", reason="PENDING: Resources")
    assert verdict([read_story(run, [], [])]).endswith(" is waiting: PENDING: Resources.")
    own = replace(run, reason="waits since 19:06 for 1 free GPU")
    assert verdict([read_story(own, [], [])]).endswith("Ti) waits since 19:06 for 1 free GPU.")
    assert outcome(run) == "waiting"
    begun = replace(run, reason=None)
    assert verdict([read_story(begun, [], [])]).endswith(" is still running: nothing is measured yet.")


def test_the_conditions_of_a_run_that_is_still_running_say_as_of_when() -> None:
    before = time.time() - 1
    said = dict(conditions(GPU.story(status="running", finished=None)))["as of"]
    told = datetime.strptime(said, "%Y-%m-%d %H:%M:%S %Z").replace(tzinfo=UTC).timestamp()
    assert before < told <= time.time()
    assert "as of: 20" in markdown([GPU.story(status="running", finished=None)])
    assert "as of" not in dict(conditions(GPU.story()))


def test_words_in_the_log_are_why_a_run_failed_and_not_why_it_was_stopped() -> None:
    known = Diagnosis("x", "no SHMEM", "Shared memory is small.")
    stopped = verdict([GPU.story(status="interrupted", exit_code=130, reason="stopped by SIGINT", diagnosis=known)])
    assert "was interrupted with exit code 130: stopped by SIGINT; " in stopped
    assert "failed: Shared memory is small; " in verdict([GPU.story(status="failed", reason="x", diagnosis=known)])


@pytest.mark.parametrize("engine", ["slurm", "kubernetes"])
def test_the_time_in_a_queue_is_not_the_steps(engine: str) -> None:
    events, samples = list(GPU.events()), list(GPU.measured())
    run = replace(GPU.story().run, engine=engine, started=STARTED - 3 * 3600)
    assert "300 steps in 7.9 s," in verdict([read_story(run, events, samples)])
    steps = [event for event in events if event["event"] != "step"]
    assert "300 steps, precision" in verdict([read_story(run, steps, samples)])
    command = Run("x", "finished", STARTED, STARTED + 75, 0, engine=engine, image=Image("cuda:12"))
    wait = "including the wait for a node and the pull"
    assert verdict([read_story(command, [], [])]) == f"a command in cuda:12: 75 s {wait}."
    gone = replace(command, reason="its pod was gone")
    assert verdict([read_story(gone, [], [])]) == f"a command in cuda:12: 75 s {wait} (its pod was gone)."


@pytest.mark.parametrize("engine", ["docker", "slurm"])
def test_the_time_of_a_run_that_went_on_from_a_checkpoint_is_not_that_of_all_its_steps(engine: str) -> None:
    spec = GPU.run("r").spec or {}
    story = GPU.story(engine=engine, spec={**spec, "workload": {**spec["workload"], "resume": "/runs/before"}})
    assert ", 300 steps, precision" in verdict([story])


def test_a_clock_that_was_put_back_leaves_no_time() -> None:
    story = GPU.story(finished=STARTED - 3)
    assert "300 steps, precision" in verdict([story])
    assert outcome(story.run) == "finished"


def test_a_figure_that_is_not_0_is_not_written_as_0() -> None:
    small = Summary(
        loss_first=0.004, loss_last=0.0004, precision_at_1=0.00004, energy_joules=0.4, energy_from="counter",
        throttled_share={"hw_thermal_slowdown": 0.004}, gpus=(GpuSummary("u", watts_mean=0.3),),
    )  # fmt: skip
    run = replace(GPU.run("r"), summary=small)
    rows = dict(figures([read_story(run, [], [])]))
    assert rows["loss, first → last"] == ("0.0040 → 0.00040",)
    assert rows["precision @ 1"] == ("0.000040",)
    assert rows["GPU energy"] == ("0.40 J (counter)",)
    assert rows["GPU power (mean)"] == ("0.30 W",)
    assert rows["clocks held down"] == ("0.40 % of the time (hw_thermal_slowdown)",)
    assert COUNTERPARTS["loss"](read_story(run, [], [])) == "0.00040 at the end"


def test_the_energy_of_a_command_is_not_said_to_be_a_training_s_and_comes_with_its_time() -> None:
    summary = Summary(energy_joules=12000.0, energy_from="counter", energy_seconds=1480.0)
    run = Run("x", "finished", STARTED, STARTED + 1500, spec={"command": ["x"]}, summary=summary)
    rows = {name: cells for name, cells in figures([read_story(run, [], [])]) if "energy" in name}
    assert rows == {"GPU energy": ("12,000 J in 1,480 s (counter)",)}


def test_the_power_of_several_cards_is_said_to_be_that_of_all_and_is_unknown_if_one_s_is() -> None:
    def row(*watts: float | None) -> dict[str, tuple[str, ...]]:
        gpus = tuple(GpuSummary(str(at), watts_mean=one) for at, one in enumerate(watts))
        told_of = read_story(replace(GPU.run("r"), summary=Summary(gpus=gpus)), [], [])
        return {name: cells for name, cells in figures([told_of]) if name.startswith("GPU power")}

    assert row(60.0) == {"GPU power (mean)": ("60 W",)}
    assert row(60.0, 70.0) == {"GPU power (mean, its cards together)": ("130 W",)}
    assert row(60.0, None) == {}
    gpus = tuple(GpuSummary(str(at), gpu_percent_mean=percent) for at, percent in enumerate((87.0, 0.0)))
    two = read_story(replace(GPU.run("r"), summary=Summary(gpus=gpus, gpu_percent_mean=43.5)), [], [])
    assert dict(figures([two]))["GPU use (mean of its cards)"] == ("44 %",)


def test_runs_of_commands_are_said_to_have_no_speed() -> None:
    run = Run("x", "finished", STARTED, STARTED + 75, 0, image=Image("cuda:12", DIGEST))
    a, b, c = (replace(read_story(replace(run, id=letter), [], []), letter=letter) for letter in "ABC")
    assert verdict([a, b]) == "These 2 runs can't be compared: A and B: no speed was reported."
    assert "compared: A: no speed was reported (B, C)." in verdict([a, b, c])


def test_a_verdict_of_a_command_has_its_image_and_its_time() -> None:
    run = Run("x", "finished", STARTED, STARTED + 75, 0, image=Image("nvcr.io/nvidia/cuda:12", DIGEST))
    assert verdict([read_story(run, [], [])]) == "a command in cuda:12: 75 s."
    used = Summary(training_samples=75, gpus=(GpuSummary("u", gpu_percent_mean=62.0),))
    story = read_story(replace(run, summary=used, spec={"command": ["./sim"]}), [], [])
    assert verdict([story]) == "./sim in cuda:12: 75 s. The GPU is used (62 % busy)."
    assert '<p class="verdict">It took 75 s. The GPU is used (62 % busy).</p>' in page([story])


def test_a_duration_is_told_in_the_unit_that_fits() -> None:
    assert [duration(one) for one in (None, 2.34, 96.4, 600, 4000)] == ["n/a", "2.3 s", "96 s", "10 min", "67 min"]
    assert duration(10_000) == "2 h 47 min"


@pytest.mark.parametrize(("machine", "more", "driver", "there", "used"), [
    (Machine(gpus=()), {"gpus": ()}, "none", "none", "none"),
    (Machine(driver="535.1", gpus=()), {"gpus": ()}, "535.1", "none", "none"),
    (Machine(), {"gpus": ()}, "n/a", "n/a", "none"),  # a driver that gave no answer
    (Machine(driver="535.1", gpus=(Gpu(0, "a card"), Gpu(1, "a card"), Gpu(2))), {"gpus": None},
     "535.1", "2 × a card, n/a", "n/a"),
    (Machine(), {"engine": "slurm", "device": "gpu", "summary": Summary(gpus=(GpuSummary("GPU-1"),))},
     "n/a", "n/a", "GPU-1"),
    (Machine(), {"engine": "slurm", "device": "cpu", "summary": Summary(gpus=(GpuSummary("GPU-1"),))},
     "n/a", "n/a", "n/a"),
])  # fmt: skip
def test_there_are_no_gpus_only_where_the_driver_was_asked_or_is_not_there(
    machine: Machine, more: dict[str, Any], driver: str, there: str, used: str
) -> None:
    run = Run("x", "finished", STARTED, gpu_way="none", machine=machine, **more)
    rows = dict(conditions(read_story(run, [], [])))
    assert [rows[name] for name in ("NVIDIA driver", "GPUs of the machine", "GPUs of the run")] == [driver, there, used]
    assert Run.from_json(run.as_json()).machine == machine


def test_the_markdown_of_the_sample_run_is_as_kept() -> None:
    folder = GOLDEN / "run-format-1"
    story = read_story(Store(GOLDEN).load(folder.name), lines(folder / EVENTS), lines(folder / SAMPLES))
    assert markdown([story]) == (GOLDEN / "report-run-format-1.md").read_text(encoding="utf-8")


@given(st.text())
def test_no_text_can_be_more_than_text_in_markdown(text: str) -> None:
    shown = plain(text)
    assert not set(shown) & set("\n\r|<>`*_[]~")
    assert not re.search(r"@\w|(?<!&)#\w", shown)
    assert unescape(shown) == re.sub(r"[\x00-\x20\x7f-\x9f\u2028\u2029]+", " ", text)


def test_the_sheet_has_a_row_for_each_step_sample_and_card_and_is_empty_where_nothing_is_known() -> None:
    made = replace(GPU, steps=100)
    rows = list(csv.DictReader(io.StringIO("".join(sheet.sheet(made.run("x"), made.events(), made.measured())))))
    kinds = [row["kind"] for row in rows]
    assert (kinds.count("step"), kinds.count("eval")) == (10, 1)
    samples = list(made.measured())
    assert kinds.count("sample") == len(samples)
    assert kinds.count("gpu") == sum(len(sample["gpus"]) for sample in samples)
    assert (rows[0]["step"], rows[0]["examples_per_second"], rows[0]["t"]) == ("0", "", str(STARTED + 8))
    card = next(row for row in rows if row["kind"] == "gpu")
    assert (card["gpu_uuid"], card["watts"], card["throttle_reasons"]) == (UUID, "9.0", "gpu_idle")
    assert tuple(rows[0]) == sheet.COLUMNS
    assert set(sheet.COLUMNS) - {"t"} <= set(re.findall(r"\w+", sheet.__doc__ or ""))


def test_the_sheet_says_how_much_of_a_card_worked() -> None:
    told = {"sm_active_percent": 12.5, "sm_occupancy_percent": 7.0, "tensor_active_percent": None}
    sample = {"t": STARTED, "gpus": [told | {"dram_bandwidth_percent": 20.2}]}
    _, row = csv.DictReader(io.StringIO("".join(sheet.sheet(GPU.run("x"), [], [sample]))))
    assert [row[name] for name in (*told, "dram_bandwidth_percent")] == ["12.5", "7.0", "", "20.2"]


def test_a_text_in_the_sheet_is_no_formula() -> None:
    sample = {"t": STARTED, "gap": "=HYPERLINK(1)", "gpus": [{"uuid": "@SUM(1)"}]}
    rows = list(csv.DictReader(io.StringIO("".join(sheet.sheet(GPU.run("x"), [], [sample])))))
    assert [rows[0]["gap"], rows[1]["gpu_uuid"]] == ["'=HYPERLINK(1)", "'@SUM(1)"]


def test_table_7_is_whole_and_its_empty_cells_are_empty() -> None:
    names = ("fcn-s", "alexnet-s", "resnet-50", "fcn-r", "alexnet-r", "resnet-56", "lstm")
    tables = [theirs.published(name) for name in names]
    assert all(table and len(table.columns) == 13 and len(table.rows) == 5 for table in tables)
    cells = [cell for table in tables if table for _, row in table.rows for cell in row]
    assert (len(cells), cells.count("")) == (455, 63)
    assert all(0 < float(cell) < 60 for cell in cells if cell)


@pytest.mark.parametrize("name", ["cifar10", "cifar10-keras", "catdog", "batch-sweep", "inference", "smoke", "lstm"])
def test_what_others_published_comes_with_its_source_and_its_hardware(name: str) -> None:
    table = theirs.published(name)
    assert table
    assert len(table.source) > 20
    assert all(table.columns)
    assert all(len(row) == len(table.columns) for _, row in table.rows)


def _numbers(text: str) -> list[str]:
    return re.findall(r"[0-9]+(?:\.[0-9]+)?", text.replace(",", ""))


@pytest.mark.parametrize("name", ["cifar10", "cifar10-keras", "catdog"])
def test_the_pair_of_a_workload_is_what_its_table_says(name: str) -> None:
    pair, table = pairs.published(name), theirs.published(name)
    assert pair is not None
    assert table is not None
    said = [float(one) for cell in dict(table.rows)["examples/s"] for one in _numbers(cell)]
    for figure in (pair.cpu_examples_per_second, pair.gpu_examples_per_second):
        assert any(figure == pytest.approx(one, rel=0.01) for one in said)


@pytest.mark.parametrize("name", ["fcn-s", "alexnet-s", "resnet-50", "fcn-r", "alexnet-r", "lstm"])
def test_the_pair_of_a_network_is_derived_from_its_row_in_table_7(name: str) -> None:
    pair, table = pairs.published(name), theirs.table7(name)
    assert pair is not None
    assert table is not None
    row = dict(zip(table.columns, dict(table.rows)["TensorFlow 1.0"], strict=True))
    batch = trainings.bundled(name).batch
    assert pair.cpu_examples_per_second == pytest.approx(batch / float(row["desktop CPU, 8 threads"]), rel=0.003)
    assert pair.gpu_examples_per_second == pytest.approx(batch / float(row["GTX 1080"]), rel=0.003)
    assert float(row["desktop CPU, 8 threads"]) == min(
        float(cell) for column, cell in row.items() if column.startswith("desktop CPU")
    )


def test_a_workload_that_nobody_published_has_no_table() -> None:
    assert theirs.published("my-own") is None


def test_a_difference_names_what_was_asked_and_the_figures_with_their_change() -> None:
    one, other = GPU.story("a").run, replace(GPU, batch=64, rate=2350.0).story("b").run
    found = difference(one, other)
    assert found.differs["spec.workload.batch"] == (128, 64)
    assert "image.digest" not in found.differs
    assert not {"id", "started", "finished"} & set(found.differs)
    speed = found.figures["examples_per_second"]
    assert speed.change == pytest.approx(-0.5, abs=0.02)
    assert found.figures["precision_at_1"].change == 0


def test_what_two_runs_reached_and_used_has_no_change_where_they_can_t_be_compared() -> None:
    one, other = GPU.story("a").run, replace(GPU, batch=64).story("b").run
    found = difference(one, other, ["different batch (128 / 64)"])
    assert found.refused == ("different batch (128 / 64)",)
    for name in ("loss_first", "loss_last", "precision_at_1", "energy_joules", "gpus.0.joules", "seconds_per_batch"):
        assert (found.figures[name].a is not None, found.figures[name].change) == (True, None)
    assert found.figures["gpu_percent_mean"].change is not None


def test_without_a_speed_of_both_results_are_kept_apart_all_the_same_and_the_energy_of_commands_is_not() -> None:
    trained, command = Summary(steps=9, loss_last=2.0), Summary(energy_joules=9.0)
    run = GPU.story("a").run
    for summary, refused in ((trained, ("why",)), (command, ())):
        found = difference(replace(run, summary=summary), replace(run, summary=summary), ["why"])
        assert found.refused == refused
    assert found.figures["energy_joules"].change == 0


def test_a_figure_that_is_nought_in_both_has_a_change_of_nought_and_in_one_alone_none() -> None:
    calm, killed = (replace(GPU.story("a").run, summary=Summary(memory_oom_kills=kills)) for kills in (0, 2))
    assert difference(calm, calm).figures["memory_oom_kills"].change == 0
    assert difference(calm, killed).figures["memory_oom_kills"].change is None


def test_a_figure_that_only_one_has_has_no_change() -> None:
    found = difference(GPU.story("a").run, Run("b", "failed", STARTED))
    assert found.figures["examples_per_second"].b is None
    assert found.figures["examples_per_second"].change is None
    assert found.figures["gpus.0.gpu_percent_mean"].a
    assert "gpus.0.index" not in found.figures


def test_a_local_run_that_was_allowed_a_part_of_its_machine_has_that_beside_its_figures() -> None:
    machine = Machine("host", "Xeon", 128, usable_cores=4.0)
    run = replace(Made("cpu").run("r"), engine="local", machine=machine)
    assert naming.hardware(run) == "Xeon, 4 of 128 cores"
    assert dict(conditions(read_story(run, [], [])))["machine"] == "host, Xeon, 4 of 128 cores"
    assert naming.hardware(replace(run, engine="docker")) == "Xeon, 128 cores"
