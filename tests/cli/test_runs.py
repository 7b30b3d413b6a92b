"""`ngcdl runs`, `show`, `logs` and `stop`: what records say, for people and for machines."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from house import LIKE_OTHERS, House, until
from made_runs import Made

from ngcdl.cli import kept as kept_runs
from ngcdl.owner import this_process
from ngcdl.record import Diagnosis, Finding, GpuSummary, Image, Owner, Run, Summary

GONE = Owner(2**22 + 1, 5)
GOLDEN = Path(__file__).parents[1] / "golden/run-format-1"


@pytest.fixture
def kept(house: House) -> House:
    """A home with the sample run of format 1."""
    shutil.copytree(GOLDEN, house.shelf.root / GOLDEN.name)
    return house


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


LONG, QUIET = "20231116-221320-input-pipeline-aaa001", "20231117-221320-cifar10-keras-bbb001"


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


@pytest.fixture
def several(house: House) -> House:
    """Runs with long ids and long words, one that says nothing."""
    Made("cpu", steps=100, dataset="synthetic").keep(house.shelf, LONG, status="interrupted", exit_code=143)
    run = Run(QUIET, "running", time.time() - 9e4, engine="local", owner=this_process(), device="cpu")
    events = house.shelf.create(run) / "events.jsonl"
    events.write_text(json.dumps(STEPS[0]) + "\n")
    os.utime(events, (time.time() - 1500,) * 2)
    return house


def test_a_narrow_terminal_gets_a_line_a_run_with_what_matters_most(several: House) -> None:
    assert [line.split() for line in on_terminal(several, 80)] == [
        ["RUN", "STATUS", "DATA", "EXAMPLES/S"],
        [QUIET, "running,", "silent", "-", "n/a"],
        [LONG, "interrupted", "143", "synthetic", "4,733.4"],
    ]
    shutil.rmtree(several.shelf.folder(LONG))
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
    """As `sudo -E ngcdl run` leaves one."""
    kept.shelf.create(Run("locked", "finished", 1.0))
    kept.shelf.folder("locked").chmod(0)
    listed = kept.run("runs", before=LIKE_OTHERS)
    assert (listed.returncode, listed.stdout.splitlines()[1].split()[0]) == (0, GOLDEN.name)
    assert f"{kept.shelf.root}/locked/run.json" in listed.stderr
    assert "Permission denied" in listed.stderr
    exported = kept.run("runs", "export", GOLDEN.name, str(kept.home / "one.tar"), before=LIKE_OTHERS)
    assert exported.returncode == 0, exported.stderr
    refused = kept.run("show", "locked", before=LIKE_OTHERS)
    assert (refused.returncode, "Permission denied" in refused.stderr) == (125, True)


def test_an_image_by_digest_has_a_short_name_in_the_table_and_is_shown_once(house: House) -> None:
    digest = f"sha256:{'5' * 64}"
    house.shelf.create(Run("x", "finished", 1.0, image=Image(f"nvcr.io/nvidia/pytorch@{digest}", digest)))
    short = f"{digest[:19]}..."
    assert house.run("runs").stdout.splitlines()[1].split()[-1] == f"pytorch@{short}"
    assert f"nvcr.io/nvidia/pytorch  {short}\n" in house.run("show", "x").stdout


def _with_later_fields(written: Any, listed: Any) -> Any:
    """Give `written` with null for each key that only `listed` has, all the way down."""
    if isinstance(written, dict):
        return dict.fromkeys(listed) | {name: _with_later_fields(one, listed[name]) for name, one in written.items()}
    if isinstance(written, list):
        return [_with_later_fields(*pair) for pair in zip(written, listed, strict=True)]
    return written


def test_a_run_is_shown_with_what_it_reached_on_what_and_where_its_record_lies(kept: House) -> None:
    text = kept.run("show").stdout
    for part in ("finished, 8.0 s", "590.0 examples/s", "4.68 first, 4.30 last", "SYNTHETIC, nothing real", "0.100",
                 "GPUs by runtime", "i5-7300HQ", "85 %", "NVIDIA GeForce GTX 1050 Ti", "1 of 8 samples",
                 "forbids --ulimit memlock", str(kept.shelf.root)):  # fmt: skip
        assert part in text
    assert json.loads(kept.run("show", "run-format-1", "--json").stdout)["summary"]["steps"] == 30


def test_a_run_that_failed_of_something_famous_is_shown_with_cause_and_remedy(house: House) -> None:
    known = Diagnosis(
        "gpu-lost", "GPU is lost", "It fell off the bus.", "Restart:\n    sudo reboot", "https://x", "seen"
    )
    house.shelf.create(Run("x", "failed", 1.0, exit_code=1, diagnosis=known))
    lines = [line.rstrip() for line in house.run("show", "x").stdout.splitlines()]
    at = next(number for number, line in enumerate(lines) if line.startswith("recognised"))
    assert [line[12:] for line in lines[at : at + 4]] == [
        '"GPU is lost" (seen: https://x)', "It fell off the bus.", "Restart:", "    sudo reboot",
    ]  # fmt: skip
    assert json.loads(house.run("show", "x", "--json").stdout)["diagnosis"]["name"] == "gpu-lost"


def test_a_long_reason_has_its_own_row_and_of_many_lines_the_first(house: House) -> None:
    for name, reason in (("short", "data: no"), ("long", "data: " + "x" * 80), ("trace", "crash: a\n\n b\nc\nd\ne\nf")):
        house.shelf.create(Run(name, "failed", 1.0, exit_code=1, finished=5.0, reason=reason))
    rows = {name: house.run("show", name).stdout.splitlines() for name in ("short", "long", "trace")}
    assert rows["short"][0] == "run      short  (failed, exit code 1, data: no, 4.0 s)"
    assert rows["long"][:2] == ["run      long  (failed, exit code 1, 4.0 s)", "error    data: " + "x" * 80]
    assert [row.strip() for row in rows["trace"][1:6]] == ["error    crash: a", "b", "c", "d", "..."]


@pytest.mark.parametrize(("run", "said"), [
    (Run("x", "interrupted", 1.0), "a checkpoint was saved; continue from it with: ngcdl run ... --resume x"),
    (Run("x", "failed", 1.0), "--resume x"),
    (Run("x", "lost", 1.0), "--resume x"),
    (Run("x", "lost", 1.0, owner=GONE, engine="docker"), "what became of it is not known yet: ngcdl show x"),
    (Run("x", "finished", 1.0), ""), (Run("x", "running", 1.0), ""),
])  # fmt: skip
def test_an_unfinished_training_with_a_checkpoint_is_shown_with_the_line_that_goes_on(
    house: House, run: Run, said: str
) -> None:
    checkpoints = house.shelf.create(replace(run, started=time.time())) / "checkpoints"
    assert "--resume" not in house.run("show", "x").stderr
    checkpoints.mkdir()
    (checkpoints / "step-3.npz").touch()
    told = house.run("show", "x").stderr
    assert (said in told, "--resume" in told) == (True, "--resume" in said)


STEPS = tuple({"event": "step", "t": float(t), "step": t} for t in (0, 100, 130))


@pytest.mark.parametrize(("events", "more", "seconds", "is_long"), [
    (STEPS, {}, 601, True), (STEPS, {}, 599, False),
    (({"event": "start", "t": 1.0}, *STEPS[:1]), {}, 301, True), ((), {}, 299, False),
    ((*STEPS, {"event": "step", "t": "torn"}), {}, 601, True),
    (STEPS, {"status": "finished"}, 9999, False), (None, {}, 9999, False),
    (STEPS, {"engine": "slurm", "reason": "queued: Priority"}, 9999, False),
    (STEPS, {"engine": "kubernetes"}, 9999, False),
])  # fmt: skip
def test_only_a_training_that_runs_and_was_silent_for_twenty_of_its_steps_is_told_of(
    house: House, events: tuple[dict[str, Any], ...] | None, more: dict[str, Any], seconds: float, is_long: bool
) -> None:
    run = replace(Run("x", "running", 1.0, engine="docker"), **more)
    path = house.shelf.create(run) / "events.jsonl"
    if events is not None:
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
        os.utime(path, (1000, 1000))
    assert kept_runs.silence(house.shelf, run, lambda: 1000 + seconds) == (seconds if is_long else None)


def test_a_training_that_stands_still_is_told_in_the_table_and_when_it_is_shown(house: House) -> None:
    run = Run("x", "running", time.time() - 9e4, engine="local", owner=this_process())
    path = house.shelf.create(run) / "events.jsonl"
    path.write_text(json.dumps(STEPS[0]) + "\n")
    for ago, said in ((12 * 60, "no step for 12 min"), (25 * 3600, "no step for 25 h")):
        os.utime(path, (time.time() - ago - 1,) * 2)
        listed, shown = house.run("runs"), house.run("show", "x")
        assert f"running, {said}" in listed.stdout
        for done in (listed, shown):
            assert f"x: {said}" in done.stderr
            assert "ngcdl gpu" in done.stderr
            assert "ngcdl stop x" in done.stderr
    os.utime(path)
    assert "no step" not in house.run("runs").stdout


def test_energy_throttling_and_what_held_it_back_are_shown(house: House) -> None:
    summary = Summary(
        steps=10, training_samples=9, energy_joules=1234.6, energy_from="counter", energy_seconds=9.0,
        energy_gap_seconds=2.0, examples_per_joule=3.14159, throttled_share={"sw_power_cap": 0.25, "hw_slowdown": 0.5},
        shared_gpu=True, memory_bytes_max=1 << 30, memory_limit_bytes=1 << 31,
        gpus=(GpuSummary("GPU-1", "a card", 47.0, None, 61.0, 0, sm_mhz_mean=1410.0),),
    )  # fmt: skip
    findings = (
        Finding("input-bound", "GPU 47 % busy.", {}, "More workers.\n    ngcdl x"),
        Finding("shared-gpu", "Others."),
    )
    house.shelf.create(Run("x", "finished", 1.0, exit_code=0, summary=summary, findings=findings))
    lines = [line.rstrip() for line in house.run("show", "x").stdout.splitlines()]
    rows = {line[:18].strip(): line[18:] for line in lines if line[:18].strip()}
    assert rows["energy"] == "1,235 J by the GPUs in 9.0 s, 3.14 examples/J (counter; 2.0 s without a reading left out)"
    assert rows["clocks held down"] == "hw_slowdown 50 %, sw_power_cap 25 % of the time"
    assert rows["GPU shared"] == "other processes computed on it at the same time"
    assert rows["GPU 0"] == "47 %, n/a at most, 61 W, 1,410 MHz, a card"
    assert rows["memory"] == "1.0 GiB at most, of 2.0 GiB"
    at = next(number for number, line in enumerate(lines) if line.startswith("why"))
    assert [line[18:] for line in lines[at : at + 4]] == ["GPU 47 % busy.", "More workers.", "    ngcdl x", "Others."]
    shown = json.loads(house.run("show", "x", "--json").stdout)
    assert [found["rule"] for found in shown["findings"]] == ["input-bound", "shared-gpu"]


def test_what_was_not_measured_of_energy_and_clocks_has_no_line(house: House) -> None:
    calm = Summary(steps=10, samples=9, training_samples=9, throttled_share={}, shared_gpu=False)
    house.shelf.create(Run("x", "finished", 1.0, exit_code=0, summary=calm, findings=()))
    text = house.run("show", "x").stdout
    for absent in ("energy", "clocks", "shared", "why"):
        assert absent not in text


def test_a_training_that_was_too_short_says_that_it_can_t_be_told_why(house: House) -> None:
    house.shelf.create(Run("x", "finished", 1.0, summary=Summary(steps=10, training_samples=4), findings=()))
    assert "n/a (4 samples while it trained, too few to say)" in house.run("show", "x").stdout
    house.shelf.create(Run("y", "failed", 1.0, summary=Summary(steps=10, training_samples=4), findings=()))
    assert "too few to say" not in house.run("show", "y").stdout


def test_json_of_a_run_has_every_documented_key(kept: House) -> None:
    record = json.loads(kept.run("show", "last", "--json").stdout)
    for key in ("id", "status", "exit_code", "oom_killed", "image", "engine", "gpus", "dataset", "machine", "spec"):
        assert key in record
    assert set(record["image"]) >= {"reference", "digest"}
    assert set(record["machine"]) >= {"cpu", "cores", "memory_bytes", "gpus", "driver"}
    assert set(record["summary"]) >= {
        "steps", "examples_per_second", "seconds_per_batch", "loss_first", "loss_last", "cpu_percent_mean",
        "gpu_percent_mean", "gpu_memory_bytes_max",
    }  # fmt: skip


def test_what_was_not_measured_is_n_a_and_never_0(house: House) -> None:
    house.shelf.create(Run("x-1", "failed", 1.0, finished=2.0, exit_code=7, gpus=("GPU-1",), engine="docker"))
    text = house.run("show").stdout
    assert "failed, exit code 7" in text
    assert "CPU      n/a" in text
    assert "none was read" in text
    assert "failed 7" in house.run("runs").stdout


def test_a_cpu_of_0_is_0(house: House) -> None:
    figures = Summary(steps=1, cpu_percent_mean=0.0, gpus=(GpuSummary("GPU-1", None, 0.0, None, None),))
    house.shelf.create(Run("x-1", "finished", 1.0, summary=figures))
    text = house.run("show").stdout
    assert "0 % of all cores" in text
    assert "0 %, n/a at most, n/a, n/a" in text


def test_control_bytes_in_a_record_do_not_reach_the_terminal(house: House) -> None:
    bad = "\x1b]0;title\x07\x1b[2Jbad\nx-2"
    odd = Summary(throttled_share={"\x1b]52;c;AAAA\x07bad": 0.5})
    house.shelf.create(Run("x-1", "failed", 1.0, reason=bad, image=Image(bad), dataset=bad, device=bad, summary=odd))
    house.shelf.create(Run("x-0", "failed", 1.0))
    for argv in (("show", "x-1"), ("runs",), ("runs", "diff", "x-0", "x-1")):
        told = house.run(*argv).stdout
        assert ("bad" in told, "\x1b" in told, "\x07" in told) == (True, False, False)
        assert argv == ("show", "x-1") or "\nx-2" not in told, "it makes no row of its own"


def test_a_run_that_is_not_there_is_told(kept: House) -> None:
    for argv in (("show", "none"), ("show", "last-7"), ("logs", "none"), ("stop", "none"), ("show", "../x")):
        done = kept.run(*argv)
        assert (done.returncode, done.stdout) == (125, "")
        assert "There is no run" in done.stderr


def test_logs_are_printed_as_they_were_written(kept: House) -> None:
    assert kept.run("logs", "last").stdout == (GOLDEN / "log.txt").read_text()
    assert kept.run("logs", "--follow").stdout == (GOLDEN / "log.txt").read_text()


def test_a_log_of_which_no_engine_tells_the_end_is_followed_on_and_that_is_said(house: House) -> None:
    folder = house.shelf.create(Run("x-1", "running", 1.0, engine="docker", container="c0ffee", owner=GONE))
    (folder / "log.txt").write_text("up\n")
    said, out = house.home / "err", house.home / "out"
    with said.open("w") as err, out.open("w") as file, house.popen("logs", "-f", stdout=file, stderr=err) as process:
        until(lambda: "known yet" in said.read_text() and out.read_text(), "a word", 20)
        process.send_signal(signal.SIGINT)
    (told,) = said.read_text().splitlines()
    assert (process.returncode, out.read_text()) == (130, "up\n")
    assert told.startswith("ngcdl: No Docker engine answers at ")
    assert told.endswith("What became of the run is not known yet.")


def test_a_run_that_wrote_nothing_is_there_and_has_no_log(kept: House) -> None:
    (kept.shelf.folder(GOLDEN.name) / "log.txt").unlink()
    done = kept.run("logs", "last")
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith(f"ngcdl: {GOLDEN.name} has no log: it wrote nothing.\n")
    assert f"ngcdl show {GOLDEN.name}" in done.stderr


def test_a_log_that_is_no_text_is_passed_on(kept: House) -> None:
    (kept.shelf.root / GOLDEN.name / "log.txt").write_bytes(b"\xff\x00\n")
    assert kept.run("logs").stdout.encode(errors="surrogateescape") == b"\xff\x00\n"


def test_pipes_in_the_place_of_a_run_s_files_are_never_waited_for(kept: House) -> None:
    folder = kept.shelf.root / GOLDEN.name
    for name in ("log.txt", "events.jsonl", "samples.jsonl"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
    done = kept.run("logs", "last")
    assert (done.returncode, done.stdout) == (125, "")
    assert "log.txt is not a record that ngcdl can read: it is not a regular file" in done.stderr
    assert kept.run("show").returncode == 0
    assert kept.run("report", "--markdown", "-").returncode == 0
    (folder / "run.json").unlink()
    os.mkfifo(folder / "run.json")
    assert kept.run("show").returncode == 125
    assert kept.run("runs").returncode == 0


def test_a_run_without_a_log_says_so(kept: House) -> None:
    (kept.shelf.root / GOLDEN.name / "log.txt").unlink()
    done = kept.run("logs")
    assert done.returncode == 125
    assert "wrote nothing" in done.stderr


def test_a_run_that_has_ended_can_t_be_stopped_and_that_is_no_error(kept: House) -> None:
    done = kept.run("stop", "last")
    assert done.returncode == 0
    assert "already ended: finished" in done.stderr


def test_a_run_that_compose_started_is_not_stopped_and_that_is_an_error(house: House) -> None:
    house.shelf.create(Run("x", "running", time.time(), engine="compose"))
    done = house.run("stop", "x")
    assert (done.returncode, done.stdout) == (125, "")
    assert "x was started by compose, not by ngcdl, which can't stop it." in done.stderr
    assert "docker compose stop" in done.stderr


@pytest.mark.parametrize(("engine", "remedy"), [("kubernetes", "use-context west"), ("slurm", "talks to west")])
def test_a_run_on_another_cluster_is_not_stopped_from_here_nor_a_job_of_its_number(
    house: House, engine: str, remedy: str
) -> None:
    folder = house.shelf.create(Run("x", "running", 1.0, engine=engine, engine_id="west", container="slurm:7"))
    (folder / "job.yaml").write_text("kind: Job\nmetadata:\n  name: x\n")
    programs, asked = house.home / "bin", house.home / "asked"
    programs.mkdir()
    says = {"kubectl": "east", "scontrol": "ClusterName = east", "squeue": "RUNNING|", "scancel": ""}
    for name, words in says.items():
        (programs / name).write_text(f"#!/bin/sh\necho {name} $* >>{asked}\necho '{words}'\n")
        (programs / name).chmod(0o755)
    done = house.run("stop", "x", env={"PATH": f"{programs}:{os.environ['PATH']}"})
    assert (done.returncode, done.stdout) == (125, "")
    assert remedy in done.stderr
    assert set(asked.read_text().splitlines()) in (
        {"kubectl --request-timeout=30s config current-context"}, {"scontrol show config"}
    )  # fmt: skip
    assert house.shelf.load("x").notes == ()


@pytest.mark.parametrize("content", ["", "[]", '{"format": 9}', "[" * 100000, '{"format": 1, "id": 5}'])
def test_one_broken_record_hides_no_other(kept: House, content: str) -> None:
    broken = kept.shelf.root / "broken-1"
    broken.mkdir()
    (broken / "run.json").write_text(content)
    done = kept.run("runs")
    assert done.returncode == 0
    assert "run-format-1" in done.stdout
    assert "broken-1" in done.stderr


def test_a_place_that_can_t_be_listed_is_told(house: House) -> None:
    house.shelf.root.parent.mkdir(parents=True)
    house.shelf.root.touch()
    done = house.run("runs")
    assert done.returncode == 125
    assert "XDG_STATE_HOME" in done.stderr
