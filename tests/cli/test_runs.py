"""`ngcdl runs`: a table on any terminal, and a list for machines."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from house import LIKE_OTHERS, House
from made_runs import Made
from rich.cells import cell_len

from ngcdl.cli.lookup import RECENT, RECENT_BYTES
from ngcdl.folder import EVENTS
from ngcdl.record import Image, Run, Summary
from ngcdl.running.owner import this_process

GOLDEN = Path(__file__).parents[1] / "golden/run-format-1"
LONG, QUIET = "20231116-221320-cifar10-aaa001", "20231117-221320-cifar10-keras-bbb001"
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
    (folder / EVENTS).write_text('{"long": "' + "x" * RECENT_BYTES + '"}\n' + text)
    run = replace(house.store.load(LONG), summary=Summary(), owner=this_process())
    house.store.save(run)
    done = house.run("runs")
    _, row = done.stdout.splitlines()
    assert re.search(r"  [\d,.]+\* +GPU \d+%\*  ", row)
    assert done.stderr == f"ngcdl: * {RECENT}\n"
    assert "*" in on_terminal(house, 80)[1]


def test_a_command_is_whole_in_a_pipe_and_cut_to_the_room_on_a_terminal(house: House) -> None:
    spec = {"image": None, "command": ["python", "train.py", "--key", "***", *["--option"] * 9], "workload": None}
    house.store.create(Run("20231117-221320-run-bbb001", "finished", 0, 1, 0, engine="local", spec=spec))
    assert house.run("runs").stdout.endswith(f"  python train.py --key '***'{' --option' * 9}\n")
    for columns in (80, 56):
        row = on_terminal(house, columns)[1]
        assert len(row) <= columns
        assert re.search(r"  python trai.*\.\.\.$", row)


def test_a_list_says_when_a_run_began_how_long_it_took_and_what_was_busy(house: House) -> None:
    now = time.time()
    for number, (ago, took) in enumerate([(50 * 86400, 4000), (3 * 86400, 96), (7300, None), (70, 2)]):
        run = Run(
            f"2026010{9 - number}-000000-run-aaa00{number}", "finished" if took else "running", now - ago,
            took and now - ago + took, took and 0, engine="local", device=None, owner=this_process(),
            spec={"command": ["true"]},
            summary=Summary(samples=1, cpu_percent_mean=12.3, gpu_percent_mean=number or None),
        )  # fmt: skip
        house.store.create(run)
    rows = [re.split(r"  +", line) for line in on_terminal(house, 100)[1:]]
    day = time.strftime("%Y-%m-%d", time.localtime(now - 50 * 86400))
    assert [row[1:3] for row in rows] == [
        [day, "67 min"], ["3 d ago", "96 s"], ["2 h ago", "2 h 2 min"], ["1 min ago", "2.0 s"]
    ]  # fmt: skip
    assert [row[4:6] for row in rows] == [["-", "CPU 12%"], ["-", "GPU 1%"], ["-", "GPU 2%"], ["-", "GPU 3%"]]
    piped = house.run("runs").stdout.splitlines()[1]
    assert time.strftime("%Y-%m-%d %H:%M", time.localtime(now - 50 * 86400)) in piped


def test_a_run_in_which_the_kernel_killed_a_process_is_marked_though_it_exited_with_0(house: House) -> None:
    killed = Run("x", "finished", 1.0, 2.0, 0, oom_killed=True, reason="out of memory: the kernel killed a process")
    house.store.create(killed)
    house.store.create(replace(killed, id="y", reason=None))
    lines = {line.split()[0]: line for line in house.run("runs").stdout.splitlines()}
    assert "finished, OOM " in lines["x"]
    assert "OOM" not in lines["y"], "it found its largest batch"


def test_the_end_of_an_id_and_its_name_stand_for_it_only_where_they_name_one_run(house: House) -> None:
    ids = ["20260103-000000-run-aaa001", "20260102-000000-run-bbb001", "20260101-000000-other-run-bbb001", "x"]
    of_name = ["20260102-000001-lr3-ccc001", "20251231-000000-lr3-ccc000"]
    for run_id in [*ids, "20260104-000000-run-202601", *of_name]:
        house.store.create(Run(run_id, "finished", 1.0, 2.0, 0, spec={"command": ["a long command", "y" * 80]}))
    named = [line.split()[0] for line in on_terminal(house, 80)[1:]]
    assert named == ["x", "20260104-000000-run-202601", "aaa001", "lr3-ccc001", *ids[1:3], "lr3-ccc000"]
    assert all(house.record(name)["id"] for name in named)
    assert house.record("lr3")["id"] == of_name[0], "the newest run of that name"


def test_no_runs_yet_is_said_and_json_is_an_empty_list(house: House) -> None:
    done = house.run("runs")
    assert (done.returncode, done.stdout) == (0, "")
    assert "ngcdl run --train cifar10" in done.stderr
    assert json.loads(house.run("runs", "--json").stdout) == []


def test_runs_are_a_table_and_a_list(kept: House) -> None:
    head, row = kept.run("runs").stdout.splitlines()
    assert head.split() == ["RUN", "WHEN", "TOOK", "STATUS", "EXAMPLES/S", "BUSY", "WHAT"]
    assert re.split("  +", row)[0] == "run-format-1"
    assert re.split("  +", row)[3:6] == ["finished", "590.0", "CPU 44%"]
    assert "(synthetic)" in row
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
    head, *rows = [re.split("  +", line) for line in on_terminal(several, 80)]
    assert head == ["RUN", "WHEN", "STATUS", "EXAMPLES/S", "BUSY", "WHAT"]
    assert [row[0] for row in rows] == [QUIET[-6:], LONG[-6:]]
    assert [row[head.index("STATUS")] for row in rows] == ["running, silent", "interrupted 143"]


@pytest.mark.parametrize(("ago", "said"), [
    (0, {60: "running 74 %", 160: "running 74 %"}),
    (1500, {60: "running 74 %, silent", 160: "running 74 %, no step for 25 min"}),
])  # fmt: skip
def test_of_a_run_that_goes_on_it_says_how_much_is_done(house: House, ago: int, said: dict[int, str]) -> None:
    workload = {"name": "cifar10", "steps": 1000}
    run = Run(QUIET, "running", time.time() - 9e4, engine="local", owner=this_process(), spec={"workload": workload})
    events = house.store.create(run) / EVENTS
    events.write_text(json.dumps({**STEP, "step": 740}) + "\n")
    os.utime(events, (time.time() - ago,) * 2)
    for columns, status in said.items():
        head, row = (re.split("  +", line) for line in on_terminal(house, columns))
        assert row[head.index("STATUS")] == status


@pytest.mark.parametrize("columns", [40, 56, 70, 90, 110])
def test_on_every_terminal_a_run_has_one_line_and_a_speed_never_goes_without_its_data(
    several: House, columns: int
) -> None:
    lines = on_terminal(several, columns)
    assert len(lines) == 3
    assert all(len(line) <= columns for line in lines)
    assert [line.split()[0][-6:] for line in lines[1:]] == [QUIET[-6:], LONG[-6:]]
    assert "EXAMPLES/S" not in lines[0] or "(synthetic)" in lines[2]
    assert ("EXAMPLES/S" in lines[0]) == (columns >= 90)


@pytest.mark.parametrize("columns", [50, 80, 120])
def test_a_command_with_wide_characters_and_newlines_has_one_line_in_the_table(house: House, columns: int) -> None:
    words = ["python", "训练\n\n模型.py", *["图像分类\n数据集"] * 9]
    house.store.create(Run("x", "finished", 1.0, engine="local", spec={"command": words}))
    lines = on_terminal(house, columns)
    assert len(lines) == 2
    assert all(cell_len(line) <= columns for line in lines)
    assert lines[1].endswith("...")


def test_a_wide_terminal_and_a_pipe_get_all_columns(several: House) -> None:
    piped = several.run("runs", env={"COLUMNS": "80"}).stdout.splitlines()
    wide = on_terminal(several, 160)
    assert piped[0].split() == wide[0].split() == ["RUN", "WHEN", "TOOK", "STATUS", "EXAMPLES/S", "BUSY", "WHAT"]
    for line in (piped[1], wide[1]):
        assert line.startswith(QUIET)
        assert "running, no step for 25 min" in line


def test_a_run_s_folder_that_may_not_be_entered_hides_no_other_run(kept: House) -> None:
    """`sudo -E ngcdl run` leaves such a folder."""
    kept.store.create(Run("locked", "finished", 1.0))
    kept.store.folder("locked").chmod(0)
    listed = kept.run("runs", before=LIKE_OTHERS)
    assert (listed.returncode, listed.stdout.splitlines()[1].split()[0]) == (0, GOLDEN.name)
    assert f"{kept.store.root}/locked/run.json" in listed.stderr
    assert "Permission denied" in listed.stderr
    exported = kept.run("runs", "export", GOLDEN.name, str(kept.home / "one.tar"), before=LIKE_OTHERS)
    assert exported.returncode == 0, exported.stderr
    refused = kept.run("show", "locked", before=LIKE_OTHERS)
    assert (refused.returncode, refused.stderr.count("/locked/run.json")) == (125, 1)
    assert "can read: Permission denied.\n" in refused.stderr
    assert f"    sudo chown -R $USER {kept.store.root.parent}\n" in refused.stderr


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
