"""`ngcdl compare` on the local engine, as a process: what it prints, records, refuses, and how it stops."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from house import ROOT, House, until
from telemetry.stand_in import SOURCE, write_state

COMPARE = ("compare", "--train", "cifar10", "--engine", "local", "--data", "synthetic", "--gpus", "none")
THREADS = (*COMPARE, "--vary", "threads=1,2")


def read(house: House, *words: str) -> dict[str, Any]:
    done = house.run(*words, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_two_arms_run_three_rounds_in_turn_and_the_table_and_verdict_are_printed(trained: House) -> None:
    done = trained.run(*THREADS)
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    assert rows[0].split()[:3] == ["ARM", "RUNS", "EXAMPLES/S"]
    assert [row.split()[:3] for row in rows[1:3]] == [["threads=1", "3", "512.0"], ["threads=2", "3", "512.0"]]
    assert "SYNTHETIC" in done.stdout
    assert "threads=2 / threads=1: 1.00 times (1.00..1.00), 3 rounds" in rows
    assert "No measurable difference" in rows[-1]
    told = [line.split(": ")[1] for line in done.stderr.splitlines() if line.startswith("ngcdl: round")]
    assert told == [f"round {n} of 3, threads={t}" for n, t in ((1, 1), (1, 2), (2, 2), (2, 1), (3, 1), (3, 2))]


def test_without_vary_a_training_asks_its_own_question(trained: House) -> None:
    words = ("compare", "--train", "batch-sweep", "--engine", "local", "--gpus", "none", "--repeat", "1")
    found = read(trained, *words)
    assert (found["vary"], [arm["name"] for arm in found["arms"]]) == ("batch", ["batch=8", "batch=64"])


def test_json_has_all_of_it_and_of_what_has_ended_nothing_is_stopped(trained: House) -> None:
    found = read(trained, *THREADS, "--repeat", "2", "--name", "two")
    assert "-compare-two-" in found["id"]
    assert not any("two" in trial["run"] for trial in found["trials"]), "the name is the comparison's"
    assert (found["vary"], found["repeat"], found["ratio"]["median"], found["refused"]) == ("threads", 2, 1.0, [])
    assert [trial["run"] for trial in found["trials"]] == list(reversed(trained.store.ids()))
    again = trained.run("compare", "--show", found["id"])
    assert again.stdout.splitlines()[-1] == found["verdict"]
    assert again.stderr == f"ngcdl: as a page: ngcdl report {found['id']}\n"
    assert read(trained, "compare", "--show", "last") == found
    assert read(trained, "compare", "--show", found["id"]) == found
    assert all(f"{found['id']}: it has ended" in trained.run("stop", one).stderr for one in (found["id"], "two"))


def test_stopping_a_comparison_that_was_killed_between_two_runs_says_that_nothing_was_running(trained: House) -> None:
    found = read(trained, *THREADS, "--repeat", "1")
    (path,) = trained.store.root.parent.rglob(f"{found['id']}*.json")
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "repeat": 4, "finished": None}))
    done = trained.run("stop", found["id"])
    assert done.returncode == 0, done.stderr
    assert "nothing was running, and no further run starts" in done.stderr


def test_each_run_is_recorded_with_its_place_and_is_not_evaluated(trained: House) -> None:
    found = read(trained, *THREADS, "--repeat", "1", "--steps", "11")
    record = trained.record()
    assert record["notes"] == [f"compare {found['id']}: threads=2, round 1 of 1"]
    assert (record["spec"]["workload"]["steps"], record["spec"]["workload"]["evaluate"]) == (11, False)
    assert "--threads 2" in " ".join(record["spec"]["command"])


def test_one_round_gives_no_ratio_and_says_why(trained: House) -> None:
    done = trained.run(*THREADS, "--repeat", "1")
    assert done.returncode == 0
    assert "one pair, no spread" in done.stdout
    assert "1.00 times" not in done.stdout


def test_without_a_gpu_the_cpu_alone_is_measured_and_it_is_said(trained: House) -> None:
    for words, often, runs in (((), "once", 1), (("--repeat", "2"), "2 times", 3)):
        done = trained.run(*COMPARE[:-2], *words)
        assert done.returncode == 0, done.stderr
        assert "the GPU can't be measured here" in done.stdout
        assert (
            f"the GPU can't be measured here: this host has no NVIDIA driver. So only the CPU is measured, {often}. To "
            "compare something here:\n    ngcdl compare --train cifar10 --gpus none --vary threads=1,2\n"
        ) in done.stderr
        assert done.stdout.splitlines()[-1] == "Only the CPU was measured: 512.0 examples/s."
        assert len(trained.store.ids()) == runs


@pytest.fixture
def cards(tmp_path: Path) -> dict[str, str]:
    """The environment of a host with the two stand-in cards, the smaller one free."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler (gcc or cc) to build the stand-in NVML library with")
    library = tmp_path / "nvml"
    library.mkdir()
    words = [compiler, "-shared", "-fPIC", "-o", str(library / "libnvidia-ml.so.1"), str(SOURCE)]
    subprocess.run(words, check=True)
    write_state(library / "state", {})
    return {"LD_LIBRARY_PATH": str(library), "NGCDL_NVML_STATE": str(library / "state"), "STAND_IN_DEVICE": "asked"}


