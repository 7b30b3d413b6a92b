"""`ngcdl show --watch`: what a run does now, until it ends or Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from dataclasses import replace

import pytest
from house import House

from ngcdl.cli.live import _line, rows_of
from ngcdl.folder import EVENTS, SAMPLES
from ngcdl.record import Run
from ngcdl.report.measured.now import CardNow, Now
from ngcdl.running.owner import this_process

STEP = {"event": "step", "step": 40, "loss": 2.5, "examples_per_second": 900.0}


@pytest.fixture
def going(house: House) -> Run:
    """A run that goes on, watched by this process."""
    run = Run("x", "running", time.time() - 34, engine="local", owner=this_process(), spec={"command": ["python"]})
    folder = house.store.create(run)
    now = time.time() + 60  # so that it is fresh also where ngcdl takes long to start
    (folder / EVENTS).write_text(json.dumps({**STEP, "t": now}) + "\n")
    (folder / SAMPLES).write_text(json.dumps({"t": now, "container_cpu_percent": 190.0, "gpus": []}) + "\n")
    return run


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline()


def test_a_program_gets_a_line_of_json_for_each_reading_until_the_run_ends(house: House, going: Run) -> None:
    with house.popen("show", "x", "--watch", "0.1", "--json") as process:
        first = json.loads(line_of(process))
        assert (first["id"], first["status"], first["step"], first["loss"]) == ("x", "running", 40, 2.5)
        assert (first["cores"], first["memory_bytes"]) == (1.9, None)
        house.store.save(going.closed("finished", 0, None, time.time()))
        *_, last = map(json.loads, process.stdout or ())
        assert last["status"] == "finished"
    assert process.returncode == 0


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_an_engine_that_gives_no_answer_is_told_once_and_the_readings_go_on(
    house: House, going: Run, form: tuple[str, ...]
) -> None:
    dead = replace(this_process(), pid=2**22 - 1, ticks=1)
    house.store.save(replace(going, engine="docker", owner=dead))
    with house.popen("show", "x", "--watch", "0.1", *form) as process:
        for _ in range(3):
            assert "running" in line_of(process)
        process.send_signal(signal.SIGINT)
        assert process.stderr
        (told,) = process.stderr
    assert told.startswith("ngcdl: No Docker engine answers at ")
    assert told.endswith("What became of the run is not known yet.\n")
    assert rows_of(going, Now(), 34.0, unheard=told)[1] == ("unheard", told)


def test_a_log_gets_one_line_for_each_reading_and_ctrl_c_ends_it_well(house: House, going: Run) -> None:
    with house.popen("show", "x", "--watch", "0.1") as process:
        for _ in range(2):
            line = line_of(process)
            assert "step 40   loss 2.50   900.0 examples/s   CPU 1.9 cores   memory n/a" in line
        process.send_signal(signal.SIGINT)
        assert process.stderr
        assert process.stderr.read() == ""
    assert process.returncode == 0
    assert house.store.load("x") == going


def test_a_run_that_has_ended_is_told_once(house: House, going: Run) -> None:
    house.store.save(going.closed("failed", 3, None, going.started + 40))
    done = house.run("show", "x", "--watch", "5")
    assert done.returncode == 0
    assert done.stdout.count("\n") == 1
    assert "failed, exit code 3, 40 s" in done.stdout


def test_seconds_that_nobody_can_wait_are_refused(house: House, going: Run) -> None:
    assert "--watch -1: must be a number of seconds above 0" in house.run("show", "x", "--watch", "-1").stderr


def test_the_table_fits_and_has_what_is_known(going: Run) -> None:
    training = replace(going, spec={"workload": {"name": "cifar10"}}, started=0.0)
    card = CardNow(0, 47.0, 70 << 30, 80 << 30, 612.4)
    read = Now(1230, 5.0, 2.5, 1453.0, 0.0881, 0.61, 1.94, 95.0, 1 << 30, 8 << 30, (card,) * 9, 10_000, 772.6)
    rows = rows_of(training, read, 34.0)
    assert rows[:8] == [
        ("run", "x  (running, 34 s)"),
        ("step", "1,230 of 10,000 (12 %), about 13 min left   (29 s ago)"),
        ("loss", "2.50"),
        ("speed", "1,453.0 examples/s   0.0881 s/batch"),
        ("waits", "61 % of the time for its next batch"),
        *[("GPU 0", "47 % busy   memory 70.0 GiB of 80.0 GiB   612 W")] * 3,
    ]
    assert rows[-3:] == [
        ("", "1 more: --json has all GPUs"),
        ("CPU", "1.9 cores; all cores 95 % busy"),
        ("memory", "1.0 GiB of 8.0 GiB"),
    ]
    assert all(len(f"{name:<6}  {said}") <= 80 for name, said in rows)
    assert ("speed", "n/a") in rows_of(training, replace(read, examples_per_second=None, seconds_per_batch=None), 34.0)


@pytest.mark.parametrize(("done", "left", "said"), [
    (9999, 4.2, "9,999 of 10,000 (99 %), about 4 s left"), (10_000, None, "10,000 of 10,000 (100 %)"),
    (10_001, None, "10,001"), (-1, None, "-1"),
])  # fmt: skip
def test_a_share_of_the_steps_is_told_where_it_is_one(going: Run, done: int, left: float | None, said: str) -> None:
    assert rows_of(going, Now(done, steps=10_000, left_seconds=left), 34.0)[1] == ("step", said)


def watched(house: House, workload: dict[str, object], *events: dict[str, object]) -> dict[str, object]:
    """Return the first reading of a training that has written these events."""
    spec = {"command": ["python"], "workload": {"name": "cifar10-keras", **workload}}
    run = Run("y", "running", time.time() - 60, engine="local", owner=this_process(), spec=spec)
    folder = house.store.create(run)
    (folder / EVENTS).write_text("".join(json.dumps(event) + "\n" for event in events))
    with house.popen("show", "y", "--watch", "60", "--json") as process:
        read: dict[str, object] = json.loads(line_of(process))
        process.send_signal(signal.SIGINT)
    return read


def test_how_many_steps_a_training_will_have_is_in_its_first_event_and_how_long_they_take_follows(house: House) -> None:
    t = time.time() + 60  # so that it is fresh also where ngcdl takes long to start
    far = ({**STEP, "step": at, "t": t - 1400 + at} for at in range(1400))  # more than is read for one reading
    read = watched(house, {"epochs": 3}, {"event": "start", "steps": 1875, "t": t - 1500}, *far)
    assert (read["step"], read["steps"]) == (1399, 1875)
    assert read["left_seconds"] == pytest.approx(476, abs=0.01)


@pytest.mark.parametrize("ends", [{"seconds": 60.0}, {"times": 20}])
def test_where_a_time_ends_a_training_or_it_begins_anew_its_steps_tell_nothing(
    house: House, ends: dict[str, object]
) -> None:
    steps = ({**STEP, "step": at, "t": time.time() + at} for at in (1, 2))
    read = watched(house, {"steps": 9, **ends}, {"event": "start", "steps": 9}, *steps)
    assert (read["step"], read["steps"], read["left_seconds"]) == (2, None, None)


def test_what_a_command_does_not_report_has_no_row_and_what_can_t_be_read_is_n_a(going: Run) -> None:
    rows = rows_of(replace(going, reason="PENDING: Resources"), Now(gpus=(CardNow(1, error="GPU is lost (15)"),)), 0.0)
    assert rows == [
        ("run", "x  (waiting, 0.0 s)"),
        ("waits", "PENDING: Resources"),
        ("GPU 1", "GPU is lost (15)"),
        ("CPU", "n/a cores; all cores n/a busy"),
        ("memory", "n/a"),
    ]


def test_a_memory_of_unknown_size_is_told_without_one(going: Run) -> None:
    spark = CardNow(0, 97.0, 36 << 30, None, 61.0)
    assert rows_of(going, Now(gpus=(spark,)), 34.0)[1] == ("GPU 0", "97 % busy   memory 36.0 GiB   61 W")


def test_how_much_of_a_card_worked_stands_below_it_where_it_is_known(going: Run) -> None:
    worked = CardNow(0, 97.0, None, None, 61.0, None, 12.4, 100.0, 100.0, 100.0)
    read = Now(gpus=(worked, CardNow(1, 97.0)))
    said = "SMs active 12 %, occupancy 100 %, tensor cores 100 %, DRAM 100 %"
    rows = rows_of(going, read, 34.0)
    assert [name for name, _ in rows] == ["run", "GPU 0", "", "GPU 1", "CPU", "memory"]
    assert rows[2] == ("", said)
    assert len(said) <= 80 - len("memory  ")
    assert _line(going, read, 34.0).count("SMs") == 1
    assert f"61 W   {said}   GPU 1 97 % busy" in _line(going, read, 34.0)


@pytest.mark.parametrize(("height", "cards", "activities"), [(22, 8, 8), (21, 8, 0), (14, 8, 0), (13, 6, 0), (7, 0, 0)])
def test_on_a_low_terminal_it_says_less_of_the_cards_and_nothing_is_below_its_end(
    going: Run, height: int, cards: int, activities: int
) -> None:
    read = Now(1230, 5.0, 2.5, gpus=tuple(CardNow(at, 97.0, None, None, 61.0, None, 12.4) for at in range(8)))
    rows = rows_of(going, read, 34.0, height=height)
    assert len(rows) <= height
    assert [name for name, _ in rows[:4]] == ["run", "step", "loss", "speed"]
    assert sum(name.startswith("GPU ") for name, _ in rows) == cards
    assert sum("SMs" in said for _, said in rows) == activities
    assert [name for name, _ in rows[-2:]] == ["CPU", "memory"]
    assert (("", f"{8 - cards} more: --json has all GPUs") in rows) == (cards < 8)
