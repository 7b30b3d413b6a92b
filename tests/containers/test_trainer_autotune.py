import json
import os
import re
import shutil
import time
from pathlib import Path

import pytest
from own_process import Said
from trainer_process import CONTAINERS, FEW, events, start, trainer, until

from trainer import autotune, choices, host, trial
from trainer.arguments import arguments, imported
from trainer.events import Stop, Voice
from trainer.short import LATE, Outcome
from trainer.signals import Signals
from trainer.trial import Here

START = {"event": "start", "framework": "pytorch", "device": "cpu", "channels_last": True, "dataset_images": 20000}
ONE = {"threads": 1, "channels_last": False}
SHORT = f"""
from trainer import data, trial
data.SYNTHETIC = {FEW}
trial.WINDOW_SECONDS, trial.MOST_TRIALS = 0.5, trial.LEAST_TRIALS
"""  # as sitecustomize.py: else the trials go on until their time is over


def asked(folder, *words):
    words = "cifar10-keras", "--framework", "tf1", "--out", folder / "run", "--autotune", *words
    return arguments([str(word) for word in words])


def kept(folder, given, **changed):
    """Write what yesterday's trial chose for these arguments; return its path."""
    tries = [trial.Tried({}, [99.0, 101.0]).told(), trial.Tried(ONE, [149.0, 151.0]).told()]
    key = choices.key(given, autotune.machine())
    found = {"chosen": ONE, "measured": 1795305600.0, "seconds": 40.0, "tries": tries, "start": START, **changed}
    assert choices.keep(str(folder), key, found, pytest.fail)
    return choices.path_of(str(folder), key)


def tuned(given):
    """Tune; return the output. The framework is one that can't be imported here, so that trials end at once."""
    heard = Said()
    Path(given.out).mkdir(exist_ok=True)
    autotune.tune(given, imported(given.workload), Voice(heard), Signals())
    return "".join(heard)


# -- what is remembered ---------------------------------------------------------------------------------------------


def test_what_is_remembered_is_asked_for_without_a_trial(tmp_path):
    given = asked(tmp_path, "--choices", tmp_path)
    kept(tmp_path, given)
    said = tuned(given)
    assert (given.threads, given.channels_last, given.feed) == (1, False, "ahead")
    assert "Trying" not in said
    assert said == (
        "Chosen in a trial on 2026-11-22, and remembered (--autotune): 1 thread, channels first, 150.0 examples/sec "
        "(149.0 to 151.0 in 2 trials), 1.50 times the default\n"
    )
    assert given.tuned["chosen"] == ONE
    assert (given.tuned["remembered"], given.tuned["measured"]) == (True, 1795305600.0)


@pytest.mark.parametrize(
    "words",
    [("--batch", 64), ("--precision", "float32"), ("--threads", 2), ("--no-dropout",), ("--gpu-memory-fraction", 0.1)],
)
def test_what_is_remembered_for_another_training_is_not_taken(tmp_path, words):
    kept(tmp_path, asked(tmp_path, "--choices", tmp_path))
    given = asked(tmp_path, "--choices", tmp_path, *words)
    assert not Path(choices.path_of(str(tmp_path), choices.key(given, autotune.machine()))).exists()


def test_what_says_nothing_of_the_speed_is_no_other_training(tmp_path):
    first, second = (asked(tmp_path, *words) for words in ((), ("--seed", 5, "--steps", 9, "--no-eval")))
    assert choices.key(first, Here(2, 2, 2)) == choices.key(second, Here(2, 2, 2))
    assert choices.key(first, Here(2, 2, 2)) != choices.key(first, Here(2, 1, 2))


def test_another_trainer_is_another_key(tmp_path, monkeypatch):
    given = asked(tmp_path)
    before, here = choices.key(given, Here(2, 2, 2)), Path(choices.__file__).parent
    shutil.copytree(here, tmp_path / "trainer", ignore=shutil.ignore_patterns("*.pyc"))
    monkeypatch.setattr(choices, "__file__", str(tmp_path / "trainer" / "choices.py"))
    assert choices.key(given, Here(2, 2, 2)) == before, "wherever it lies"
    with (tmp_path / "trainer" / "frameworks" / "pytorch" / "ops.py").open("a") as file:
        file.write("# computes otherwise\n")
    assert choices.key(given, Here(2, 2, 2)) != before


def test_another_release_of_a_framework_is_another_key(tmp_path):
    package = tmp_path / "torch"
    package.mkdir()
    (package / "__init__.py").touch()
    found = [choices.installed([str(tmp_path)])]
    (tmp_path / "torch-2.1.0.dist-info").mkdir()
    found.append(choices.installed([str(tmp_path)]))
    os.utime(package / "__init__.py", (1, 1))
    found.append(choices.installed(["/nowhere", str(tmp_path)]))
    assert found[2] == [["torch", ["torch-2.1.0.dist-info"], 1]]
    assert found[0] != found[1] != found[2]


