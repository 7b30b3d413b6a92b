"""`ngcdl show`: the results of the attempt that counts, and no figure rounded to nothing."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from house import House
from made_runs import STARTED, Made, read_story
from made_summaries import filled

from ngcdl.cli import shown
from ngcdl.record import Finding, Gpu, GpuSummary, Machine, Run, Summary
from ngcdl.report.measured.words import outcome
from ngcdl.report.shown.tables import figures


def rows(house: House, run: Run, capsys: pytest.CaptureFixture[str], *events: dict[str, Any]) -> str:
    """What is shown of the run, each row with its spaces collapsed."""
    folder = house.store.create(run)
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    shown.show_summary(house.store, run)
    return "\n".join(" ".join(line.split()) for line in capsys.readouterr().out.splitlines())


def test_the_last_attempt_is_shown_and_no_training_that_it_took_back(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    made = Made(steps=200)
    start, *trained, finish = made.events()
    start |= {"feed": "resident", "resumed_from_step": None}
    first = [start | {"precision": "tf32"}, {"event": "raced", "seconds": 3.0, "precision_at_1": 0.1}]
    second = [start | {"precision": "float32"}, *trained, {"event": "raced", "seconds": 3.0, "precision_at_1": 0.94}]
    events = [*first, *second, finish]
    text = rows(house, filled(made.run("x"), events, []), capsys, *events)
    assert "computed on GPU, float32" in text
    assert "from nothing tested after 3.00 s: precision @ 1 = 0.9400\n" in text


def test_advice_and_an_error_of_several_lines_are_wrapped_on_a_terminal_and_a_command_is_not(
    house: House, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(shown, "_path", lambda *_: "~/x")
    command = f"    ngcdl run {'--pip ab ' * 9}".rstrip()
    advice = "Look for dust in its fans, and for a distance to its neighbours, please."
    found = (Finding("hot", "The card was hot.", {}, f"{advice}\n{command}"),)
    reason = f"ValueError: no\n{'many words ' * 9}"
    house.store.create(Run("x", "failed", 1.0, summary=Summary(steps=10), findings=found, reason=reason))
    shown.show_summary(house.store, house.store.load("x"))
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if len(line) > 60] == [f"{'':9}{command}"]
    assert f"{'':9}its neighbours, please." in lines
    assert sum("many words" in line for line in lines) == 2


def test_the_record_s_path_begins_at_home_on_a_terminal_and_is_whole_for_a_program(
    house: House, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(house.home))
    text = rows(house, Run("x", "finished", STARTED, STARTED + 3), capsys)
    assert f"record {house.store.folder('x')}" in text
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "200")
    assert "record ~/state/ngcdl/runs/y" in rows(house, Run("y", "finished", STARTED, STARTED + 3), capsys)


def test_images_that_ngcdl_never_saw_are_not_said_to_be_the_official_ones(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run("x", "finished", STARTED, STARTED + 3, engine="compose", dataset="cifar10")
    assert "data CIFAR-10: not compared with the official files" in rows(house, run, capsys)
    assert "data CIFAR-10: as sent\n" in rows(house, replace(run, id="y", dataset_note="as sent"), capsys)


def test_what_went_on_from_a_checkpoint_was_not_taken_back(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    made = Made(steps=200)
    start, *_ = made.events()
    start |= {"feed": "input"}
    stages = {"event": "stages", "stages": [{"name": "crop", "examples_per_second": 10.0}]}
    events = [start, stages, start | {"resumed_from_step": 100}]
    assert rows(house, filled(made.run("x"), events, []), capsys, *events).count("stages crop 10") == 1


def test_a_card_that_somebody_else_used_is_not_shown_as_the_command_s(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    cards = (
        GpuSummary("u", "A100", 40.0, index=0, is_used=True),
        GpuSummary("v", "A100", 97.0, index=1, is_used=False),
    )
    text = rows(house, Run("x", "finished", STARTED, STARTED + 3, summary=Summary(steps=1, gpus=cards)), capsys)
    first, second = (line for line in text.splitlines() if line[:5] in ("GPU 0", "GPU 1"))
    assert first.endswith("n/a, A100")
    assert second.endswith("n/a, not used by this run"), "its name is that of the card before"


def test_a_small_figure_is_not_shown_as_nothing(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    summed = Summary(
        steps=1, precision_at_1=0.00004, loss_first=0.004, loss_last=0.0004,
        throttled_share={"hw_thermal_slowdown": 0.004}, energy_joules=0.4,
        energy_seconds=0.3, energy_gap_seconds=0.02, energy_from="counter",
        gpus=(GpuSummary("u", "T4", index=0),),
    )  # fmt: skip
    text = rows(house, Run("x", "finished", STARTED, STARTED + 3, summary=summed), capsys)
    assert "loss 0.0040 first, 0.00040 last" in text
    assert "precision @ 1 0.000040" in text
    assert "clocks held down hw_thermal_slowdown 0.40 % of the time" in text
    assert "energy 0.40 J by the GPUs in 0.30 s (counter; 0.020 s without a reading left out)" in text


def test_how_much_of_a_card_worked_stands_below_its_use_if_it_is_known(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    worked = {"sm_active_percent_mean": 12.4, "tensor_active_percent_mean": 0.3, "dram_bandwidth_percent_mean": 20.0}
    cards = (GpuSummary("u", "H100", 97.0, index=0, **worked), GpuSummary("v", "T4", 97.0, index=1, node="n2"))
    run = Run("x", "finished", STARTED, STARTED + 3, summary=Summary(steps=1, gpus=cards, **worked))
    _, said = rows(house, run, capsys).split("GPU 0 97 %")
    first, second, third = said.splitlines()[:3]
    assert first.endswith("H100")
    assert second == "SMs active 12 %, occupancy n/a, tensor cores 0.30 %, DRAM 20 %"
    assert third.startswith("GPU 1 97 %")
    assert third.endswith("T4, on n2")
    assert said.count("SMs") == 1
    table = dict(figures([read_story(run, [], [])]))
    assert table["GPU: SMs active"] == ("12.4 %",)
    assert table["GPU: DRAM bandwidth used"] == ("20.0 %",)
    assert "GPU: occupancy of the SMs" not in table


def test_why_readings_are_lacking_is_said(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    def row(run_id: str, **more: Any) -> str:
        run = Run(run_id, "finished", STARTED, summary=Summary(steps=1, samples=9, **more))
        return rows(house, run, capsys).partition("\ngaps ")[2].partition("\n")[0]

    lacking = "5 of 9 samples lack a reading or come after missed ones"
    assert row("x", gaps=5, gap_reason="GPUs: lost") == f"{lacking}, most often: GPUs: lost"
    assert row("y", gaps=5) == lacking
    assert row("z", gaps=0) == ""


def test_data_of_its_own_is_not_called_synthetic(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run("x", "finished", STARTED, STARTED + 3, summary=Summary(steps=1), dataset="imagenet", dataset_note="v2")
    assert "\ndata imagenet: v2\n" in rows(house, run, capsys)
    made_up = replace(run, id="y", dataset="made (SYNTHETIC)", dataset_note=None)
    assert "\ndata SYNTHETIC, nothing real\n" in rows(house, made_up, capsys)
    made_up = replace(made_up, id="z", dataset_note="no network: x: y")
    assert "\ndata SYNTHETIC, nothing real (no network: x: y)\n" in rows(house, made_up, capsys)


def test_a_run_that_finished_is_not_out_of_memory_though_a_process_inside_was_killed(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    why = "out of memory: the kernel killed a process inside, although the command itself exited with 0"
    run = Run("x", "finished", STARTED, STARTED + 3, 0, True, why)
    text = rows(house, run, capsys)
    assert "run x (finished, 3.0 s)" in text
    assert f"error {why}" in text
    failed = replace(run, id="y", status="failed")
    assert "(failed, out of memory, 3.0 s)" in rows(house, failed, capsys)
    assert outcome(failed, "out of memory: the kernel killed it").count("out of memory") == 1


@pytest.mark.parametrize("status", ["finished", "failed", "interrupted"])
@pytest.mark.parametrize("seconds", [3.26, 96.4, 4000.0])
def test_show_and_the_report_say_the_same_of_how_it_ended(status: str, seconds: float) -> None:
    run = Run("x", status, STARTED, STARTED + seconds, 137, oom_killed=True)
    assert dict(figures([read_story(run, [], [])]))["outcome"] == (shown.how_it_ended(run),)


def test_the_memory_of_several_nodes_is_that_of_the_one_that_has_most(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run("x", "finished", 1.0, summary=Summary(steps=1, memory_bytes_max=60 << 30))
    assert "memory 60.0 GiB at most\n" in rows(house, run, capsys)
    run = replace(run, id="y", spec={"placement": {"nodes": 2}, "gpus": "1"})
    assert "memory 60.0 GiB at most on a node\n" in rows(house, run, capsys)


COMMAND = Run("x", "finished", STARTED, STARTED + 60, gpus=("u",), spec={"command": ["python", "train.py"]})
CARD = GpuSummary("u", "T4", 1.0, index=0)


@pytest.mark.parametrize(("capability", "beside"), [("12.1", "; the GPU uses the same memory"), ("9.0", "")])
def test_that_a_gpu_uses_the_machine_s_memory_is_said_beside_it(
    house: House, capsys: pytest.CaptureFixture[str], capability: str, beside: str
) -> None:
    machine = Machine("spark", gpus=(Gpu(0, compute_capability=capability),))
    summary = Summary(steps=1, memory_bytes_max=3 << 30, gpus=(GpuSummary("GPU-1", memory_bytes_max=60 << 30),))
    run = Run("x", "finished", 1.0, machine=machine, summary=summary)
    assert f"memory 3.0 GiB at most{beside}\n" in rows(house, run, capsys)


def said_after(house: House, run: Run, capsys: pytest.CaptureFixture[str]) -> list[str]:
    house.store.create(run)
    shown.say_after_command(house.store, run)
    out, err = capsys.readouterr()
    assert out == "", "it is the command's"
    return [" ".join(line.split()) for line in err.splitlines()]


def test_after_a_command_its_reason_and_its_card_s_use_are_said(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    read = Summary(samples=60, training_samples=60, gpus=(CARD,))
    idle = Finding("gpu-idle", "GPU 1 % busy: the run hardly used it.")
    run = replace(COMMAND, summary=read, findings=(idle,), reason="it failed")
    assert said_after(house, run, capsys) == [
        "ngcdl: it failed (x)",
        "ngcdl: GPU 0: 1 % busy, memory n/a (mean of 60 samples; ngcdl show x)",
        "ngcdl: GPU 1 % busy: the run hardly used it.",
    ]
    house.store.create(replace(COMMAND, id="y", summary=read, findings=(idle,)))
    assert "why GPU 1 % busy" in " ".join(house.run("show", "y").stdout.split())


def test_after_a_short_command_nothing_is_said(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    run = replace(COMMAND, summary=Summary(samples=3, training_samples=3, gpus=(CARD,)), findings=())
    assert said_after(house, run, capsys) == []
    assert "why" not in house.run("show", "x").stdout


def test_after_a_command_that_reported_steps_its_table_is_said(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = Summary(steps=20, loss_first=4.0, loss_last=2.0, seconds_per_batch=0.5, samples=60, training_samples=3)
    said = said_after(house, replace(COMMAND, summary=summary, findings=()), capsys)
    assert said[:2] == ["ngcdl: it reported steps:", "run x (finished, 60 s)"]
    at = said.index("speed n/a (no step reported any)")
    assert said[at + 1] == "0.5000 s/batch (median)"
    assert "why n/a (3 samples while it trained, too few to say)" in said


def test_a_command_is_shown_with_the_folder_that_its_own_was_mounted_from(
    house: House, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {
        "image": "nvcr.io/nvidia/cuda:12", "command": ["sh", "-c", "a\nb"], "workload": None,
        "mounts": ["/data:/data:ro", "/home/me:x:/work"], "workdir": "/work",
    }  # fmt: skip
    Made().keep(house.store, "x", spec=spec)
    shown.show_summary(house.store, house.store.load("x"))
    said = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["command", "sh -c 'a\\nb'"] in said
    assert ["folder", "/home/me:x, at /work"] in said
    Made().keep(house.store, "y", spec=spec | {"command": [], "workdir": None})
    shown.show_summary(house.store, house.store.load("y"))
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert not {"command", "folder", "program"} & {*names}
