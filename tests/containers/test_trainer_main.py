import json
import re
import subprocess
import sys

import pytest
from conftest import CONTAINERS, events, trainer


def test_the_workloads_are_listed_as_json():
    code, out, _ = trainer("--list")
    assert code == 0
    (workload,) = json.loads(out)
    assert (workload["name"], workload["parameters"], workload["steps"], workload["batch"]) == (
        "cifar10",
        1068298,
        1000,
        128,
    )


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
    assert "usage:" in process.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_framework_that_is_not_here_leaves_an_error_event(tmp_path):
    code, _, err = trainer("cifar10", "--out", tmp_path / "new" / "run", "--framework", "tf1", "--device", "cpu")
    assert code == 1
    (event,) = events(tmp_path / "new" / "run")
    assert (event["event"], event["kind"], event["step"]) == ("error", "bad_argument", None)
    assert err.endswith(f"bad_argument: {event['message']}\n")


def test_a_folder_named_like_a_framework_is_not_taken_for_it(tmp_path):
    (tmp_path / "tensorflow").mkdir()
    path = f"{tmp_path}:{CONTAINERS}"
    code, _, err = trainer("cifar10", "--out", tmp_path / "run", "--framework", "tf1", PYTHONPATH=path)
    assert code == 1
    assert "AttributeError" not in err


def test_a_recorded_run_makes_its_own_folder_and_records_its_failure(tmp_path):
    code, _, _ = trainer("cifar10", "--runs", tmp_path, "--record", "--framework", "tf1")
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
