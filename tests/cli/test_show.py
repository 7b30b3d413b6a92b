"""`ngcdl show`: what a record says, for people and for machines, and what it does not know."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import pytest
from house import House

from ngcdl.record import Diagnosis, Finding, Gpu, GpuSummary, Image, Machine, Owner, Run, Summary
from ngcdl.storing import comparisons
from ngcdl.storing.comparisons import StoredComparison

GONE = Owner(2**22 + 1, 5)


def test_a_run_is_shown_with_what_it_reached_on_what_and_where_its_record_lies(kept: House) -> None:
    text = kept.run("show").stdout
    for part in ("finished, 8.0 s", "590.0 examples/s", "4.68 first, 4.30 last", "SYNTHETIC, nothing real", "0.100",
                 "GPUs by runtime", "i5-7300HQ", "85 %", "NVIDIA GeForce GTX 1050 Ti", "1 of 8 samples",
                 "forbids --ulimit memlock", str(kept.store.root)):  # fmt: skip
        assert part in text
    assert json.loads(kept.run("show", "run-format-1", "--json").stdout)["summary"]["steps"] == 30


def test_a_run_that_failed_of_something_famous_is_shown_with_cause_and_remedy(house: House) -> None:
    known = Diagnosis(
        "gpu-lost", "GPU is lost", "It fell off the bus.", "Restart:\n    sudo reboot", "https://x", "seen"
    )
    house.store.create(Run("x", "failed", 1.0, exit_code=1, diagnosis=known))
    lines = [line.rstrip() for line in house.run("show", "x").stdout.splitlines()]
    at = next(number for number, line in enumerate(lines) if line.startswith("recognised"))
    assert [line[12:] for line in lines[at : at + 4]] == [
        '"GPU is lost" (seen: https://x)', "It fell off the bus.", "Restart:", "    sudo reboot",
    ]  # fmt: skip
    assert json.loads(house.run("show", "x", "--json").stdout)["diagnosis"]["name"] == "gpu-lost"


def test_a_run_that_failed_for_a_reason_that_only_its_log_tells_is_shown_with_the_log_s_end(house: House) -> None:
    run = Run("x", "failed", 1.0, exit_code=1, finished=5.0)
    folder = house.store.create(run)
    assert "log end" not in house.run("show", "x").stdout
    (folder / "log.txt").write_text("Traceback\n" * 900 + "ValueError: key nvapi-CANARY-0123456789 is odd\n\n")
    with (folder / "log.txt").open("a") as log:
        log.write("srun: error: n1: task 0: Exited with exit code 1\n")
    rows = [row.split("  ", 1) for row in house.run("show", "x").stdout.splitlines()]
    assert ["log end", "ValueError: key *** is odd"] in rows
    assert any(row[-1].endswith("all of it: ngcdl logs x") for row in rows)
    house.store.save(replace(run, reason="out of memory"))
    assert "log end" not in house.run("show", "x").stdout


def test_a_long_reason_has_its_own_row_and_of_many_lines_the_first(house: House) -> None:
    for name, reason in (("short", "data: no"), ("long", "data: " + "x" * 80), ("trace", "crash: a\n\n b\nc\nd\ne\nf")):
        house.store.create(Run(name, "failed", 1.0, exit_code=1, finished=5.0, reason=reason))
    rows = {name: house.run("show", name).stdout.splitlines() for name in ("short", "long", "trace")}
    assert rows["short"][0] == "run      short  (failed, exit code 1, data: no, 4.0 s)"
    assert rows["long"][:2] == ["run      long  (failed, exit code 1, 4.0 s)", "error    data: " + "x" * 80]
    assert [row.strip() for row in rows["trace"][1:6]] == ["error    crash: a", "b", "c", "d", "..."]


@pytest.mark.parametrize(("run", "said"), [
    (Run("x", "interrupted", 1.0), "continue from it with:\n    ngcdl run --train cifar10 --seed 3 --resume x\n"),
    (Run("x", "failed", 1.0), "--resume x"),
    (Run("x", "lost", 1.0), "--resume x"),
    (Run("x", "lost", 1.0, owner=GONE, engine="docker"), "what became of it is not known yet: ngcdl show x"),
    (Run("x", "finished", 1.0), ""), (Run("x", "running", 1.0), ""),
])  # fmt: skip
def test_an_unfinished_training_with_a_checkpoint_is_shown_with_the_line_that_goes_on(
    house: House, run: Run, said: str
) -> None:
    checkpoints = house.store.create(replace(run, started=time.time())) / "checkpoints"
    start = {"event": "start", "t": 1.0, "workload": "cifar10", "seed": 3}
    (checkpoints.parent / "events.jsonl").write_text(json.dumps(start) + "\n")
    assert "--resume" not in house.run("show", "x").stderr
    checkpoints.mkdir()
    (checkpoints / "step-3.npz").touch()
    told = house.run("show", "x").stderr
    assert (said in told, "--resume" in told) == (True, "--resume" in said)


def test_energy_throttling_and_what_held_it_back_are_shown(house: House) -> None:
    summary = Summary(
        steps=10, training_samples=9, energy_joules=1234.6, energy_from="counter", energy_seconds=9.0,
        energy_gap_seconds=2.0, examples_per_joule=3.14159, throttled_share={"sw_power_cap": 0.25, "hw_slowdown": 0.5},
        shared_gpu=True, memory_bytes_max=1 << 30, memory_limit_bytes=1 << 31,
        gpus=(GpuSummary("GPU-1", "a card", 47.0, 1 << 30, 61.0, 0, sm_mhz_mean=1410.0),),
    )  # fmt: skip
    findings = (
        Finding("input-bound", "GPU 47 % busy.", {}, "More workers.\n    ngcdl x"),
        Finding("shared-gpu", "Others."),
    )
    machine = Machine(gpus=(Gpu(0, "a card", "GPU-1", 4 << 30),))
    house.store.create(Run("x", "finished", 1.0, exit_code=0, machine=machine, summary=summary, findings=findings))
    lines = [line.rstrip() for line in house.run("show", "x").stdout.splitlines()]
    rows = {line[:18].strip(): line[18:] for line in lines if line[:18].strip()}
    assert rows["energy"] == "1,235 J by the GPUs in 9.0 s, 3.14 examples/J (counter; 2.0 s without a reading left out)"
    assert rows["clocks held down"] == "hw_slowdown 50 %, sw_power_cap 25 % of the time"
    assert rows["GPU shared"] == "other processes computed on it at the same time"
    assert rows["GPU 0"] == "47 %, 1.0 GiB of 4.0 GiB at most, 61 W, 1,410 MHz, a card"
    assert rows["memory"] == "1.0 GiB at most, of 2.0 GiB"
    at = next(number for number, line in enumerate(lines) if line.startswith("why"))
    assert [line[18:] for line in lines[at : at + 4]] == ["GPU 47 % busy.", "More workers.", "    ngcdl x", "Others."]
    shown = json.loads(house.run("show", "x", "--json").stdout)
    assert [found["rule"] for found in shown["findings"]] == ["input-bound", "shared-gpu"]


def test_if_nobody_can_tell_who_else_used_the_gpu_it_says_so(house: House) -> None:
    summary = Summary(steps=10, gpus=(GpuSummary("GPU-1", "a card", 47.0, None, 61.0, 0),), shared_gpu=None)
    house.store.create(Run("x", "finished", 1.0, exit_code=0, summary=summary, findings=()))
    assert re.search(r"^GPU shared +n/a$", house.run("show", "x").stdout, re.MULTILINE)


def test_what_was_not_measured_of_energy_and_clocks_has_no_line(house: House) -> None:
    calm = Summary(steps=10, samples=9, training_samples=9, throttled_share={}, shared_gpu=False)
    house.store.create(Run("x", "finished", 1.0, exit_code=0, summary=calm, findings=()))
    text = house.run("show", "x").stdout
    for absent in ("energy", "clocks", "shared", "why"):
        assert absent not in text


def test_a_training_that_was_too_short_says_that_it_can_t_be_told_why(house: House) -> None:
    short = Run("x", "finished", 1.0, engine="docker", summary=Summary(steps=10, training_samples=4), findings=())
    house.store.create(short)
    shown = " ".join(house.run("show", "x").stdout.split())
    assert "n/a (4 samples while it trained, too few to say; more come with --sample-every 0.1)" in shown
    house.store.create(replace(short, id="y", status="failed"))
    assert "too few to say" not in house.run("show", "y").stdout
    house.store.create(replace(short, id="z", engine="compose"))
    house.store.create(replace(short, id="often", spec={"sample_seconds": 0.5}))
    for each in ("z", "often"):
        assert "too few to say)" in house.run("show", each).stdout
    lacking = replace(short.summary, samples=90, gaps=80, gap_reason="GPU GPU-1: GPU is lost (15)")
    house.store.create(replace(short, id="lost", summary=lacking))
    shown = " ".join(house.run("show", "lost").stdout.split())
    assert "n/a (4 samples without a gap while it trained, too few to say)" in shown, "more samples would not help"


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
    house.store.create(Run("x-1", "failed", 1.0, finished=2.0, exit_code=7, gpus=("GPU-1",), engine="docker"))
    text = house.run("show").stdout
    assert "failed, exit code 7" in text
    assert "CPU      n/a" in text
    assert "none was read" in text
    assert "failed 7" in house.run("runs").stdout


def test_a_cpu_of_0_is_0(house: House) -> None:
    figures = Summary(steps=1, cpu_percent_mean=0.0, gpus=(GpuSummary("GPU-1", None, 0.0, None, None),))
    house.store.create(Run("x-1", "finished", 1.0, summary=figures))
    text = house.run("show").stdout
    assert "0 % of all cores" in text
    assert "0 %, n/a at most, n/a, n/a" in text


def test_control_bytes_in_a_record_do_not_reach_the_terminal(house: House) -> None:
    bad = "\x1b]0;title\x07\x1b[2Jbad\nx-2"
    odd = Summary(throttled_share={"\x1b]52;c;AAAA\x07bad": 0.5})
    house.store.create(Run("x-1", "failed", 1.0, reason=bad, image=Image(bad), dataset=bad, device=bad, summary=odd))
    house.store.create(Run("x-0", "failed", 1.0))
    for argv in (("show", "x-1"), ("runs",), ("runs", "diff", "x-0", "x-1")):
        told = house.run(*argv).stdout
        assert ("bad" in told, "\x1b" in told, "\x07" in told) == (True, False, False)
        assert "\nx-2" not in told, "it makes no row of its own"


def test_a_newline_in_a_folder_s_name_or_in_a_command_does_not_break_the_row(house: House) -> None:
    folder = house.home / "a\nb"
    folder.mkdir()
    state = {"XDG_STATE_HOME": str(folder)}
    assert house.run("run", "--", "echo", "c\nd", env=state, cwd=folder).returncode == 0
    told = house.run("show", env=state).stdout
    record = f"record   {house.home}/a\\nb/ngcdl/runs/"
    for row in ("command  echo 'c\\nd'", f"folder   {house.home}/a\\nb", record):
        assert f"\n{row}" in told


def test_a_run_that_is_not_there_is_told(kept: House) -> None:
    for argv in (("show", "none"), ("show", "last-7"), ("logs", "none"), ("stop", "none"), ("show", "../x")):
        done = kept.run(*argv)
        assert (done.returncode, done.stdout) == (125, "")
        assert "There is no run" in done.stderr


@pytest.mark.parametrize("command", ["show", "logs", "wait", "runs diff last", "run --train cifar10 --resume"])
@pytest.mark.parametrize("name", ["20180216-010101-compare-b8-aaa111", "aaa111", "b8"])
def test_a_comparison_is_no_run_and_what_shows_it_is_named(kept: House, command: str, name: str) -> None:
    kept.store.create(Run("20180216-010101-cifar10-ccccb8", "finished", 1.0))  # ends like the comparison's --name
    found = StoredComparison("20180216-010101-compare-b8-aaa111", "device", 1, (("cpu", "cpu"),), 1.0)
    comparisons.save(found, kept.store)
    told = kept.run(*command.split(), name).stderr
    assert f"There is no run '{name}': that is a comparison." in told
    assert f"    ngcdl compare --show {found.id}\n" in told
