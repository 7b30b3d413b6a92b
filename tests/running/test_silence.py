"""When and where ngcdl reports that a running training has stopped writing."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from typing import Any

import pytest
from house import House
from unwatched import house as house

from ngcdl.record import Run
from ngcdl.running import silence
from ngcdl.running.owner import this_process

STEPS = tuple({"event": "step", "t": float(t), "step": t} for t in (0, 100, 130))


@pytest.mark.parametrize(("events", "more", "seconds", "is_long"), [
    (STEPS, {}, 601, True), (STEPS, {}, 599, False),
    (({"event": "start", "t": 1.0}, *STEPS[:1]), {}, 301, True), ((), {}, 299, False),
    ((*STEPS, {"event": "step", "t": "torn"}), {}, 601, True),
    (STEPS, {"status": "finished"}, 9999, False), (None, {}, 9999, False),
    (STEPS, {"engine": "slurm", "reason": "queued: Priority"}, 9999, False),
    (STEPS, {"engine": "kubernetes"}, 9999, False),
])  # fmt: skip
def test_only_a_training_that_runs_and_was_silent_for_twenty_of_its_steps_is_told_of(
    house: House, events: tuple[dict[str, Any], ...] | None, more: dict[str, Any], seconds: float, is_long: bool
) -> None:
    run = replace(Run("x", "running", 1.0, engine="docker"), **more)
    folder = house.store.create(run)
    path = folder / "events.jsonl"
    if events is not None:
        path.write_text("".join(json.dumps(event) + "\n" for event in events))
        os.utime(path, (1000, 1000))
    assert silence.silent_seconds(run, folder, lambda: 1000 + seconds) == (seconds if is_long else None)


def test_a_training_that_stands_still_is_told_in_the_table_and_when_it_is_shown(house: House) -> None:
    run = Run("x", "running", time.time() - 9e4, engine="local", owner=this_process())
    path = house.store.create(run) / "events.jsonl"
    path.write_text(json.dumps(STEPS[0]) + "\n")
    for ago, said in ((12 * 60, "no step for 12 min"), (25 * 3600, "no step for 25 h")):
        os.utime(path, (time.time() - ago - 1,) * 2)
        listed, shown = house.run("runs"), house.run("show", "x")
        assert f"running, {said}" in listed.stdout
        for done in (listed, shown):
            assert f"x: {said}" in done.stderr
            assert "ngcdl gpu" in done.stderr
            assert "ngcdl stop x" in done.stderr
    os.utime(path)
    assert "no step" not in house.run("runs").stdout


def test_whoever_follows_a_training_hears_of_a_silence_once_and_again_only_after_a_further_report(house: House) -> None:
    run, said, queued = Run("x", "running", 1.0, engine="slurm"), list[str](), ["it is back in the queue"]
    path = house.store.create(run) / "events.jsonl"
    path.write_text(json.dumps(STEPS[0]) + "\n")
    teller = silence.Teller(said.append, run, path.parent, lambda: "".join(queued))
    for minutes, count in ((12, 0), (12, 1), (7, 2), (1, 2)):
        os.utime(path, (time.time() - 60 * minutes,) * 2)
        teller.look()
        teller.look()
        assert len(said) == count
        queued.clear()
    assert [text.split(";")[0] for text in said] == ["x: no step for 12 min", "x: no step for 7 min"]
    assert "ngcdl stop x" in said[0]
