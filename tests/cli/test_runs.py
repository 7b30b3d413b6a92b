"""`ngcdl runs`: a table on any terminal, and a list for machines."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from house import LIKE_OTHERS, House
from made_runs import Made

from ngcdl.cli.lookup import RECENT, RECENT_BYTES
from ngcdl.folder import EVENTS
from ngcdl.record import Image, Run, Summary
from ngcdl.running.owner import this_process

GOLDEN = Path(__file__).parents[1] / "golden/run-format-1"
LONG, QUIET = "20231116-221320-input-pipeline-aaa001", "20231117-221320-cifar10-keras-bbb001"
STEP = {"event": "step", "t": 0.0, "step": 0}


@pytest.fixture
def several(house: House) -> House:
    """Runs with long ids and long texts, one of them silent."""
    Made("cpu", steps=100, dataset="synthetic").keep(house.store, LONG, status="interrupted", exit_code=143)
    run = Run(QUIET, "running", time.time() - 9e4, engine="local", owner=this_process(), device="cpu")
    events = house.store.create(run) / "events.jsonl"
    events.write_text(json.dumps(STEP) + "\n")
    os.utime(events, (time.time() - 1500,) * 2)
    return house


def on_terminal(house: House, columns: int) -> list[str]:
    """What `ngcdl runs` shows on a terminal of that width."""
    ours, theirs = pty.openpty()
    with house.popen("runs", stdout=theirs, env={"COLUMNS": str(columns)}) as process:
        os.close(theirs)
        seen = b""
        with contextlib.suppress(OSError):  # EIO: the other end is closed
            while data := os.read(ours, 65536):
                seen += data
        os.close(ours)
    assert process.returncode == 0
    return seen.decode().splitlines()


def test_the_figures_of_a_long_run_s_last_part_are_marked_also_on_a_narrow_terminal(house: House) -> None:
    folder = Made(steps=100).keep(house.store, LONG, status="running", finished=None, exit_code=None)
    text = (folder / EVENTS).read_text()
    (folder / EVENTS).write_text("x" * RECENT_BYTES + "\n" + text)
    run = replace(house.store.load(LONG), summary=Summary(), owner=this_process())
    house.store.save(run)
    done = house.run("runs")
    head, row = done.stdout.splitlines()
    figures = dict(zip(head.split(), row.split(), strict=True))
    marked = {name for name, figure in figures.items() if figure.endswith("*")}
    assert marked == {"EXAMPLES/S", "CPU", "GPU"}
    assert done.stderr == f"ngcdl: * {RECENT}\n"
    assert "*" in on_terminal(house, 80)[1]


def test_a_command_without_an_image_is_named_as_far_as_there_is_room(house: House) -> None:
    spec = {"image": None, "command": ["python", "train.py", "--key", "***", *["--option"] * 9], "workload": None}
    house.store.create(Run("20231117-221320-run-bbb001", "finished", 0, 1, 0, engine="local", spec=spec))
    assert house.run("runs").stdout.endswith("  (python train.py --key '***' --option...)\n")
    assert on_terminal(house, 80)[1].endswith("  (python train...)")
    assert "python" not in on_terminal(house, 70)[1]


def test_no_runs_yet_is_said_and_json_is_an_empty_list(house: House) -> None:
    done = house.run("runs")
    assert (done.returncode, done.stdout) == (0, "")
    assert "ngcdl run --train cifar10" in done.stderr
    assert json.loads(house.run("runs", "--json").stdout) == []


def test_runs_are_a_table_and_a_list(kept: House) -> None:
    head, row = kept.run("runs").stdout.splitlines()
    assert head.split() == ["RUN", "STATUS", "ON", "DATA", "STEPS", "EXAMPLES/S", "CPU", "GPU", "IMAGE"]
    assert row.split()[:8] == ["run-format-1", "finished", "cpu", "synthetic", "30", "590.0", "44%", "85%"]
    (listed,) = json.loads(kept.run("runs", "--json").stdout)
    written = json.loads((GOLDEN / "run.json").read_text())
    assert listed == _with_later_fields(written, listed), "what came later is unknown of it"


def _with_later_fields(written: Any, listed: Any) -> Any:
    """Return `written` with null for each key that only `listed` has, recursively."""
    if isinstance(written, dict):
        return dict.fromkeys(listed) | {name: _with_later_fields(one, listed[name]) for name, one in written.items()}
    if isinstance(written, list):
        return [_with_later_fields(*pair) for pair in zip(written, listed, strict=True)]
    return written


def test_a_narrow_terminal_gets_a_line_a_run_with_what_matters_most(several: House) -> None:
    assert [line.split() for line in on_terminal(several, 80)] == [
        ["RUN", "STATUS", "DATA", "EXAMPLES/S"],
        [QUIET, "running,", "silent", "-", "n/a"],
        [LONG, "interrupted", "143", "synthetic", "4,733.4"],
    ]
    shutil.rmtree(several.store.folder(LONG))
    assert on_terminal(several, 80)[0].split() == ["RUN", "STATUS", "ON", "DATA", "EXAMPLES/S"]


@pytest.mark.parametrize("columns", [40, 56, 70, 90, 110])
def test_on_every_terminal_an_id_is_whole_and_a_speed_never_without_its_data(several: House, columns: int) -> None:
    lines = on_terminal(several, columns)
    assert all(len(line) <= columns for line in lines)
    assert all(any(line.split()[0] == run_id for line in lines) for run_id in (QUIET, LONG))
    head = " ".join(lines[:2])
    assert ("DATA" in head) == ("EXAMPLES/S" in head) == (columns > 70)


def test_a_wide_terminal_and_a_pipe_get_all_columns(several: House) -> None:
    piped = several.run("runs", env={"COLUMNS": "80"}).stdout.splitlines()
    assert on_terminal(several, 140) == piped
    assert piped[0].split() == ["RUN", "STATUS", "ON", "DATA", "STEPS", "EXAMPLES/S", "CPU", "GPU", "IMAGE"]
    assert "running, no step for 25 min" in piped[1]


def test_a_run_s_folder_that_may_not_be_entered_hides_no_other_run(kept: House) -> None:
    """As `sudo -E ngcdl run` leaves it."""
    kept.store.create(Run("locked", "finished", 1.0))
    kept.store.folder("locked").chmod(0)
    listed = kept.run("runs", before=LIKE_OTHERS)
    assert (listed.returncode, listed.stdout.splitlines()[1].split()[0]) == (0, GOLDEN.name)
    assert f"{kept.store.root}/locked/run.json" in listed.stderr
    assert "Permission denied" in listed.stderr
    exported = kept.run("runs", "export", GOLDEN.name, str(kept.home / "one.tar"), before=LIKE_OTHERS)
    assert exported.returncode == 0, exported.stderr
    refused = kept.run("show", "locked", before=LIKE_OTHERS)
    assert (refused.returncode, "Permission denied" in refused.stderr) == (125, True)


def test_an_image_by_digest_has_a_short_name_in_the_table_and_is_shown_once(house: House) -> None:
    digest = f"sha256:{'5' * 64}"
    house.store.create(Run("x", "finished", 1.0, image=Image(f"nvcr.io/nvidia/pytorch@{digest}", digest)))
    short = f"{digest[:19]}..."
    assert house.run("runs").stdout.splitlines()[1].split()[-1] == f"pytorch@{short}"
    assert f"nvcr.io/nvidia/pytorch  {short}\n" in house.run("show", "x").stdout


@pytest.mark.parametrize("content", ["", "[]", '{"format": 9}', "[" * 100000, '{"format": 1, "id": 5}'])
def test_one_broken_record_hides_no_other(kept: House, content: str) -> None:
    broken = kept.store.root / "broken-1"
    broken.mkdir()
    (broken / "run.json").write_text(content)
    done = kept.run("runs")
    assert done.returncode == 0
    assert "run-format-1" in done.stdout
    assert "broken-1" in done.stderr


def test_a_place_that_can_t_be_listed_is_told(house: House) -> None:
    house.store.root.parent.mkdir(parents=True)
    house.store.root.touch()
    done = house.run("runs")
    assert done.returncode == 125
    assert "XDG_STATE_HOME" in done.stderr