def test_more_cards_than_this_machine_has_are_told_before_anything_runs(trained: House, cards: dict[str, str]) -> None:
    done = trained.run(*COMPARE[:-2], "--vary", "gpus=4,1", env=cards)
    assert (done.returncode, done.stdout) == (125, "")
    assert "A comparison of cifar10 with gpus=4 and gpus=1 needs 4 cards: this host has only 2." in done.stderr
    assert trained.store.ids() == []


@pytest.mark.parametrize(("words", "said"), [
    (("--train", "scaling"), "A comparison of scaling with gpus=1 and gpus=2 needs 2 cards: this host has no NVIDIA"),
    (("--train", "scaling"), "    ngcdl compare --train scaling --gpus none --vary threads=1,2\n"),
    (("--train", "cifar10", "--gpus", "all"), "  Leave it out, and the CPU alone is measured.\n"),
    (("--train", "cifar10", "--gpus", "2", "--vary", "threads=1,2"), " --vary threads=1,2 --gpus none\n"),
])  # fmt: skip
def test_without_a_gpu_the_refusal_names_what_was_typed(trained: House, words: tuple[str, ...], said: str) -> None:
    done = trained.run("compare", "--engine", "local", "--data", "synthetic", *words)
    assert (done.returncode, done.stdout) == (125, "")
    assert said in done.stderr
    assert "ngcdl run" not in done.stderr
    assert trained.store.ids() == []


def test_the_line_for_scaling_without_a_gpu_can_be_typed(trained: House) -> None:
    words = ("compare", "--train", "scaling", "--gpus", "none", "--vary", "threads=1,2")
    assert trained.run(*words, "--data", "synthetic", "--repeat", "1").returncode == 0


DOCUMENTED = [
    line
    for page in ("README.md", "docs/training.md", "docs/scale.md", "toolkit/ngcdl/cli/app/running.py")
    for line in re.findall(
        r"ngcdl ((?:compare|run) [^\n\\\"#\[`;]*--(?:vary nodes=|nodes )[^\n\\\"#\[`;]*)",
        (ROOT / page).read_text().replace("\\\n", ""),
    )
    if "NAME" not in line
]


@pytest.mark.parametrize("line", DOCUMENTED)
def test_a_documented_line_for_several_nodes_is_stopped_by_the_missing_cluster_only(house: House, line: str) -> None:
    line = line.replace("...", "IMAGE --train resnet-50 --batch 512 --engine slurm --gpus 8")
    words = {"IMAGE": "pytorch:25.03-py3", "G": "8", "N": "2"}
    done = house.run(*(words.get(word, word) for word in shlex.split(line)), env={"PATH": "/nowhere"})
    said = "kubectl can't be run" if "kubernetes" in line else "Slurm's sbatch is not on this machine"
    is_planned = "--dry-run" in line
    assert (done.returncode, said in done.stderr) == ((0, False) if is_planned else (125, True)), done.stderr


