import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from trainer_process import CONTAINERS, names

from trainer import checkpoint
from trainer.events import Stop

ABOUT = {"workload": "cifar10", "batch": 128, "seed": 0, "data": "x", "queued": 20000, "framework": "tf1"}
WEIGHTS = {"conv1/weights": np.arange(5000, dtype=np.float32).reshape(50, 100), "conv1/biases": np.ones(3, np.float32)}
ARRAYS = {**WEIGHTS, **{"average/" + name: value / 2 for name, value in WEIGHTS.items()}}


def save(folder, step):
    return checkpoint.save(str(folder), dict(ABOUT, step=step), ARRAYS)


def newest(folder, say=lambda _: None, **wanted):
    return checkpoint.newest(str(folder), dict(ABOUT, **wanted), say)


def child(code, folder):
    return subprocess.Popen(
        [sys.executable, "-c", code, str(folder)],
        env={**os.environ, "PYTHONPATH": f"{CONTAINERS}:{Path(__file__).parent}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_what_was_saved_is_read_back(tmp_path):
    assert save(tmp_path, 7) == "checkpoints/step-7.npz"
    about, arrays = newest(tmp_path)
    assert about["step"] == 7
    assert set(arrays) == set(ARRAYS)
    for name, value in ARRAYS.items():
        assert (arrays[name] == value).all()
    assert newest(tmp_path / "checkpoints")[0]["step"] == 7


def test_the_last_three_are_kept_by_number_not_by_name_and_a_folder_is_none_of_them(tmp_path):
    for step in 7, 9:
        (tmp_path / "checkpoints" / f"step-{step}.npz").mkdir(parents=True)
    for step in 8, 9, 10, 100:
        save(tmp_path, step)
    kept = ["step-10.npz", "step-100.npz", "step-7.npz", "step-9.npz", "step-9.npz.folder"]
    assert names(tmp_path / "checkpoints") == kept


@pytest.mark.parametrize("written", [1e9, 1e10])
def test_a_new_one_stays_beside_those_of_a_longer_training_whatever_the_clock_said(tmp_path, written):
    for step in (800, 900, 1000):
        os.utime(tmp_path / save(tmp_path, step), (written, written))
    assert (tmp_path / save(tmp_path, 5)).exists()
    assert len(names(tmp_path / "checkpoints")) == 3


@pytest.mark.parametrize("harm", ["cut", "flip", "empty", "foreign", "pipe"])
def test_a_damaged_one_is_passed_over_aloud(tmp_path, harm):
    save(tmp_path, 1)
    save(tmp_path, 2)
    path = tmp_path / "checkpoints" / "step-2.npz"
    content = bytearray(path.read_bytes())
    if harm == "flip":
        content[len(content) // 3] ^= 4
    path.unlink()
    if harm == "pipe":
        os.mkfifo(path)
    else:
        harmed = {"cut": content[: len(content) // 2], "flip": content, "empty": b"", "foreign": b"<html>"}
        path.write_bytes(harmed[harm])
    said = []
    assert newest(tmp_path, said.append)[0]["step"] == 1
    assert "step-2.npz can't be read" in said[0]
    assert "step-1.npz" in said[1]


def test_one_of_a_later_format_is_not_called_damaged(tmp_path, monkeypatch):
    save(tmp_path, 1)
    with monkeypatch.context() as later:
        later.setattr(checkpoint, "FORMAT", 2)
        save(tmp_path, 2)
        assert newest(tmp_path)[0]["step"] == 2
    said = []
    assert newest(tmp_path, said.append)[0]["step"] == 1
    assert "step-2.npz can't be read (it has format 2, this trainer reads up to 1: update ngcdl)" in said[0]
    (tmp_path / "checkpoints" / "step-1.npz").unlink()
    with pytest.raises(Stop, match="the oldest: it has format 2, this trainer"):
        newest(tmp_path)


def test_content_of_another_sum_is_found_even_in_a_whole_zip(tmp_path):
    save(tmp_path, 1)
    path = tmp_path / "checkpoints" / "step-1.npz"
    arrays = dict(np.load(path))
    arrays["conv1/biases"][0] = 2
    np.savez(path, **arrays)
    with pytest.raises(ValueError, match="not what was written"):
        checkpoint.read(str(path))


def test_one_that_would_run_a_program_runs_nothing(tmp_path):
    class Harmful:
        def __reduce__(self):
            return os.mkdir, (str(tmp_path / "ran"),)

    save(tmp_path, 1)
    path = tmp_path / "checkpoints" / "step-1.npz"
    np.savez(path, **dict(np.load(path)), harm=np.array([Harmful()], object))
    with pytest.raises(ValueError, match="allow_pickle"):
        checkpoint.read(str(path))
    assert not (tmp_path / "ran").exists()


def test_none_and_none_that_is_good_and_none_that_can_be_read_are_told(tmp_path, monkeypatch):
    with pytest.raises(Stop, match="No checkpoint file found") as stop:
        newest(tmp_path)
    assert stop.value.kind == "checkpoint"
    save(tmp_path, 1)
    (tmp_path / "checkpoints" / "step-1.npz").write_bytes(b"")
    with pytest.raises(Stop, match=r"no checkpoint in .* can be read; the oldest: "):
        newest(tmp_path)
    monkeypatch.setattr(os, "listdir", os.readlink)  # fails, as does listing another user's folder
    with pytest.raises(Stop, match="checkpoints: Invalid argument"):
        newest(tmp_path)


@pytest.mark.parametrize(
    "other", [{"workload": "mnist"}, {"batch": 64}, {"seed": 1}, {"data": "y"}, {"queued": 5000}, {"dropout": False}]
)
def test_one_of_another_training_is_refused(tmp_path, other):
    save(tmp_path, 1)
    with pytest.raises(Stop, match=f"has {next(iter(other))} ") as stop:
        newest(tmp_path, **other)
    assert stop.value.kind == "checkpoint"


def test_another_framework_may_go_on(tmp_path):
    save(tmp_path, 1)
    assert newest(tmp_path, framework="pytorch")[0]["framework"] == "tf1"


def test_a_full_disk_leaves_the_one_before_and_no_rest(tmp_path):
    save(tmp_path, 1)
    code = """
import resource, sys
import test_trainer_checkpoint as here
from trainer.events import Stop
resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))  # the file system refuses to let a file grow on
try:
    here.save(sys.argv[1], 2)
except Stop as stop:
    print(stop.kind)
"""
    out, err = child(code, tmp_path).communicate(timeout=240)
    assert out == "disk_full\n", err
    assert names(tmp_path / "checkpoints") == ["step-1.npz"]
    assert newest(tmp_path)[0]["step"] == 1


def test_killed_while_saving_the_newest_whole_one_is_left(tmp_path):
    code = """
import sys
import test_trainer_checkpoint as here
for step in range(1, 10**6):
    here.save(sys.argv[1], step)
    print(step, flush=True)
"""
    for lines in 1, 2, 5, 9, 14:
        process = child(code, tmp_path)
        last = [process.stdout.readline() for _ in range(lines)][-1]
        process.send_signal(signal.SIGKILL)
        process.communicate()
        assert newest(tmp_path)[0]["step"] >= int(last)
    save(tmp_path, 10**6)
    assert all(name.endswith(".npz") for name in names(tmp_path / "checkpoints"))
