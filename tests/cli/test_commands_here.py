"""`ngcdl run -- COMMAND` and `compare -- COMMAND` without an image: the user's own programs on this host."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from house import House, until
from telemetry.conftest import library as library  # a fixture
from telemetry.stand_in import write_state

from ngcdl.engines import local

RUN = ("run", "--", sys.executable)
REPORT = """
import json, os, sys, time
cards = os.environ.get("CUDA_VISIBLE_DEVICES")
for step in range(1, 7):
    with open(os.environ["NGCDL_RUN"] + "/events.jsonl", "a") as file:
        rate = {"-1": 100.0}.get(cards, 250.0)
        line = {"event": "step", "t": time.time(), "step": step, "examples_per_second": rate, "seconds_per_batch": .1}
        file.write(json.dumps(line) + "\\n")
print("cards", cards)
"""


@pytest.fixture
def cards(library: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a host with the two stand-in cards."""
    state = tmp_path / "nvml.state"
    write_state(state, {})
    return {"LD_LIBRARY_PATH": str(library), "NGCDL_NVML_STATE": str(state)}


def test_a_command_runs_here_as_without_ngcdl_and_is_recorded(house: House) -> None:
    folder = house.home / "project"
    folder.mkdir()
    (folder / "train.py").write_text(
        "import os, sys\nprint(os.getcwd(), os.environ['HOME'], os.environ['SETTING'], sys.argv[1:], file=sys.stderr)\n"
        "print(os.environ.get('NGC_API_KEY'))\nsys.exit(3)\n"
    )
    words = (*RUN[:1], "-e", "SETTING=a b", *RUN[1:], "train.py", "--gpus", "2")
    done = house.run(*words, cwd=folder, env={"NGC_API_KEY": "nvapi-hush"})
    assert (done.returncode, done.stdout) == (3, "None\n")
    assert f"{folder} {house.home} a b ['--gpus', '2']\n" in done.stderr
    assert "engine local: no image was named, so the command runs on this host" in done.stderr
    record = house.record()
    assert (record["status"], record["exit_code"], record["engine"]) == ("failed", 3, "local")
    assert record["engine_version"] is None, "it is not this Python that ran"
    assert record["spec"]["command"] == [sys.executable, "train.py", "--gpus", "2"]
    assert record["spec"]["workdir"] == str(folder)
    assert "engine   local (this host, no container)\n" in house.run("show", "last").stdout
    again = house.run("runs", "replay", "last")
    assert (again.returncode, f"{folder} {house.home} a b" in again.stderr) == (3, True), "in the folder that it had"


@pytest.mark.parametrize(("words", "code", "said"), [
    (("run", "--", "no-such-program"), 127, "This host has no such command: no-such-program."),
    (("run", "-v", "/a:/b", "-p", "80:80", "--", "true"), 2, "-v, -p: only for containers, and this run has none."),
    (("run", "--engine", "slurm", "--", "true"), 2, "run pytorch --engine slurm -- true\n"),
    (("run", "--engine", "docker", "--", "true"), 2, "With --engine docker a command needs an image."),
    (("run", "sh", "train.sh"), 2, "run -- sh train.sh\n"),
    (("run", "--gpus", "1", "--", "true"), 125, "--gpus 1: this host has no NVIDIA driver"),
    (("run", "--steps", "5", "--", "true"), 2, "type it after --."),
    (("compare", "--gpus", "none", "--", "true"), 2, "    ngcdl compare -- python train.py\n"),
    (("compare", "--", "true"), 125, "The CPU can't be compared with a GPU: this host has no NVIDIA driver."),
])  # fmt: skip
def test_what_can_t_run_here_is_refused_before_anything_starts(
    house: House, words: tuple[str, ...], code: int, said: str
) -> None:
    done = house.run(*words)
    assert (done.returncode, done.stdout, house.shelf.ids()) == (code, "", [])
    assert said in done.stderr


def test_cards_are_chosen_and_shown_to_it_alone(house: House, cards: dict[str, str]) -> None:
    """With `all`, and by default, its environment stays as it is."""
    ask = (sys.executable, "-c", "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))")
    both = house.run("run", "--", *ask, env=cards)
    assert both.stdout == "None\n"
    assert len(house.record()["gpus"]) == 2
    assert house.run("run", "--gpus", "0,", "--", *ask, env=cards).stdout == f"{house.record()['gpus'][0]}\n"
    assert len(house.record()["gpus"]) == 1
    assert house.run("run", "--gpus", "none", "--", *ask, env=cards).stdout == "-1\n"
    mine = cards | {"CUDA_VISIBLE_DEVICES": "1"}
    assert house.run("run", "--", *ask, env=mine).stdout == "1\n"
    assert len(house.record()["gpus"]) == 1
    hidden = house.run("run", "--gpus", "0,", "--", *ask, env=mine)
    assert (hidden.returncode, "CUDA_VISIBLE_DEVICES=1 hides" in hidden.stderr) == (125, True)