@pytest.mark.parametrize("content", ["{", "[]", '{"format": 1}', "changed", "later", "no trials"])
def test_a_file_that_cannot_be_read_is_left_aside_with_a_word(tmp_path, content):
    given = asked(tmp_path, "--choices", tmp_path)
    changed = {
        "changed": {"chosen": {"threads": -3}},
        "later": {"measured": "yesterday"},
        "no trials": {"tries": [{"way": ONE}]},
    }.get(content)
    path = kept(tmp_path, given, **(changed or {}))
    if not changed:
        Path(path).write_text(content)
    said = []
    assert choices.recall(str(tmp_path), choices.key(given, autotune.machine()), said.append) is None
    assert len(said) == 1
    assert said[0].startswith(f"--autotune: ignoring {path}: ")


def test_a_folder_that_cannot_be_written_is_told_and_ends_nothing(tmp_path):
    (tmp_path / "file").touch()
    said = []
    assert not choices.keep(str(tmp_path / "file"), {}, {}, said.append)
    assert not choices.keep("/proc", {}, {}, said.append)  # not even root writes there
    assert ["not remembered" in text for text in said] == [True, True]


def test_data_that_no_longer_has_room_is_not_put_on_the_device_by_memory_of_it(
    tmp_path, monkeypatch, without_tensorflow
):
    monkeypatch.setenv("PYTHONPATH", without_tensorflow)
    given = asked(tmp_path, "--choices", tmp_path)
    kept(tmp_path, given, chosen={"feed": "resident"}, start={"device": "cpu", "dataset_images": 10**12})
    assert "Trying" in tuned(given)


# -- what a short training reports ----------------------------------------------------------------------------------


class Told:
    def __init__(self, *outcome):
        self.outcome, self.words = Outcome(*outcome), None

    def train(self, words, variables, seconds):
        self.words, self.variables = " ".join(map(str, words)), variables
        return self.outcome


def steps(*rates):
    return [{"event": "step", "examples_per_second": rate, "seconds_per_batch": rate and 32 / rate} for rate in rates]


def test_a_rate_is_the_median_after_the_first_quarter():
    told = Told(0, None, [START, *steps(None, 10.0, 90.0, 120.0, 100.0)], "")
    reading = autotune.measured(told, 32, {}, 9)
    assert (reading.rate, reading.seconds_per_batch, reading.start) == (100.0, 0.32, START)
    assert told.words == "--batch 32 --seconds 2.0"


def test_a_way_becomes_words_and_variables():
    told = Told(0, None, [START, *steps(None, 10.0)], "")
    autotune.measured(told, 8, {"threads": 3, "channels_last": False, "feed": "resident", "onednn": False}, 9)
    assert told.words == "--batch 8 --seconds 2.0 --threads 3 --channels-first --feed resident"
    assert told.variables == {"TF_ENABLE_ONEDNN_OPTS": "0"}


@pytest.mark.parametrize(
    ("outcome", "why"),
    [
        ((None, LATE, [START], ""), LATE),
        ((1, None, [{"event": "error", "kind": "nan", "message": "diverged"}], "x"), "diverged"),
        ((-9, None, [], ""), "exit code -9"),
        ((0, None, [START, *steps(None)], ""), "no step was timed"),
    ],
)
def test_one_that_fails_says_why(outcome, why):
    assert autotune.measured(Told(*outcome), 32, {}, 9) == (None, None, None, why)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [(("--steps", 100), 50.0), (("--epochs", 2), 625.0), (("--steps", 10**6, "--seconds", 90), 90.0)],
)
def test_how_long_a_training_takes_is_told_by_a_step(tmp_path, words, seconds):
    assert autotune.left(asked(tmp_path, *words), trial.Reading(64.0, 0.5, START, None)) == seconds


def test_of_a_resumed_training_the_steps_that_are_left_count(tmp_path):
    resumed = asked(tmp_path, "--steps", "1000", "--resume", str(tmp_path))
    for name, seconds in (("no-step", 500), ("step-90.npz", 455), ("step-990.npz", 5), ("step-2000.npz", 0)):
        (tmp_path / "checkpoints").mkdir(exist_ok=True)
        (tmp_path / "checkpoints" / name).touch()
        assert autotune.left(resumed, trial.Reading(64.0, 0.5, START, None)) == seconds


