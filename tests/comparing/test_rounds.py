"""A comparison's runs in a queue: submitted at once, each to begin after those before; followed, withdrawn or left."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from fakes import IMAGE, FakeEngine, FakeJob, FakeShow

from ngcdl.choice import NO_GPU, Choice
from ngcdl.comparing import compare
from ngcdl.comparing.rounds import Comparing
from ngcdl.dataset import Dataset
from ngcdl.engines.base import Job
from ngcdl.engines.values import Exit, Order
from ngcdl.errors import NotPlaceable, SlurmLost, StateNotWritable
from ngcdl.folder import EVENTS
from ngcdl.planning.asked import Asked
from ngcdl.record import Run
from ngcdl.running import launch
from ngcdl.running.prepare import Settled
from ngcdl.running.signals import Interrupted
from ngcdl.spec import GpuRequest, Placement, Workload
from ngcdl.storing import comparisons
from ngcdl.storing.comparisons import StoredComparison
from ngcdl.storing.store import Store
from ngcdl.telemetry.card import Probe

ORDER = ["nodes=1", "nodes=2", "nodes=2", "nodes=1"]


@dataclass
class Cluster(FakeEngine):
    """A cluster that accepts every run at once. The n-th job is `jobs[n]`, by default a success; run number `refuses`
    is refused once."""

    jobs: Mapping[int, FakeJob] = field(default_factory=dict)
    refuses: int | None = None
    at: Mapping[int, Callable[[], None]] = field(default_factory=dict)  # what happens while it accepts that
    orders: list[Order] = field(default_factory=list)
    taken: dict[str, FakeJob] = field(default_factory=dict)

    def start(self, order: Order) -> Job:
        number = len(self.orders) + 1
        if number == self.refuses:
            self.refuses = None
            raise NotPlaceable("no", "nothing")
        self.orders.append(order)
        self.at.get(number, lambda: None)()
        job = self.jobs.get(number) or FakeJob()
        job.identity = f"slurm:{number}"
        self.taken[order.run_id] = job
        rate = 100.0 * (order.spec.placement or Placement()).nodes
        events: list[dict[str, Any]] = [{"event": "start", "device": "cpu", "dataset": "synthetic"}]
        events += [{"event": "step", "t": float(n), "step": n, "examples_per_second": rate} for n in (10, 20)]
        (order.folder / EVENTS).write_text("".join(json.dumps(event) + "\n" for event in events))
        return job

    def find(self, run_id: str) -> Job | None:
        return self.taken.get(run_id)


def going(store: Store, **engine: Any) -> tuple[Comparing, Cluster]:
    """One node against two, in two rounds."""
    fake = Cluster(FakeJob(), name="slurm", is_cluster=True, is_here=False, **engine)
    picked = Choice(fake, IMAGE, NO_GPU, GpuRequest("none"), "cpu", (), "it was asked for", Probe())
    asked = Asked("slurm", IMAGE, GpuRequest("none"), Workload("cifar10", 21))
    settled = Settled(asked, picked, Dataset("synthetic", None, None, "as asked for"), None, str(IMAGE))
    arms = {f"nodes={n}": replace(settled, placement=Placement(nodes=n)) for n in (1, 2)}
    kept = StoredComparison(
        store.new_id("compare"), "nodes", 2, tuple((name, None) for name in arms), 1.0, scaling="strong"
    )
    return Comparing(arms, kept, store, FakeShow()), fake


def killed(fake: Cluster) -> list[int]:
    """Return the numbers, in order of submission, of the jobs that the comparison killed."""
    return [number for number, order in enumerate(fake.orders, 1) if "kill" in fake.taken[order.run_id].asked]


def test_all_runs_are_handed_in_before_one_is_followed_each_after_all_before_it(store: Store) -> None:
    seen: list[int] = []
    first = FakeJob((lambda: seen.append(len(fake.orders)),))
    it, fake = going(store, jobs={1: first})
    it.go()
    assert seen == [4]
    assert [trial.arm for trial in it.kept.trials] == ORDER
    assert [order.after for order in fake.orders] == [
        (), ("slurm:1",), ("slurm:1", "slurm:2"), ("slurm:1", "slurm:2", "slurm:3")
    ]  # fmt: skip
    assert [order.spec.placement.nodes for order in fake.orders if order.spec.placement] == [1, 2, 2, 1]
    found = compare.compared(comparisons.load("last", store), store)
    assert found.ratio is not None
    assert (found.ratio.times.median, found.scaling, found.refused) == (2.0, "strong", ())
    assert killed(fake) == []


def test_of_an_arm_that_failed_the_rest_is_withdrawn(store: Store) -> None:
    it, fake = going(store, jobs={2: FakeJob(exit=Exit(7, False, None, 50.0))})
    it.go()
    assert killed(fake) == [3, 4], "the rest of the arm, and what has nothing left to be compared with"


def test_a_signal_stops_the_run_under_way_and_withdraws_the_others_and_one_that_can_t_be_is_told(
    store: Store,
) -> None:
    class Stays(FakeJob):
        def kill(self) -> None:
            super().kill()
            raise SlurmLost("scancel", "no answer")

    stopped = FakeJob((lambda: os.kill(os.getpid(), signal.SIGINT),), until_stopped=True)
    made, fake = going(store, jobs={2: stopped, 3: Stays()})
    it = Comparing(made.arms, made.kept, store, show := FakeShow())
    with pytest.raises(Interrupted) as caught:
        it.go()
    assert caught.value.number == signal.SIGINT
    assert killed(fake) == [3, 4]
    assert stopped.asked[0] == "stop 60"
    stays, why = it.kept.trials[2].run, SlurmLost("scancel", "no answer").message
    assert f"{stays} may still be queued: {why} To stop it:  ngcdl stop {stays}" in show.said


def test_the_others_are_withdrawn_before_the_run_under_way_stops_else_the_next_would_begin(store: Store) -> None:
    class First(FakeJob):
        def stop(self, grace_seconds: float) -> None:
            seen.extend(killed(fake))
            super().stop(grace_seconds)

    seen: list[int] = []
    it, fake = going(store, jobs={1: First((lambda: os.kill(os.getpid(), signal.SIGTERM),), until_stopped=True)})
    with pytest.raises(Interrupted):
        it.go()
    assert seen == [2, 3, 4]


@pytest.mark.parametrize("leaves", [False, True])
def test_a_signal_that_comes_once_a_run_is_handed_in_stops_it_and_withdraws_the_others(
    store: Store, monkeypatch: pytest.MonkeyPatch, leaves: bool
) -> None:
    save, signals = Store.save, [signal.SIGTERM]

    def saved(store: Store, run: Run) -> None:
        if run.container == "slurm:3" and signals:
            os.kill(os.getpid(), signals.pop())
        save(store, run)

    last = FakeJob(until_stopped=True)
    it, fake = going(store, jobs={3: last})
    monkeypatch.setattr(Store, "save", saved)
    with pytest.raises(Interrupted):
        it.leave() if leaves else it.go()
    assert (len(fake.orders), last.asked[0]) == (3, "stop 60")
    assert killed(fake)[:2] == [1, 2]
    assert store.load(it.kept.trials[2].run).reason == "stopped by SIGTERM"


def test_a_signal_that_comes_between_two_runs_withdraws_also_what_was_just_handed_in(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow = launch.follow

    def followed(*words: Any, **options: Any) -> Run:
        run = follow(*words, **options)
        if len(fake.orders) == 2:
            raise KeyboardInterrupt
        return run

    it, fake = going(store)
    monkeypatch.setattr(launch, "follow", followed)
    with pytest.raises(KeyboardInterrupt):
        it.go()
    assert killed(fake) == [1, 2]


@pytest.mark.parametrize("ended", [
    Exit(None, None, "Slurm: CANCELLED", 50.0, is_stopped=True),
    Exit(143, None, "Slurm's time limit was reached (--time)", 50.0, is_stopped=True),
])  # fmt: skip
def test_a_run_that_others_ended_ends_its_arm_and_not_ngcdl(store: Store, ended: Exit) -> None:
    it, fake = going(store, jobs={1: FakeJob(exit=ended)})
    it.go()
    assert it.kept.finished is not None
    assert killed(fake) == [3, 4]


def test_what_is_refused_withdraws_what_was_left_before(store: Store) -> None:
    it, fake = going(store, refuses=3)
    with pytest.raises(NotPlaceable):
        it.leave()
    assert killed(fake) == [1, 2]


def test_what_the_queue_does_not_take_behind_others_begins_in_its_turn(store: Store) -> None:
    handed_in: list[int] = []
    it, fake = going(store, refuses=3, jobs={2: FakeJob((lambda: handed_in.append(len(fake.orders)),))})
    it.go()
    assert handed_in == [2]
    assert [order.after for order in fake.orders] == [(), ("slurm:1",), (), ()]
    assert [trial.arm for trial in it.kept.trials] == ORDER
    assert {store.load(trial.run).status for trial in it.kept.trials} == {"finished"}


def test_a_queue_that_takes_none_ends_it(store: Store) -> None:
    it, fake = going(store, refuses=1)
    with pytest.raises(NotPlaceable):
        it.go()
    assert fake.orders == []


def test_runs_on_a_cluster_that_does_not_answer_any_more_are_left_to_it(store: Store) -> None:
    it, fake = going(store, jobs={2: FakeJob(exit=SlurmLost("squeue", "connect failure"))})
    with pytest.raises(SlurmLost):
        it.go()
    assert killed(fake) == []
    assert store.load(it.kept.trials[1].run).status == "running"


def test_what_is_left_goes_on_and_says_how_far_it_is(store: Store) -> None:
    it, fake = going(store)
    it.leave()
    assert killed(fake) == []
    assert {store.load(trial.run).status for trial in it.kept.trials} == {"running"}
    kept = comparisons.load("last", store)
    assert "it is still running: 0 of 4 runs have ended" in compare.compared(kept, store).diagnosis
    for trial in kept.trials:
        store.save(replace(store.load(trial.run), status="finished"))
    assert not any("it goes on" in said for said in compare.compared(kept, store).diagnosis)


def test_a_cluster_without_such_a_queue_gets_one_run_when_the_other_has_ended(store: Store) -> None:
    handed_in: list[int] = []

    def looked(number: int) -> Callable[[], None]:
        return lambda: handed_in.append(len(fake.orders) - number)

    it, fake = going(store, jobs={number: FakeJob((looked(number),)) for number in (1, 2, 3, 4)})
    fake.name = "kubernetes"
    it.go()
    assert handed_in == [0, 0, 0, 0]
    assert all(order.after == () for order in fake.orders)


def stop(it: Comparing, store: Store) -> None:
    comparisons.stop(comparisons.load(it.kept.id, store), store)


def test_one_that_is_stopped_from_another_shell_begins_no_other_run(store: Store) -> None:
    it, fake = going(store, jobs={2: FakeJob((lambda: stop(it, store),))})
    fake.name = "kubernetes"
    it.go()
    assert len(fake.orders) == 2
    assert comparisons.load(it.kept.id, store).remarks == (comparisons.STOPPED,)


@pytest.mark.parametrize("leaves", [False, True])
def test_one_that_is_stopped_while_its_runs_are_handed_in_withdraws_them(store: Store, leaves: bool) -> None:
    it, fake = going(store, at={2: lambda: stop(it, store)})
    it.leave() if leaves else it.go()
    assert killed(fake) == [1, 2]
    kept = comparisons.load(it.kept.id, store)
    assert (len(kept.trials), kept.finished is not None, kept.remarks) == (2, True, (comparisons.STOPPED,))


def test_a_stop_that_comes_while_a_run_is_recorded_is_not_lost(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = threading.Thread(target=lambda: stop(it, store))
    create = Store.create

    def creating(store: Store, run: Run) -> Path:
        if len(fake.orders) == 1:
            ours.start()
            ours.join(0.5)  # without a lock, it would end in this time
        return create(store, run)

    it, fake = going(store)
    fake.name = "kubernetes"
    fake.at = {2: ours.join}
    monkeypatch.setattr(Store, "create", creating)
    it.go()
    assert len(fake.orders) == 2
    assert comparisons.load(it.kept.id, store).remarks == (comparisons.STOPPED,)


def test_a_run_that_could_not_be_recorded_costs_no_other_its_place(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, full = Store.create, [True]

    def creating(store: Store, run: Run) -> Path:
        if len(fake.orders) == 2 and full and full.pop():
            raise StateNotWritable(store.root, "Disk quota exceeded")
        return create(store, run)

    it, fake = going(store)
    monkeypatch.setattr(Store, "create", creating)
    it.go()
    assert [trial.arm for trial in it.kept.trials] == ORDER
    assert [trial.run for trial in it.kept.trials] == [order.run_id for order in fake.orders]
