"""Differences between runs shown side by side are listed; those that change what a step is refuse the comparison."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from made_runs import STARTED

from ngcdl.record import Run
from ngcdl.report.shown import likeness
from ngcdl.report.shown.columns import read_story
from ngcdl.report.shown.markdown import markdown
from ngcdl.report.shown.page import page
from ngcdl.report.shown.story import Story

SPEC: dict[str, Any] = {
    "command": ["python", "resnet.py"], "workdir": "/a", "environment": {"EPOCHS": "3"}, "mounts": [],
    "ulimits": {"stack": 1}, "gpus": "1", "placement": {"nodes": 1, "partition": "main"},
}  # fmt: skip
RUN = Run("a", "finished", STARTED, STARTED + 60, engine="slurm", program="/venv1/bin/python", spec=SPEC)
NOTHING = "Besides what was measured, no difference was found."


def beside(**more: Any) -> list[Story]:
    other = replace(RUN, id="b", **more)
    return [replace(read_story(run, [], []), letter=letter) for run, letter in ((RUN, "A"), (other, "B"))]


@pytest.mark.parametrize(("name", "changed", "shown"), [
    ("command", {"command": ["python", "mlp.py"]}, ("python resnet.py", "python mlp.py")),
    ("folder", {"workdir": "/b"}, ("/a", "/b")),
    ("environment", {"environment": {"LR": "1", "PYTHONUNBUFFERED": "1"}}, ("EPOCHS=3", "LR=1")),
    ("environment", {"environment": {}}, ("EPOCHS=3", "none")),
    ("mounts", {"mounts": ["/data:/data:ro"]}, ("none", "/data:/data:ro")),
    ("ulimits", {"ulimits": {"stack": 2}}, ("stack=1", "stack=2")),
    ("size of /dev/shm", {"shm_bytes": 2 << 30}, ("n/a", "2.0 GiB")),
    ("cpu limit", {"cpu_limit": 0.5}, ("n/a", "0.5")),
    ("memory limit", {"memory_bytes": 64}, ("n/a", "64 B")),
    ("nodes", {"placement": {"nodes": 2, "partition": "main"}}, ("1", "2")),
    ("partition", {"placement": {"nodes": 1, "partition": "old"}}, ("main", "old")),
    ("GPUs of each node", {"gpus": "2"}, ("1", "2")),
])  # fmt: skip
def test_what_was_asked_for_differently_is_listed(name: str, changed: dict[str, Any], shown: tuple[str, str]) -> None:
    stories = beside(spec={**SPEC, **changed})
    assert likeness.differences(stories) == [(name, shown)]
    assert NOTHING not in page(stories)
    assert f"| {name} |" in markdown(stories)


def test_a_switch_is_on_or_off_in_words() -> None:
    runs = [replace(RUN, spec={"workload": {"name": "cifar10", "compile": on}}) for on in (False, True)]
    stories = [replace(read_story(run, [], []), letter=letter) for run, letter in zip(runs, "AB", strict=True)]
    assert ("compiled", ("no", "yes")) in likeness.differences(stories)


def test_the_program_that_a_command_named_is_listed() -> None:
    stories = beside(program="/venv2/bin/python")
    assert likeness.differences(stories) == [("program", ("/venv1/bin/python", "/venv2/bin/python"))]


def test_runs_without_a_difference_are_not_said_to_be_the_same() -> None:
    assert NOTHING in page(beside())


def test_another_command_is_another_run_and_another_folder_is_not() -> None:
    assert "different command (python resnet.py / python mlp.py)" in likeness.refused(
        *(_fast(story) for story in beside(spec={**SPEC, "command": ["python", "mlp.py"]}))
    )
    assert likeness.refused(*(_fast(story) for story in beside(spec={**SPEC, "workdir": "/b"}))) == []


def test_another_number_of_cpus_is_another_run_and_another_limit_of_memory_is_not() -> None:
    limited = beside(spec={**SPEC, "cpu_limit": 0.5})
    assert likeness.refused(*map(_fast, limited)) == ["different cpu limit (n/a / 0.5)"]
    assert likeness.refused(*map(_fast, beside(spec={**SPEC, "memory_bytes": 64}))) == []
    assert likeness.refused(*map(_fast, beside(spec={**SPEC, "cpu_limit": None}))) == [], "as in an older record"


def _fast(story: Story) -> Story:
    summary = replace(story.run.summary, steps=9, examples_per_second=100.0)
    return replace(story, run=replace(story.run, summary=summary))