def test_a_training_of_a_minute_has_no_trial(tmp_path):
    given = asked(tmp_path, "--seconds", 60)
    said = tuned(given)
    assert said.startswith("Not chosen by trial (--autotune): the training itself takes at most 60 s\n")
    assert (given.tuned["chosen"], given.tuned["kept"]) == ({}, False)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("cifar10-94",), "not a long training"),
        (("smoke",), "not a long training"),
        (("cifar10", "--feed", "input"), "computes nothing"),
    ],
)
def test_where_there_is_nothing_to_choose_it_is_refused(tmp_path, words, why):
    given = arguments([*words, "--out", str(tmp_path), "--autotune"])
    with pytest.raises(Stop, match=why) as stopped:
        autotune.check(given, imported(given.workload))
    assert stopped.value.kind == "bad_argument"


# -- this machine ---------------------------------------------------------------------------------------------------


def test_this_machine_has_no_more_cores_than_processors():
    here = autotune.machine()
    assert 1 <= here.allowed <= here.usable == host.usable_cores()
    assert here.physical is None or 1 <= here.physical <= here.usable


# -- end to end -----------------------------------------------------------------------------------------------------


def test_a_framework_that_is_not_here_is_told_by_the_training_itself(tmp_path, without_tensorflow):
    words = "cifar10", "--out", tmp_path, "--framework", "tf1", "--autotune", "--choices", tmp_path
    code, out, err = trainer(*words, PYTHONPATH=without_tensorflow)
    assert code == 1
    assert re.search(r"Not chosen by trial \(--autotune\): .*no framework can be imported", out)
    assert [event["kind"] for event in events(tmp_path, "error")] == ["bad_argument"]
    assert "no framework can be imported" in err
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.torch
def test_a_real_trial_is_told_in_the_start_event_and_then_remembered(tmp_path):
    """TensorFlow's is in tests/live."""
    words = "cifar10-keras", "--framework", "pytorch", "--device", "cpu", "--batch", 4, "--channels-last"
    words += "--no-eval", "--autotune", "--choices"
    (tmp_path / "kept").mkdir()
    (tmp_path / "sitecustomize.py").write_text(SHORT)
    path = {"PYTHONPATH": f"{tmp_path}:{CONTAINERS}"}
    for seconds in 25, 100:  # the second on a machine so busy that not even the default was tried in the first
        given = *words, tmp_path / "kept", "--trial-seconds", seconds, "--seconds", seconds + 1
        process = start(*given, "--out", tmp_path / f"first-{seconds}", **path)
        told = until_started(process, tmp_path / f"first-{seconds}")
        if told["tries"][0]["failed"] != LATE:
            break
    assert told["remembered"] is False
    assert told["seconds"] < seconds + 20
    default, *others = told["tries"]
    assert default["way"] == {}
    assert default["least"] <= default["examples_per_second"] <= default["most"]
    assert {"feed": "resident"} in [one["way"] for one in others]
    assert [one["failed"] for one in others if one["trials"]] == [None] * sum(one["trials"] > 0 for one in others)
    files = list((tmp_path / "kept").iterdir())
    assert told["kept"] is bool(files) is (told["skipped"] is None)
    assert not (tmp_path / f"first-{seconds}" / "trial").exists()
    if files:  # else the machine was too busy to decide
        assert json.loads(files[0].read_text())["chosen"] == told["chosen"]
        process = start(*given, "--out", tmp_path / "second", **path)
        again = until_started(process, tmp_path / "second")
        assert (again["remembered"], again["chosen"], again["measured"]) == (True, told["chosen"], told["measured"])


def until_started(process, folder):
    """Wait for the first step, end the training; return the trial from its start event."""
    end = time.monotonic() + 200
    try:
        while process.poll() is None and time.monotonic() < end:
            if (folder / "events.jsonl").exists() and events(folder, "step"):
                break
            time.sleep(0.05)
    finally:
        process.terminate()
        said = process.communicate(timeout=240)
    assert process.returncode == 143, said
    return events(folder, "start")[0]["autotune"]


@pytest.mark.torch
def test_ctrl_c_during_the_trial_leaves_an_interrupted_run_and_no_choice(tmp_path):
    process = start("fcn-r", "--out", tmp_path / "run", "--device", "cpu", "--autotune", "--choices", tmp_path)
    until((tmp_path / "run" / "trial" / "events.jsonl").exists, "the trial")
    process.send_signal(2)
    process.communicate(timeout=120)
    assert process.returncode == 130
    assert [event["kind"] for event in events(tmp_path / "run", "error")] == ["interrupted"]
    assert not (tmp_path / "run" / "trial").exists()
    assert not list(tmp_path.glob("*.json"))
