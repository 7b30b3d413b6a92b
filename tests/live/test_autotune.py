"""What autotuning in a container chose outlives the container, and is shown."""

from __future__ import annotations

import pytest
from house import until
from ngcdl_child import User

pytestmark = pytest.mark.lab

TUNED = ("--train", "fcn-r", "--data", "synthetic", "--gpus", "none", "--steps", "1000000", "--autotune")


def begun(user: User, image: str, *words: str) -> tuple[str, dict[str, object]]:
    """Start a training, stop it once it has begun, and return its id and what its start event says of the tuning."""
    done = user.run("run", image, *TUNED, *words, "-d", seconds=240)
    assert done.code == 0, done
    run = done.out.strip()

    def start() -> list[dict[str, object]]:
        path = user.runs / run / "events.jsonl"
        return [one for one in user.lines("events.jsonl") if one["event"] == "start"] if path.exists() else []

    until(start, "the start event", 200)
    assert user.run("stop", run, seconds=240).code == 0
    until(lambda: not user.containers(), "its container is gone")
    (told,) = [one["autotune"] for one in start()]
    assert isinstance(told, dict)
    return run, told


@pytest.mark.timeout(1800)
def test_what_was_chosen_in_one_container_is_known_in_the_next(user: User) -> None:
    image = "tensorflow:18.01-py2"  # Python 2.7; the others' trials are in tests/containers
    # this network sees no images, and all else that tuning could vary is given: only the default is timed
    typed = "--threads", "1", "--feed", "ahead", "--batch", "4"
    run, told = begun(user, image, *typed)
    for _ in range(5):  # in case others load this machine: it is too slow, or they need its memory
        if told["skipped"]:
            run, told = begun(user, image, *typed)
    (default,) = told["tries"]  # type: ignore[misc]  # of JSON
    assert (default["way"], default["trials"], default["failed"]) == ({}, 1, None)
    assert (told["chosen"], told["kept"], told["remembered"], told["skipped"]) == ({}, True, False, None)
    (kept,) = (user.runs.parent / "autotune").glob("*/*")
    assert kept.owner() == user.runs.owner()
    shown = user.run("show", run).out
    assert "chosen by trial  the default (" in shown
    assert ", remembered" in shown
    _, again = begun(user, image, *typed)
    assert (again["remembered"], again["measured"]) == (True, told["measured"])
    assert [kept] == list((user.runs.parent / "autotune").glob("*/*"))
