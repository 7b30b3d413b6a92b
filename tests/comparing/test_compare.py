"""Arms run in turn, each run is recorded, and the stored comparison is enough to compare them again."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from fakes import IMAGE, FakeEngine, FakeJob, FakeShow

from ngcdl.choice import NO_GPU, Choice
from ngcdl.comparing import compare
from ngcdl.comparing.rounds import Comparing, _told
from ngcdl.dataset import Dataset
from ngcdl.engines.base import Job
from ngcdl.engines.values import Exit, Order
from ngcdl.errors import (
    CommandNotFound,
    EngineLost,
    NgcdlError,
    StateNotWritable,
)
from ngcdl.folder import EVENTS
from ngcdl.planning.asked import Asked
from ngcdl.record import Owner, Run, Summary
from ngcdl.report.compared import in_words
from ngcdl.running.owner import this_process
from ngcdl.running.prepare import Settled
from ngcdl.running.signals import Interrupted
from ngcdl.spec import GpuRequest, RunSpec, Workload
from ngcdl.storing import comparisons
from ngcdl.storing.comparisons import StoredComparison, Trial
from ngcdl.storing.store import Store
from ngcdl.telemetry.card import Probe

RATES = {1: 100.0, 2: 200.0}


@dataclass
class Trainings(FakeEngine):
    """An engine whose every start is a training with a speed by its threads; `instead` replaces the n-th start."""

    instead: Mapping[int, Callable[[Order], FakeJob | NgcdlError]] = field(default_factory=dict)
    orders: list[Order] = field(default_factory=list)

    def start(self, order: Order) -> Job:
        self.orders.append(order)
        other = self.instead.get(len(self.orders))
        made = other(order) if other else _trained(order)
        if isinstance(made, NgcdlError):
            raise made
        return made


def _trained(order: Order, code: int = 0) -> FakeJob:
    workload = order.spec.workload
    assert workload is not None
    rate = RATES[workload.threads or 1]
    events: list[dict[str, Any]] = [{"event": "start", "device": "cpu", "dataset": "synthetic", "framework": "tf1"}]
    events += [{"event": "step", "t": float(n), "step": n, "examples_per_second": rate if n else None,
                "seconds_per_batch": 128 / rate if n else None} for n in (0, 10, 20)]  # fmt: skip
    events += [{"event": "finish", "step": 21}] if not code else []
    (order.folder / EVENTS).write_text("".join(json.dumps(event) + "\n" for event in events))
    return FakeJob((), exit=Exit(code, False, None, 50.0))


def _fails(order: Order) -> FakeJob:
    return _trained(order, 7)


def going(store: Store, repeat: int = 3, **engine: Any) -> tuple[Comparing, Trainings, FakeShow]:
    """One thread against two."""
    fake, show = Trainings(FakeJob(), **engine), FakeShow()
    picked = Choice(fake, IMAGE, NO_GPU, GpuRequest("none"), "cpu", (), "it was asked for", Probe())
    settled = Settled(
        Asked("docker", IMAGE, GpuRequest("none"), Workload("cifar10", 21)),
        picked,
        Dataset("synthetic", None, None, "as asked for"),
        "sha256:" + "5" * 64,
        IMAGE.pinned("sha256:" + "5" * 64),
    )
    arms = {
        f"threads={n}": replace(settled, asked=replace(settled.asked, workload=Workload("cifar10", 21, threads=n)))
        for n in (1, 2)
    }
    kept = StoredComparison(store.new_id("compare"), "threads", repeat, tuple((name, None) for name in arms), 1.0)
    return Comparing(arms, kept, store, show), fake, show


def runs(store: Store) -> list[Run]:
    """All runs, oldest first."""
    return [store.load(run_id) for run_id in reversed(store.ids())]


def test_the_arms_run_in_turn_and_the_order_is_turned_each_round(store: Store) -> None:
    it, fake, _ = going(store)
    it.go()
    threads = [order.spec.workload.threads for order in fake.orders if order.spec.workload]
    assert threads == [1, 2, 2, 1, 1, 2]
    assert [(trial.arm, trial.round) for trial in it.kept.trials] == [
        (f"threads={n}", number) for n, number in zip(threads, (1, 1, 2, 2, 3, 3), strict=True)
    ]


def test_its_file_names_the_process_that_runs_it_as_long_as_it_does(store: Store) -> None:
    def seen(order: Order) -> FakeJob:
        owners.append(comparisons.load("last", store).owner)
        return _trained(order)

    owners: list[Owner | None] = []
    it, _, _ = going(store, repeat=1, instead={1: seen, 2: seen})
    it.go()
    assert [*owners, comparisons.load("last", store).owner] == [this_process(), this_process(), None]


def test_an_arm_that_fails_in_the_last_round_ends_nothing_early(store: Store) -> None:
    it, _, _ = going(store, repeat=1, instead={2: _fails})
    it.go()
    assert it.kept.finished is not None
    assert it.kept.remarks == ()


def test_nothing_but_what_is_varied_differs_between_the_runs(store: Store) -> None:
    it, fake, _ = going(store, repeat=1)
    it.go()
    one, two = (order.spec for order in fake.orders)
    assert [word for word in two.command if word not in one.command] == ["2"]
    assert replace(one, command=(), workload=None) == replace(two, command=(), workload=None)
    assert len({order.target for order in fake.orders}) == 1


def test_each_run_is_an_ordinary_one_with_a_note_of_its_place(store: Store) -> None:
    it, _, _ = going(store, repeat=2)
    it.go()
    assert [run.id for run in runs(store)] == [trial.run for trial in it.kept.trials]
    assert {run.status for run in runs(store)} == {"finished"}
    assert [run.notes for run in runs(store)][2] == (f"compare {it.kept.id}: threads=2, round 2 of 2",)


def test_what_came_out_is_made_of_the_records_alone(store: Store) -> None:
    it, _, _ = going(store)
    it.go()
    kept = comparisons.load("last", store)
    assert kept == it.kept
    assert kept.finished is not None
    found = compare.compared(kept, store)
    assert found.ratio is not None
    assert (found.ratio.times.median, found.ratio.times.min, found.ratio.times.max, found.ratio.times.rounds) == (
        2.0,
        2.0,
        2.0,
        3,
    )
    assert found.refused == ()


@pytest.mark.parametrize(("changed", "told"), [
    ({}, "took 50.0 s (x)"),
    ({"finished": None}, "finished (x)"),
    ({"engine": "slurm"}, "finished (x)"),
    ({"summary": Summary(examples_per_second=90.0)}, "90.0 examples/s (x)"),
    ({"summary": Summary(examples_per_second=90.0, seconds_per_batch=0.5)}, "90.0 examples/s, 0.5000 s/batch (x)"),
    ({"status": "failed"}, "failed (x); its output:  ngcdl logs x"),
])  # fmt: skip
def test_what_is_told_of_a_command(changed: Mapping[str, Any], told: str) -> None:
    run = Run("x", "finished", 1000.0, 1050.0, engine="docker", spec={"command": ["ls"]})
    assert _told(replace(run, **changed)) == told


def test_of_a_command_that_fails_in_one_arm_the_other_is_not_run(store: Store) -> None:
    made, fake, _ = going(store, instead={1: lambda _: FakeJob((), exit=Exit(7, False))})
    asked = replace(next(iter(made.arms.values())).asked, workload=None, own=RunSpec(None, ("ls",)))
    made.arms = {name: replace(settled, asked=asked) for name, settled in made.arms.items()}
    made.go()
    assert len(fake.orders) == 1


def test_a_line_is_told_of_each_run_that_ended(store: Store) -> None:
    it, _, show = going(store, repeat=1)
    it.go()
    assert [said.partition(" (")[0] for said in show.said] == [
        "round 1 of 1, threads=1: 100.0 examples/s, 1.2800 s/batch, on SYNTHETIC data",
        "round 1 of 1, threads=2: 200.0 examples/s, 0.6400 s/batch, on SYNTHETIC data",
    ]


def test_an_arm_that_failed_is_not_tried_again_and_two_are_needed(store: Store) -> None:
    it, fake, show = going(store, instead={2: _fails})
    it.go()
    assert len(fake.orders) == 2
    assert show.said[-1] == "nothing is left to compare with: no further rounds"
    found = compare.compared(it.kept, store)
    assert (found.ratio, [refusal.field for refusal in found.refused]) == (None, ["status"])
    assert [arm.counted for arm in found.arms] == [1, 0]


@pytest.mark.parametrize("error", [CommandNotFound("python"), EngineLost("waited for the run")])
def test_an_error_of_the_start_is_told_with_its_remedy_and_recorded(store: Store, error: NgcdlError) -> None:
    it, _, show = going(store, instead={1: lambda _: error})
    it.go()
    assert error.message in show.said[0]
    below = show.said[0].splitlines()[len(error.message.splitlines()) :]
    assert below == [f"  {line}" for line in error.hint.splitlines()]
    assert runs(store)[0].status in ("failed", "lost")


def test_no_run_begins_when_the_time_is_up(store: Store) -> None:
    it, fake, _ = going(store)
    timed = Comparing(it.arms, it.kept, store, FakeShow(), until=1.0)
    timed.go()
    assert fake.orders == []
    assert timed.kept.remarks == ("the time is up: not all 3 rounds were finished",)
    assert timed.kept.finished is not None


def test_the_run_under_way_is_stopped_and_recorded_when_the_time_is_up(store: Store) -> None:
    def slow(order: Order) -> FakeJob:
        _trained(order)
        return FakeJob((), until_stopped=True)

    it, fake, _ = going(store, instead={1: slow})
    timed = Comparing(it.arms, it.kept, store, FakeShow(), until=1.0, clock=lambda: float(2 * len(fake.orders)))
    timed.go()
    (run,) = runs(store)
    assert (run.status, run.exit_code, run.reason) == ("interrupted", 143, "stopped when its time was up")
    found = compare.compared(comparisons.load("last", store), store)
    assert found.diagnosis == ("the time is up: not all 3 rounds were finished",)
    assert in_words.verdict(found) == (
        "No ratio is given (threads=1 was interrupted: stopped when its time was up): nothing was measured."
    )


@pytest.mark.parametrize(("number", "by_stop"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_a_signal_ends_it_once_the_run_under_way_was_stopped_and_recorded(
    store: Store, number: int, by_stop: bool
) -> None:
    def interrupted(order: Order) -> FakeJob:
        _trained(order)
        if by_stop:
            store.tell_stop(order.run_id)
        return FakeJob((lambda: os.kill(os.getpid(), number),), until_stopped=True)

    it, fake, _ = going(store, instead={3: interrupted})
    with pytest.raises(Interrupted) as caught:
        it.go()
    assert caught.value.number == number
    assert len(fake.orders) == 3
    assert [run.status for run in runs(store)] == ["finished", "finished", "interrupted"]
    kept = comparisons.load("last", store)
    assert (kept.finished, len(kept.trials)) == (None, 3)
    found = compare.compared(kept, store)
    assert [pair.ratio for pair in found.pairs] == [2.0, None]
    assert "it did not finish: 3 of 6 runs were started" in found.diagnosis


@pytest.mark.parametrize(("good", "counted"), [(2, 2), (3, 3), (5, 5)])
def test_a_run_during_which_the_code_was_edited_is_not_counted_and_the_last(
    store: Store, good: int, counted: int
) -> None:
    made, *_ = going(store)
    looks, show = iter([None] * good + ["train.py"]), FakeShow()
    again = Comparing(made.arms, made.kept, store, show, edited=lambda: next(looks))
    again.go()
    assert (len(store.ids()), len(again.kept.trials)) == (good + 1, counted)
    assert again.kept.finished
    edited = [line for line in show.said if "train.py was edited during round" in line]
    assert len(edited) == 1
    assert edited[0] in compare.compared(comparisons.load(again.kept.id, store), store).diagnosis


def test_a_comparison_is_in_its_file_before_its_first_run_ends(store: Store) -> None:
    seen: list[StoredComparison] = []

    def looked(order: Order) -> FakeJob:
        seen.append(comparisons.load("last", store))
        return _trained(order)

    it, _, _ = going(store, repeat=1, instead={1: looked})
    it.go()
    assert [(trial.arm, trial.round) for trial in seen[0].trials] == [("threads=1", 1)]


def test_a_run_whose_record_is_gone_leaves_a_gap_and_is_said(store: Store) -> None:
    it, _, _ = going(store, repeat=2)
    it.go()
    (store.folder(it.kept.trials[0].run) / "run.json").unlink()
    found = compare.compared(it.kept, store)
    assert [pair.ratio for pair in found.pairs] == [None, 2.0]
    assert it.kept.trials[0].run in found.diagnosis[0]


def test_a_place_that_can_t_be_written_is_told_before_anything_runs(store: Store) -> None:
    store.root.mkdir(parents=True)
    store.root.with_name("comparisons").touch()
    it, fake, _ = going(store)
    with pytest.raises(StateNotWritable):
        it.go()
    assert fake.orders == []


def test_a_comparison_under_way_goes_on_though_not_all_of_its_runs_were_begun(store: Store) -> None:
    store.create(Run("one", "finished", 1.0, 2.0))
    store.create(Run("two", "running", 2.0))
    trials = (Trial("cpu", 1, "one"), Trial("gpu", 1, "two"))
    kept = StoredComparison(
        "20260101-000000-compare-aaaaaa", "device", 3, (("cpu", "cpu"), ("gpu", "gpu")), 1.0, trials=trials
    )
    assert "it is still running: 1 of 6 runs have ended" in "\n".join(in_words.lines(compare.compared(kept, store)))
    store.save(Run("two", "lost", 2.0))
    for owner in (this_process(), replace(this_process(), boot="another host's")):  # via a shared home
        between = replace(kept, owner=owner)
        assert "it is still running: 2 of 6 runs have ended" in compare.compared(between, store).diagnosis
    text = "\n".join(in_words.lines(compare.compared(kept, store)))
    assert "it did not finish: 2 of 6 runs were started" in text