def test_a_batch_too_small_for_one_arm_is_refused_with_one_that_suffices_for_all(house: House) -> None:
    words = ("compare", "pytorch:25.03-py3", "--train", "resnet-50", "--engine", "slurm", "--gpus", "8")
    done = house.run(*words, "--vary", "nodes=1,4,2")
    assert "--batch 16: too small for 32 replicas" in done.stderr
    assert f"    ngcdl {shlex.join(words)} --vary nodes=1,4,2 --batch 64\n" in done.stderr
    assert "too small" not in house.run(*words, "--vary", "nodes=1,4,2", "--batch", "64").stderr


def test_cpu_against_gpu_is_one_command_and_the_verdict_has_the_spread(trained: House, cards: dict[str, str]) -> None:
    done = trained.run(*COMPARE[:-2], "--repeat", "2", env=cards)
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    assert [row.split()[:3] for row in rows[1:3]] == [["cpu", "2", "512.0"], ["gpu", "2", "4,096.0"]]
    assert "gpu / cpu: 8.00 times (8.00..8.00), 2 rounds" in rows
    assert rows[-1].startswith("The GPU is used")
    assert rows[-1].endswith("and does 8.00 times (8.00..8.00) the CPU's work.")
    assert any(row.startswith("published: 599.9 examples/s on Intel Xeon E5-2658") for row in rows)
    specs = [trained.store.load(run_id).spec or {} for run_id in trained.store.ids()]
    assert [spec["workload"]["device"] for spec in specs] == ["cpu", "gpu", "gpu", "cpu"]
    alike = [{**spec, "workload": {**spec["workload"], "device": ""}, "command": None} for spec in specs]
    assert alike == [alike[0]] * 4, "only the device differs"


def test_a_framework_that_falls_back_to_the_cpu_is_refused_as_the_device(trained: House, cards: dict[str, str]) -> None:
    done = trained.run(*COMPARE[:-2], "--repeat", "2", env={**cards, "STAND_IN_DEVICE": "cpu"})
    assert done.returncode == 1
    assert "refused, device: it was meant to compute on the GPU, but its framework saw none" in done.stdout
    assert done.stdout.splitlines()[-1] == (
        "No ratio is given (gpu can't be counted: it was meant to compute on the GPU, but its framework saw none): "
        "cpu 512.0 examples/s."
    )


def test_a_training_that_fails_is_refused_and_ends_it(trained: House) -> None:
    done = trained.run(*THREADS, env={"STAND_IN": "fail"})
    assert done.returncode == 1
    assert "not counted: " in done.stdout
    assert "No ratio is given (threads=1 and threads=2 failed): nothing was measured." in done.stdout
    assert len(trained.store.ids()) == 2, "each arm was tried once"


def test_ctrl_c_stops_the_run_under_way_and_reports_what_is_whole(trained: House) -> None:
    process = trained.popen(*THREADS, env={"STAND_IN": "wait"})
    until(lambda: trained.store.ids() and (trained.store.folder(trained.store.ids()[0]) / "events.jsonl").exists())
    until(lambda: "step" in (trained.store.folder(trained.store.ids()[0]) / "events.jsonl").read_text())
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=240)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "stopped by SIGINT; what is complete:" in err
    assert "it did not finish: 1 of 6 runs were started" in out
    assert "not counted: stopped by SIGINT (threads=1, round 1: interrupted)" in out
    assert "No ratio is given (threads=1 was interrupted: stopped by SIGINT): nothing was measured." in out
    assert [trained.store.load(run_id).status for run_id in trained.store.ids()] == ["interrupted"]
    assert trained.run("compare", "--show", "last").stdout == out


def test_one_that_can_t_be_recorded_any_more_says_how_to_see_what_is_complete(trained: House) -> None:
    go = trained.home / "go"
    process = trained.popen(*THREADS, env={"STAND_IN": "go", "STAND_IN_GO": str(go)})
    until(lambda: trained.store.ids() and (trained.store.folder(trained.store.ids()[0]) / "events.jsonl").exists())
    (file,) = trained.store.root.parent.rglob("*-compare-*.json")
    file.unlink()
    file.mkdir()
    go.touch()
    _, err = process.communicate(timeout=240)
    assert process.returncode == 125, err
    assert f"it ended early; what is complete: ngcdl compare --show {file.stem}\n" in err


