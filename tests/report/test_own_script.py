"""A user's own script with the lines of docs/training.md has steps, a speed and findings."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_runs import STARTED
from made_summaries import filled

from ngcdl.folder import EVENTS, lines
from ngcdl.record import Machine, Run
from ngcdl.report.shown.columns import read_story
from ngcdl.report.shown.page import page

GUIDE = (Path(__file__).parents[2] / "docs/training.md").read_text()
(SCRIPT,) = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
RUN = Run("x", "finished", STARTED, STARTED + 60, gpus=("GPU-1",), spec={"command": ["python", "train.py"]},
          machine=Machine(cores=2))  # fmt: skip


def ran(tmp_path: Path, calls: str, **environment: str) -> list[dict[str, Any]]:
    subprocess.run([sys.executable, "-c", f"{SCRIPT}\n{calls}"], check=True, cwd=tmp_path, env=environment)
    return list(lines(tmp_path / EVENTS))


def test_the_guide_s_script_reports_steps_and_a_speed_and_does_nothing_elsewhere(tmp_path: Path) -> None:
    calls = (
        "report(0, loss=4.6)\nfor n in 1, 2: report(10 * n, loss=3 / n, examples_per_second=90, seconds_per_batch=.5)"
    )
    assert ran(tmp_path, calls) == []
    events = ran(tmp_path, calls, NGCDL_RUN=str(tmp_path))
    summary = filled(RUN, events, []).summary
    assert (summary.steps, summary.loss_first, summary.loss_last) == (20, 4.6, 1.5)
    assert (summary.examples_per_second, summary.seconds_per_batch) == (90, 0.5)
    assert all(abs(now["t"] - events[0]["t"]) < 60 for now in events)


def step(number: object, second: object, **more: object) -> dict[str, Any]:
    return {"event": "step", "step": number, "t": STARTED + second if type(second) is int else second, **more}


def sample(second: int, percent: float) -> dict[str, Any]:
    card = {"uuid": "GPU-1", "index": 0, "gpu_percent": percent}
    return {"t": STARTED + second, "host_cpu_percent": 40.0, "cpu_percents": [99, 2], "gpus": [card]}


def test_its_findings_are_over_its_steps_and_its_start_up_is_left_out() -> None:
    samples = [sample(second, 0.0 if second < 20 else 60.0) for second in range(60)]
    run = filled(RUN, [step(1, 20), step(2, 59)], samples)
    assert (run.summary.training_samples, run.summary.gpu_percent_mean) == (40, 60.0)
    (found,) = run.findings or ()
    assert found.text == "GPU 60 % busy, one CPU core at 99 %: it prepares data, launches work, or waits for the card."
    waited = {"seconds_per_batch": 0.1, "input_seconds_per_batch": 0.09}
    run = filled(RUN, [step(1, 20), step(2, 59, **waited)], samples)
    assert "90 % of the time the run waited for its next batch" in (run.findings or ())[0].text


def test_its_page_draws_the_speed_and_the_loss_that_it_reported_and_misses_neither_where_it_did_not() -> None:
    samples = [sample(second, 60.0) for second in range(60)]
    told = [step(n, 20 + n, loss=9.0 - n, examples_per_second=90.0) for n in range(1, 9)]
    document = page([read_story(RUN, told, samples)])
    assert ("<strong>Throughput<" in document, "<strong>Loss<" in document) == (True, True)
    assert "Mean over its steps:" in document
    document = page([read_story(RUN, [step(n, 20 + n) for n in range(1, 9)], samples)])
    assert "Throughput" not in document
    assert not re.search("not drawn:[^.]*(throughput|loss|accuracy)", document)


def test_a_curve_that_would_be_a_speck_is_not_drawn_but_named() -> None:
    told = [step(n, 20 + n, loss=9.0 - n, examples_per_second=90.0) for n in (1, 2)]
    samples = [{**sample(second, 60.0), "cpu_percents": [100, 100]} for second in (21, 22)]
    document = page([read_story(RUN, told, samples)])
    assert "Too few values to draw: throughput, CPU use, loss." in document
    assert "<strong>Loss<" not in document
    assert "Mean over its steps: 100 %." in document


@pytest.mark.parametrize("wrong", [
    step("2", 30), step(2.5, 30), step(True, 30), step(None, 30), {"event": "mine", "loss": 9.0}, {},
])  # fmt: skip
def test_a_line_that_is_no_step_counts_for_nothing(wrong: dict[str, Any]) -> None:
    summary = filled(RUN, [step(1, 20), wrong, step(4, 40, odd=[1], loss="low")], []).summary
    assert (summary.steps, summary.loss_last, summary.examples_per_second) == (4, None, None)


def test_steps_without_times_or_a_single_one_have_no_findings() -> None:
    samples = [sample(second, 1.0) for second in range(60)]
    for events in ([step(1, 20)], [step(1, "now"), step(2, None)]):
        assert filled(RUN, events, samples).findings == ()


def test_a_torn_line_and_nan_leave_the_other_lines_alone(tmp_path: Path) -> None:
    good = '{"event": "step", "t": 1.0, "step": 1, "loss": NaN, "examples_per_second": 5}\n'
    (tmp_path / EVENTS).write_text(f'{good}not json\n[1]\n{{"event": "step", "t": 2.0, "st')
    with pytest.warns(UserWarning, match="2 lines can't be read"):
        summary = filled(RUN, list(lines(tmp_path / EVENTS)), []).summary
    assert (summary.steps, summary.loss_first, summary.examples_per_second) == (1, None, 5)


def test_a_command_with_a_record_without_spec_is_as_before() -> None:
    samples = [sample(second, 1.0) for second in range(60)]
    assert filled(replace(RUN, spec=None), [], samples).findings == ()


def test_a_loss_that_ends_as_no_number_is_not_the_last_that_was_one_and_is_found() -> None:
    nan, inf = float("nan"), float("inf")
    for losses, last, since in [
        ((1.0, 0.5, nan, inf), None, 2), ((nan, nan), None, 0),
        ((1.0, nan, 0.5), 0.5, None), ((1.0, nan, None), None, 1),
    ]:  # fmt: skip
        run = filled(RUN, [step(at, 5 * at, loss=loss) for at, loss in enumerate(losses)], [])
        assert run.summary.loss_last == last
        found = [one for one in run.findings or () if one.rule == "diverged"]
        assert [one.text for one in found] == [
            f"The loss is not a finite number from step {at} on." for at in [since] if at is not None
        ]