def test_cpu_and_gpu_are_compared_by_what_the_script_reports(house: House, cards: dict[str, str]) -> None:
    (house.home / "train.py").write_text(REPORT)
    done = house.run("compare", "--", sys.executable, "train.py", env=cards)
    assert done.returncode == 0, done.stderr
    assert "gpu / cpu: 2.50 times (2.50..2.50), 3 rounds" in done.stdout
    assert len(house.shelf.ids()) == 6
    assert {tuple(house.shelf.load(one).gpus or ()) == () for one in house.shelf.ids()} == {True, False}


def test_more_cards_are_compared_by_what_the_script_does_with_them(house: House, cards: dict[str, str]) -> None:
    (house.home / "train.py").write_text(
        REPORT.replace('{"-1": 100.0}.get(cards, 250.0)', "90.0 * len(cards.split(','))")
    )
    done = house.run("compare", "--vary", "gpus=1,2", "--", sys.executable, "train.py", env=cards)
    assert done.returncode == 0, done.stderr
    verdict = done.stdout.splitlines()[-1]
    assert verdict == (
        "2 GPUs do 180.0 examples/s, 2.00 times (2.00..2.00) the work of 1 GPU, an efficiency of 100 % (100..100)."
    )
    for words, said in [
        (("--vary", "gpus=1,4"), "A comparison of the command with gpus=1 and gpus=4 needs 4 cards: 2 of 2 GPUs are"),
        (
            ("--vary", "gpus=1,2", "--gpus", "2"),
            "--gpus 2: --vary gpus=1,2 requests the cards itself.\n  Leave it out.",
        ),
        (("--vary", "gpus=1,2", "--scaling", "weak"), "--scaling weak: only a bundled training has that."),
    ]:
        refused = house.run("compare", *words, "--", "true", env=cards)
        assert (refused.returncode, refused.stdout) == (125 if "needs" in said else 2, "")
        assert said in refused.stderr


def test_a_source_edited_in_its_folder_ends_the_comparison(house: House, cards: dict[str, str]) -> None:
    (house.home / "train.py").write_text("import pathlib; path = pathlib.Path('train.py')\n"
                                         "path.write_text(path.read_text() + '# more\\n')\n")  # fmt: skip
    done = house.run("compare", "--", sys.executable, "train.py", env=cards)
    assert "train.py was edited during round 1 of 3, cpu: that run is left out, and no further begins" in done.stderr
    assert len(house.shelf.ids()) == 1


def test_stdin_is_passed_on_if_asked_for(house: House) -> None:
    line = "echo hello | ngcdl run -i -- cat; echo hello | ngcdl run -- wc -c"
    assert house.shell(line).stdout.split() == ["hello", "0"]


def test_the_dry_run_can_be_typed(house: House) -> None:
    done = house.run("run", "--dry-run", "-e", "A=b c", "--", "sh", "-c", 'echo "$A $NGCDL_RUN"; touch "$NGCDL_RUN/x"')
    assert done.returncode == 0, done.stderr
    by_hand = done.stdout.partition("# the same by hand:\n")[2]
    assert house.shell(by_hand.replace("&& ", "&& env ")).stdout.startswith("b c ")
    assert (house.shelf.folder("dry-run") / "x").exists()


def test_one_that_was_left_running_is_stopped(house: House) -> None:
    run_id = house.run("run", "-d", "--", "sleep", "3600").stdout.strip()
    assert "interrupted, exit code 143" in house.run("stop", run_id).stderr


def test_one_whose_watcher_was_killed_is_found_and_stopped(house: House) -> None:
    with house.popen("run", "--", "sleep", "3600") as watcher:
        (run_id,) = until(house.shelf.ids)
        until(lambda: house.shelf.load(run_id).container)
        watcher.kill()
        watcher.communicate(timeout=60)
    assert "running" in house.run("runs").stdout
    house.run("stop", run_id)
    assert local.LocalEngine(house.home, house.shelf.root).find(run_id) is None
    assert house.record(run_id)["status"] != "running"
