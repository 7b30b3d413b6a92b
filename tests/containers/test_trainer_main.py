import argparse
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from trainer_process import CONTAINERS, events, python, trainer

from trainer import __main__ as entry
from trainer import layers
from trainer.arguments import arguments
from trainer.events import Events, Outside, Stop, Voice
from trainer.signals import Signals
from trainer.workloads import catdog, lstm


def test_the_workloads_are_listed_as_json():
    code, out, _ = trainer("--list")
    assert code == 0
    found = {workload["name"]: workload for workload in json.loads(out)}
    assert sorted(found) == list(found)
    workload = found["cifar10"]
    assert [workload[key] for key in ("parameters", "steps", "batch", "data")] == [1068298, 1000, 128, "cifar10"]
    assert [workload[key] for key in ("forward_macs", "flops_per_example")] == [18470784, 105295104]
    assert workload["frameworks"] == ["pytorch", "tf1", "tf2"]
    assert "cifar10-keras" in found


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["cifar10"],
        ["mnist", "--out", "x"],
        ["cifar10", "--out", "x", "--runs", "y"],
        ["cifar10", "--out", "x", "--steps", "0"],
        ["cifar10", "--out", "x", "--batch", "many"],
        ["cifar10", "--out", "x", "--threads", "0"],
        ["cifar10", "--out", "x", "--queue-fraction", "1.5"],
        ["cifar10", "--out", "x", "--clip", "inf"],
        ["cifar10", "--out", "x", "--threads", "4097"],
        ["cifar10", "--out", "x", "--device", "tpu"],
        ["cifar10", "--out", "x", "--checkpoint-seconds", "nan"],
        ["cifar10", "--out", "x", "--data", ""],
    ],
)
def test_what_is_not_understood_ends_with_2_and_leaves_nothing(tmp_path, argv):
    process = subprocess.run(
        [sys.executable, "-m", "trainer", *argv],
        cwd=tmp_path,
        env={"PYTHONPATH": str(CONTAINERS)},
        capture_output=True,
        text=True,
    )
    assert (process.returncode, process.stdout) == (2, "")
    assert re.match(r"usage: [^\n]*\npython -m trainer: error: [^\n]*\n$", process.stderr)
    assert list(tmp_path.iterdir()) == []


def test_a_framework_that_is_not_here_leaves_an_error_event(tmp_path, without_tensorflow):
    words = "--out", tmp_path / "new" / "run", "--framework", "tf1", "--device", "cpu"
    code, _, err = trainer("cifar10", *words, PYTHONPATH=without_tensorflow)
    assert code == 1
    (event,) = events(tmp_path / "new" / "run")
    assert (event["event"], event["kind"], event["step"]) == ("error", "bad_argument", None)
    assert err.endswith(f"bad_argument: {event['message']}\n")


def test_a_folder_named_like_a_framework_is_not_taken_for_it(tmp_path):
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow/__init__.py").touch()  # else an installed TensorFlow is found behind it
    path = f"{tmp_path}:{CONTAINERS}"
    code, _, err = trainer("cifar10", "--out", tmp_path / "run", "--framework", "tf1", PYTHONPATH=path)
    assert code == 1
    assert "this is for TensorFlow 1.4 to 1.15, here is none" in err


def test_a_recorded_run_makes_its_own_folder_and_records_its_failure(tmp_path, without_tensorflow):
    words = "cifar10", "--runs", tmp_path, "--record", "--framework", "tf1"
    code, _, _ = trainer(*words, PYTHONPATH=without_tensorflow)
    assert code == 1
    (folder,) = tmp_path.iterdir()
    assert re.match(r"^\d{8}-\d{6}-cifar10-[0-9a-f]{4}$", folder.name)
    run = json.loads((folder / "run.json").read_text())
    assert (run["status"], run["exit_code"], run["id"]) == ("failed", 1, folder.name)
    assert run["reason"] == events(folder, "error")[0]["message"]


def test_a_folder_that_cannot_be_made_is_told_without_a_traceback(tmp_path):
    (tmp_path / "file").write_text("")
    code, _, err = trainer("cifar10", "--out", tmp_path / "file" / "run")
    assert code == 1
    assert "Traceback" not in err
    assert str(tmp_path / "file") in err


def test_with_stderr_closed_its_words_go_nowhere_and_no_file_takes_its_place_in_a_child_either(tmp_path):
    (tmp_path / "file").write_text("")
    code = "import fcntl, os; from trainer.__main__ import main; code = main(['cifar10', '--out', 'file'])\n"
    code += "print(code, os.readlink('/proc/self/fd/2'), fcntl.fcntl(2, fcntl.F_GETFD))"
    told = subprocess.run(["sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, code], cwd=tmp_path,
                          env={"PYTHONPATH": str(CONTAINERS)}, stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert told.stdout == "1 /dev/null 0\n"


def test_where_stderr_cannot_be_written_the_record_is_closed_all_the_same(tmp_path):
    """stderr may be a file on the very disk whose being full ends the training."""
    words = "cifar10", "--epochs", "1", "--record", "--out", str(tmp_path)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "trainer", *words], cwd=CONTAINERS, stderr=full, check=False)
    run = json.loads((tmp_path / "run.json").read_text())
    assert (done.returncode, run["status"], run["exit_code"]) == (1, "failed", 1)
    assert run["reason"].startswith("cifar10 has no epochs")