@pytest.mark.parametrize(("words", "said"), [
    (("compare", "pytorch", "tensorflow"), "--.\n      ngcdl compare pytorch tensorflow --train cifar10\n"),
    (("compare", "--vary", "foo=1,2"), "--vary foo=1,2: must be NAME=VALUE,VALUE with batch, "),
    (("compare", "--train", "cifar10", "--vary", "=1,2"), "ngcdl: --vary =1,2: must be NAME=VALUE,VALUE with"),
    (
        ("compare", "x:1", "--train", "cifar10", "--batch", "9", "--steps", "20", "--vary", "batch="),
        "      ngcdl compare x:1 --train cifar10 --steps 20 --vary batch=8,64\n",
    ),
    (
        ("compare", "--train", "cifar10", "--amp", "--steps=20", "--vary", "precision"),
        "      ngcdl compare --train cifar10 --steps=20 --vary precision=float32,amp\n",
    ),
    (
        ("compare", "--train", "cifar10", "--gpus", "none", "--channels-last", "--vary", "device"),
        "      ngcdl compare --train cifar10 --channels-last --vary device=cpu,gpu\n",
    ),
    ((*COMPARE, "--vary", "threads=1"), "at least two values"),
    ((*COMPARE, "--vary", "threads=1,1"), "all different"),
    ((*COMPARE, "--vary", "threads"), "NAME=VALUE,VALUE"),
    ((*COMPARE, "--vary", "batch"), f"      ngcdl {shlex.join(COMPARE)} --vary batch=8,64\n"),
    ((*COMPARE, "--vary", "compile=on"), f"      ngcdl {shlex.join(COMPARE)} --vary compile=off,on\n"),
    (("compare", "--vary", "gpu,cpu"), "      ngcdl compare --train cifar10 --vary device=cpu,gpu\n"),
    (("compare", "--vary", "8,16", "--train", "cifar10"), "      ngcdl compare --train cifar10 --vary batch=8,16\n"),
    (("compare", "--vary", "1,2", "--", "ls"), "      ngcdl compare --vary gpus=1,2 -- ls\n"),
    (("compare", "--train", "cifar10", "--vary=gpu,cpu", "--seed", "3"), "cifar10 --seed 3 --vary device=gpu,cpu\n"),
    (("compare", "-e", "A_KEY=hush", "x", "--vary", "cpu,gpu", "--", "y"), "A_KEY x --vary device=cpu,gpu -- y\n"),
    ((*COMPARE, "--vary", "speed=1,2"), f"      ngcdl {shlex.join(COMPARE)} --vary threads=1,2\n"),
    ((*COMPARE, "--vary", "speed=1,2"), "NAME=VALUE,VALUE"),
    ((*COMPARE, "--vary", "batch=8,many"), "whole numbers"),
    ((*COMPARE, "--vary", "batch=0,8"), "1 or more"),
    ((*COMPARE, "--vary", "batch=8,64", "--batch", "32"), "is what --vary varies"),
    ((*COMPARE, "--vary", "device=cpu,tpu"), "device=cpu,gpu"),
    ((*COMPARE, "--vary", "threads=1,2", "--repeat", "0"), "--repeat"),
    ((*COMPARE, "--vary", "threads=1,2", "--repeat", "50001"), "a comparison has at most 100,000 runs"),
    ((*COMPARE[:-2], "--vary", "gpus=none,1"), "none means the CPU"),
    ((*COMPARE, "--vary", "threads=1,2", "--steps", "10"), "give no figure to compare"),
    ((*COMPARE, "--vary", "feed=ahead,fast"), "--feed fast: ahead, plain"),
    ((*COMPARE, "--vary", "feed=ahead,resident"), "is made on the CPU when its turn comes"),
    ((*COMPARE, "--vary", "precision=float32,amp", "--amp"), "--precision is what --vary varies"),
    ((*COMPARE, "--vary", "precision=float32,tf32"), "computes on the CPU"),
    ((*COMPARE, "--vary", "teacher=none,kept"), "cifar10 has none"),
    ((*COMPARE, "--vary", "nodes=1,2"), "--vary nodes: needs --engine slurm or kubernetes"),
    ((*COMPARE, "--vary", "threads=1,2", "--scaling", "weak"), "only for --vary gpus and --vary nodes"),
    ((*COMPARE, "--vary", "gpus=1,2"), "--gpus none: --vary gpus=1,2 requests the cards itself."),
    ((*COMPARE[:-1], "2", "--vary", "gpus=1,2"), "--gpus 2: --vary gpus=1,2 requests the cards itself."),
    (
        ("compare", "--train", "scaling", "--gpus", "none"),
        "--gpus none: scaling, which varies gpus=1,2, requests the cards itself.\n"
        "  Leave it out, or compare something else:\n"
        "      ngcdl compare --train scaling --gpus none --vary threads=1,2\n",
    ),
    ((*COMPARE[:-2], "--vary", "gpus=1,2", "--scaling", "linear"), "--scaling linear: must be strong or weak"),
    ((*THREADS, "--detach"), "--detach: only --engine slurm has a queue that would keep the order of the runs."),
    ((*THREADS, "--partition", "main"), "--partition: engine local does not use it"),
    ((*COMPARE, "--vary", "threads=1,2", "--batch", "largest"), "the same batch"),
    ((*COMPARE, "--vary", "threads=1,2", "--batch", "many"), "a whole number"),
    (COMPARE, f"nothing to compare the CPU with.\n      ngcdl {shlex.join(COMPARE)} --vary threads=1,2\n"),
    ((*COMPARE[:-2], "--device", "cpu"), "--device cpu"),
    ((*THREADS, "--", "ls"), "no command can follow --"),
    (("compare", "x:1", "--pip", "y", "--engine", "slurm", "--", "ls"), "    ngcdl compare "),
    (("compare", "--engine", "docker", "--", "ls"), "ngcdl compare pytorch --engine docker -- ls"),
    (("compare", "pytorch", "--vary", "threads=1,2", "--", "ls"), "compared by device, image, gpus or nodes."),
    (("compare", "pytorch", "--vary", "batch=1,2", "--", "ls"), "--vary batch: only a bundled training has that, and"),
    (("compare", "pytorch", "--vary", "lr=1,2", "--", "ls"), "--vary lr: a command of your own is compared by"),
    (("compare", "pytorch", "--vary", "lr=1,2", "--", "ls"), "    ngcdl report last last-1\n"),
    (("compare", "pytorch", "--gpus", "none", "--", "ls"), "    ngcdl run pytorch --gpus none -- ls\n"),
    (("compare", "pytorch", "--steps", "99", "--", "ls"), "--steps: only --train reads that"),
    (("compare", "pytorch", "--repeat", "0", "--", "ls"), "--repeat"),
    (("compare", "--vary", "image=pytorch", "--", "ls"), "at least two values"),
    (("compare", "pytorch", "--vary", "device=cpu", "--", "ls"), "ngcdl compare IMAGE -- python train.py"),
    (("compare", "--train", "smoke"), "smoke is a check without a speed to compare"),
])  # fmt: skip
def test_what_can_t_be_meant_is_refused_before_anything_runs(trained: House, words: tuple[str, ...], said: str) -> None:
    done = trained.run(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert trained.store.ids() == []


def test_a_comparison_that_is_not_there_is_named(trained: House) -> None:
    done = trained.run("compare", "--show", "last")
    assert done.returncode == 125
    assert "There is no comparison 'last'" in done.stderr


def test_run_and_compare_take_the_same_options_of_a_place(house: House) -> None:
    helps = [house.run(command, "--help").stdout for command in ("run", "compare")]
    for option in ("nodes", "partition", "time", "account", "qos", "container", "sbatch", "namespace", "data-pvc"):
        assert all(f"  --{option} " in text for text in helps), option
