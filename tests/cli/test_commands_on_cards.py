"""`ngcdl run -- COMMAND` and `compare -- COMMAND` without an image, on a host with cards."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from house import House, until
from telemetry.stand_in import write_state

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
    write_state(state, {"gpu0.utilization": 0})  # free also where not every process is visible
    return {"LD_LIBRARY_PATH": str(library), "NGCDL_NVML_STATE": str(state)}


def test_where_nvml_shows_no_card_only_a_typed_none_hides_those_that_cuda_may_see(
    house: House, cards: dict[str, str]
) -> None:
    """CUDA may work where NVML does not."""
    ask = ("--", sys.executable, "-c", "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))")
    mine = {"CUDA_VISIBLE_DEVICES": "3"}
    auto = house.run("run", *ask, env=mine)
    assert (auto.stdout, house.record()["gpus"], house.record()["spec"]["gpus"]) == ("3\n", [], "auto")
    assert "GPUs: none\n" in auto.stderr
    assert house.run("run", "--gpus", "none", *ask, env=mine).stdout == "-1\n"
    assert house.record()["spec"]["gpus"] == "none"
    write_state(Path(cards["NGCDL_NVML_STATE"]), {"fail.Init": 999})
    broken = house.run("run", *ask, env=cards | mine)
    assert (broken.stdout, house.record()["gpus"]) == ("3\n", None)
    assert "whether this run computes on a GPU is not known." in broken.stderr
    again = house.run("runs", "replay", "last", env=cards | mine)
    assert (again.stdout, house.record()["spec"]["gpus"]) == ("3\n", "auto")


def test_cards_are_chosen_and_shown_to_it_alone(house: House, cards: dict[str, str]) -> None:
    """With `all`, and by default, the command's environment stays as it is."""
    ask = (sys.executable, "-c", "import os; print(os.environ.get('CUDA_VISIBLE_DEVICES'))")
    both = house.run("run", "--", *ask, env=cards)
    assert both.stdout == "None\n"
    assert len(house.record()["gpus"]) == 2
    assert house.run("run", "--gpus", "0,", "--", *ask, env=cards).stdout == f"{house.record()['gpus'][0]}\n"
    assert len(house.record()["gpus"]) == 1
    assert house.run("run", "--gpus", "none", "--", *ask, env=cards).stdout == "-1\n"
    mine = cards | {"CUDA_VISIBLE_DEVICES": "1"}
    assert house.run("run", "--", *ask, env=mine).stdout == "1\n"
    assert house.record()["gpus"] is None, "CUDA's card 1 may be another than the driver's"
    house.run("run", "--", *ask, env=mine | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"})
    assert len(house.record()["gpus"]) == 1
    hidden = house.run("run", "--gpus", "0,", "--", *ask, env=mine)
    assert (hidden.returncode, "CUDA_VISIBLE_DEVICES=1 hides" in hidden.stderr) == (125, True)


def test_cpu_and_gpu_are_compared_by_what_the_script_reports(house: House, cards: dict[str, str]) -> None:
    (house.home / "train.py").write_text(REPORT)
    done = house.run("compare", "--", sys.executable, "train.py", env=cards)
    assert done.returncode == 0, done.stderr
    assert "gpu / cpu: 2.50 times (2.50..2.50), 3 rounds" in done.stdout
    assert len(house.store.ids()) == 6
    assert {tuple(house.store.load(one).gpus or ()) == () for one in house.store.ids()} == {True, False}


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
        (
            ("--vary", "gpus=1,4"),
            "A comparison of the command with gpus=1 and gpus=4 needs 4 cards: this host has only 2.",
        ),
        (
            ("--vary", "gpus=1,2", "--gpus", "2"),
            "--gpus 2: --vary gpus=1,2 requests the cards itself.\n  Leave it out.",
        ),
        (("--vary", "gpus=1,2", "--scaling", "weak"), "--scaling weak: only a bundled training has that."),
    ]:
        refused = house.run("compare", *words, "--", "true", env=cards)
        assert (refused.returncode, refused.stdout) == (125 if "needs" in said else 2, "")
        assert said in refused.stderr


def test_a_cpu_arm_that_computes_on_a_card_is_not_compared(house: House, cards: dict[str, str]) -> None:
    """A script can override the variable that hides the cards. Here the driver shows the child process on card 1."""
    cards = cards | house.hastened("ngcdl.telemetry.unexpected_use")
    (house.home / "train.py").write_text("""
import os, subprocess, time
state = os.environ["NGCDL_NVML_STATE"]
text = open(state).read()
child = subprocess.Popen(["sleep", "240"], start_new_session=True)
with open(state + ".new", "w") as file:
    file.write(text.replace("gpu1.processes=", "gpu1.processes=%d:1000," % child.pid))
os.replace(state + ".new", state)
is_cpu = os.environ.get("CUDA_VISIBLE_DEVICES") == "-1"
while is_cpu and "its process" not in open("said").read() and child.poll() is None:
    time.sleep(0.05)  # else a look may come too late
child.kill()
with open(state + ".new", "w") as file:
    file.write(text)
os.replace(state + ".new", state)
""")
    stderr = house.home / "said"
    with stderr.open("w") as file:
        done = house.run("run", "--gpus", "none", "--", sys.executable, "train.py", env=cards, stderr=file)
    assert done.returncode == 0, stderr.read_text()
    said = "WARNING: the run was to have no GPU, but its process"
    assert said in stderr.read_text()
    record = house.record()
    assert (len(record["gpus"]), [said in note for note in record["notes"]]) == (1, [True])
    with stderr.open("w") as file:
        compared = house.run("compare", "--repeat", "1", "--", sys.executable, "train.py", env=cards, stderr=file)
    refused = "refused, device: it was to have no GPU, but one of its processes computed on one (cpu, round 1: gpu)"
    assert refused in compared.stdout.replace("\n", " ")


def test_a_source_edited_in_its_folder_ends_the_comparison(house: House, cards: dict[str, str]) -> None:
    (house.home / "train.py").write_text("import pathlib; path = pathlib.Path('train.py')\n"
                                         "path.write_text(path.read_text() + '# more\\n')\n")  # fmt: skip
    done = house.run("compare", "--", sys.executable, "train.py", env=cards)
    assert "train.py was edited during round 1 of 3, cpu: that run is left out, and no further begins" in done.stderr
    assert len(house.store.ids()) == 1


def test_a_run_that_is_left_or_compared_gets_no_stdin(house: House, cards: dict[str, str]) -> None:
    detached = house.shell("echo hello | ngcdl run -d -- wc -c")
    until(lambda: house.record()["status"] == "finished")
    assert (house.store.folder(detached.stdout.strip()) / "log.txt").read_text() == "0\n"
    (house.home / "lines").write_text("one\ntwo\n")
    with (house.home / "lines").open() as lines:
        house.run("compare", "--repeat", "1", "--", "cat", stdin=lines, env=cards)
        assert lines.read() == "one\ntwo\n"