@pytest.mark.parametrize(("said", "kind"), [("you tried to: DefaultCPUAllocator", "out_of_memory"), ("torn", "crash")])
def test_that_memory_was_too_small_is_told_without_a_traceback(tmp_path, monkeypatch, capsys, said, kind):
    def run(*_):
        raise RuntimeError(said)

    monkeypatch.setattr(entry, "run", run)
    assert entry.main(["cifar10", "--out", str(tmp_path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert (lines[-1], len(lines) == 1) == (f"{kind}: RuntimeError: {said}", kind == "out_of_memory")


@pytest.mark.parametrize(("error", "kind", "code"), [
    (Stop("bad_argument", "torch.compile failed"), "interrupted", 130),
    (OSError("a child was killed"), "interrupted", 130),
    (Stop("nan", "Model diverged"), "nan", Stop("nan", "").exit_code),
])  # fmt: skip
def test_what_fails_after_ctrl_c_was_interrupted_unless_it_diverged(tmp_path, monkeypatch, capsys, error, kind, code):
    signals = Signals()

    def fail(*_):
        signals.receive(signal.SIGINT, None)  # which also ended the compiler that the framework waited for
        raise error

    monkeypatch.setattr(entry, "run", fail)
    asked = arguments(["cifar10", "--out", str(tmp_path)])
    assert entry.attempt(asked, Outside(Events(str(tmp_path)), Voice(None), signals))[0] == code
    assert [event["kind"] for event in events(tmp_path, "error")] == [kind]
    assert "Traceback" not in capsys.readouterr().err


def test_data_for_a_workload_that_makes_its_own_is_refused(tmp_path):
    code, _, err = trainer("fcn-s", "--out", tmp_path / "run", "--data", tmp_path)
    assert code == 1
    assert "fcn-s makes its data up: leave --data out" in err
    assert events(tmp_path / "run", "error")[0]["kind"] == "bad_argument"


def modelled(*typed):
    asked = arguments([*typed, "--out", "x"])
    return entry.modelled(asked, entry.imported(asked.workload))


def test_batch_norm_refuses_a_batch_of_one():
    with pytest.raises(Stop, match="--batch of at least 2"):
        modelled("catdog", "--batch", "1")
    assert modelled("catdog", "--batch", "2").batch == 2


def test_what_trains_nothing_takes_a_batch_of_one_and_nothing_to_go_on_from():
    assert not modelled("inference", "--batch", "1").trains
    with pytest.raises(Stop, match="inference trains nothing and leaves no checkpoint: leave --resume out"):
        modelled("inference", "--resume", "a folder")


@pytest.mark.parametrize("more", [("--autotune",), ("--batch", "largest"), ("--autotune", "--replicas", 2), ()])
@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("lstm", "--epochs", 2), "lstm has no epochs: use --steps or --seconds instead"),
        (("alexnet-r", "--teacher", "none"), "alexnet-r has no teacher: leave --teacher out"),
    ],
)
def test_what_a_workload_can_t_do_is_refused_before_anything_is_tried_or_loaded(tmp_path, words, why, more):
    code, out, err = trainer(*words, *more, "--out", tmp_path)
    assert (code, out) == (1, "")
    assert err == f"bad_argument: {why}\n"
    assert [event["event"] for event in events(tmp_path)] == ["error"]


def test_gradients_are_clipped_where_there_are_any_and_as_it_was_asked_for():
    assert modelled("catdog").clip is None
    assert modelled("catdog", "--clip", "2.5").clip == 2.5
    assert (modelled("lstm").clip, lstm.RECIPE["clip"]) == (5, 5)
    assert modelled("lstm", "--clip", "1").clip == 1
    for other in "inference", "cifar10-94":
        with pytest.raises(Stop, match="has no gradients to clip: leave --clip out"):
            modelled(other, "--clip", "5")


def test_without_dropout_the_network_is_the_same_but_for_that():
    model = modelled("catdog", "--no-dropout")
    assert "dropout" in layers.ops(catdog.NETWORK)
    assert "dropout" not in model.ops
    assert layers.shapes(model.words) == layers.shapes(catdog.NETWORK)


def test_a_framework_without_a_layer_for_a_word_is_refused_by_the_word():
    maker = argparse.Namespace(LAYERS={"dense": None, "embedding": None})
    said = "tf1 has no layer for lstm here; this workload trains with pytorch, tf1, tf2: use another or a later"
    with pytest.raises(Stop, match=said):
        entry.check_words(modelled("lstm"), maker, "tf1", lstm)


@pytest.mark.parametrize(
    ("variables", "order"), [({}, "PCI_BUS_ID"), ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, "FASTEST_FIRST")]
)
def test_cuda_numbers_the_cards_as_nvml_does_unless_it_is_told_otherwise(monkeypatch, variables, order):
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    code, out, err = python(
        "import os\n"
        "from trainer import __main__ as entry\n"
        "from trainer.arguments import arguments\n"
        "entry.tell_libraries(arguments(['cifar10', '--out', 'x']))\n"
        "print(os.environ['CUDA_DEVICE_ORDER'])\n",
        **variables,
    )
    assert (code, out.strip()) == (0, order), err
