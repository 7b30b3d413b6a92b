"""Replays on a real engine: the same image by digest, the same command; and their report."""

from __future__ import annotations

import csv
import json

import pytest
from ngcdl_child import User

pytestmark = pytest.mark.lab


def test_a_command_is_replayed_by_digest_with_its_words_its_variables_and_its_folder(user: User) -> None:
    script = "echo $WORD; pwd; id -u; echo $0 $*"
    done = user.run("run", "busybox:1", "-e", "WORD=hello", "--", "sh", "-c", script, "a b", "c")
    assert done.code == 0, done
    first = user.record()
    again = user.run("runs", "replay", "last")
    assert (again.code, again.out) == (0, done.out), again
    second = user.record()
    assert second["id"] != first["id"]
    assert second["image"]["digest"] == first["image"]["digest"]
    found = json.loads(user.run("runs", "diff", first["id"], second["id"], "--json").out)
    # The image was requested by digest, and no card was requested, so there is nothing to warn about.
    assert set(found["differs"]) <= {"image.reference", "spec.image", "notes"}, found


def test_a_replay_ends_with_the_exit_code_of_what_was_replayed(user: User) -> None:
    assert user.run("run", "busybox:1", "--", "sh", "-c", "exit 3").code == 3
    assert user.run("runs", "replay", "last").code == 3


def test_a_digest_that_can_t_be_had_any_more_is_a_refusal_and_no_other_image_is_taken(user: User) -> None:
    assert user.run("run", "busybox:1", "--", "true").code == 0
    record = user.record()
    path = user.runs / record["id"] / "run.json"
    gone = "sha256:" + "9" * 64
    path.write_text(json.dumps(record | {"image": {**record["image"], "digest": gone}}))
    user.login()
    changed = user.run("runs", "replay", "last")
    assert (changed.code, "nothing shows that its record is as ngcdl wrote it" in changed.err) == (125, True), changed
    done = user.run("runs", "replay", "last", "--trust")
    assert done.code == 125, done
    assert "its image is no longer available" in done.err
    assert gone in done.err
    assert user.record()["id"] == record["id"], "nothing was started"


def test_a_training_in_tensorflow_1_4_is_replayed_and_both_have_one_report(user: User) -> None:
    typed = ["--train", "cifar10", "--steps", "31", "--batch", "4", "--data", "synthetic", "--no-eval"]
    assert user.run("run", "tensorflow:18.01-py2", *typed, "--gpus", "none", seconds=240).code == 0
    first = user.record()
    done = user.run("runs", "replay", "last", seconds=240)
    assert done.code == 0, done
    second = user.record()
    losses = []
    for run in (first, second):
        rows = csv.DictReader(user.run("report", run["id"], "--csv", "-").out.splitlines())
        losses.append([float(row["loss"]) for row in rows if row["kind"] == "step"])
    assert len(losses[0]) == len(losses[1]) >= 4
    assert losses[0] == pytest.approx(losses[1], rel=1e-3), "the same seed and the same images"
    done = user.run("report", first["id"], second["id"])
    assert done.code == 0, done
    page = (user.runs / first["id"] / "report-of-2.html").read_text()
    assert "SYNTHETIC data" in page
    assert "One run of each has no spread, so no ratio is given" in page
