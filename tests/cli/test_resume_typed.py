"""`ngcdl run --resume`, as typed: what can't be continued is refused before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from docker_socket import Daemon, serving
from house import TRAIN, House

from ngcdl.record import Owner, Run


def test_a_resume_of_a_run_that_is_not_there_is_told(house: House) -> None:
    done = house.run(*TRAIN, "--resume", "last")
    assert (done.returncode, "no run" in done.stderr) == (125, True)


def made(house: House, *events: dict[str, object], has_checkpoint: bool = False) -> str:
    """Record an older run with these trainer events; return its id."""
    run = Run(house.store.new_id("cifar10"), "interrupted", 1.0, 2.0)
    folder = house.store.create(run)
    (folder / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    if has_checkpoint:
        (folder / "checkpoints").mkdir()
        (folder / "checkpoints/step-3.npz").touch()
    return run.id


def test_a_resume_without_train_names_the_training_of_that_run_whatever_it_has_saved(house: House) -> None:
    run = Run(house.store.new_id("alexnet-r"), "running", 1.0, spec={"workload": {"name": "alexnet-r"}})
    house.store.create(run)
    done = house.run("run", "--resume", "last")
    assert done.returncode == 2
    assert "--resume: only --train reads that.\n      ngcdl run --train alexnet-r --resume last\n" in done.stderr
    assert "There is no run 'none'" in house.run("run", "--resume", "none").stderr


BEGAN = {"event": "start", "t": 1.0, "workload": "cifar10", "batch": 128, "seed": 0}


@pytest.mark.parametrize(("typed", "said"), [
    (("--batch", "8"), "it trained with workload cifar10, seed 3"),
    (("--batch", "16", "--seed", "3"), "it trained with workload cifar10, batch 8"),
])  # fmt: skip
def test_a_resume_of_another_training_is_refused_with_the_line_to_type(
    house: House, typed: tuple[str, ...], said: str
) -> None:
    older = made(house, {**BEGAN, "batch": 8, "seed": 3}, has_checkpoint=True)
    done = house.run("run", "--train", "cifar10-keras", *TRAIN[3:], *typed, "--resume", "last")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert (
        f" --engine local --data synthetic --gpus none --train cifar10 --batch 8 --seed 3 --resume {older}"
        in done.stderr
    )
    assert house.store.ids() == [older], "nothing was recorded"


def test_a_resume_of_a_training_that_outlived_its_engine_is_refused_while_it_runs(house: House, tmp_path: Path) -> None:
    """With live-restore the container keeps running without dockerd: a second training would do the same work."""
    house.bring_trainer()
    older = made(house, BEGAN, has_checkpoint=True)
    run = Run(older, "lost", 1.0, 2.0, engine="docker", container="c0ffee", owner=Owner(2**22 + 1, 5))
    house.store.save(run)
    with serving(Daemon(tmp_path / "docker.sock", state={"Running": True})) as daemon:
        done = house.run(*TRAIN, "--resume", "last", env={"DOCKER_HOST": daemon.host})
        assert (done.returncode, done.stdout) == (2, "")
        assert f"--resume {older}: it is still running" in done.stderr
        assert [f"      ngcdl {word} {older}" for word in ("logs -f", "stop")] == done.stderr.splitlines()[-2:]
        assert house.store.ids() == [older], "nothing was recorded"
        daemon.state = {"Running": False, "ExitCode": 143, "OOMKilled": False, "FinishedAt": ""}
        daemon.log = b""
        assert house.run(*TRAIN, "--resume", "last", env={"DOCKER_HOST": daemon.host}).returncode == 0


def test_a_resume_of_a_record_that_can_t_be_read_is_left_to_its_checkpoints(house: House) -> None:
    house.bring_trainer()
    older = made(house, BEGAN, has_checkpoint=True)
    (house.store.folder(older) / "run.json").write_text("{")
    assert house.run(*TRAIN, "--resume", "last").returncode == 0


def test_a_resume_without_a_checkpoint_or_of_no_training_is_refused(house: House) -> None:
    made(house, BEGAN)
    done = house.run(*TRAIN, "--seed", "9", "--resume", "last")  # another training, but that does not matter then
    assert (done.returncode, "has no checkpoint" in done.stderr) == (2, True)
    made(house)
    done = house.run(*TRAIN, "--resume", "last")
    assert (done.returncode, "no training began in it" in done.stderr) == (2, True)
