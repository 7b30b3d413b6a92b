"""Runs the rounds of a comparison: one run after the other, or all submitted to a cluster's queue at once.

Rounds are A B, B A, A B ..., so that drift hits each arm early as often as late. Only one run runs at a time. All runs
are submitted to a queue at the start, each to begin when those before it have ended (sbatch --dependency=afterany). So
ngcdl need not stay to submit the next run: it may leave (`--detach`) or die. A job array would not do: all its elements
are the same request, while arms of 1, 2 and 4 nodes are three; an array per arm would run the arms side by side and in
any order. The chain has a cost: if priority grows with a job's age, a job that waits for another usually does not age.
"""

from __future__ import annotations

import contextlib
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from ngcdl.errors import EngineLost, NgcdlError
from ngcdl.figures import measured
from ngcdl.planning.show import Show
from ngcdl.record import Run
from ngcdl.report.measured.case import is_command
from ngcdl.running import launch, prepare
from ngcdl.running.ending import BY_STOP, TIME_IS_UP
from ngcdl.running.owner import this_process
from ngcdl.running.prepare import Ready, Settled
from ngcdl.running.signals import SIGNALS, Interrupted
from ngcdl.spec import kind_of
from ngcdl.storing import comparisons
from ngcdl.storing.comparisons import StoredComparison, Trial
from ngcdl.storing.store import Store

# The reason of a run that ended because this ngcdl got a signal -> that signal.
_OURS: Mapping[str | None, int] = {BY_STOP: signal.SIGTERM, **{f"stopped by {one.name}": one for one in SIGNALS}}


class ShowRounds(Show, Protocol):
    def begins(self, what: str) -> None:
        """Show that a run begins; `what` says which."""
        ...


class Comparing:
    """A comparison in progress. Its file always names the runs that were started so far."""

    def __init__(
        self,
        arms: Mapping[str, Settled],
        kept: StoredComparison,
        store: Store,
        show: ShowRounds,
        until: float | None = None,
        clock: Callable[[], float] = time.time,
        edited: Callable[[], object] = lambda: None,
        held: Callable[[], object] = lambda: None,
    ) -> None:
        """`arms`, by name, are in order; all can begin at once. At `until` (s since the epoch) the current run is
        stopped, and no other begins. No further run begins, either, once `edited` returns a source file of the command
        that was changed. `held` is called once the comparison's cards are held for it."""
        self.arms, self._store, self._show = arms, store, show
        self._left, self._until, self._clock, self._edited = list(arms), until, clock, edited
        self._held = held
        self._queued: dict[tuple[str, int], Ready] = {}  # submitted: by arm and round, in order
        self.kept = kept

    def go(self) -> None:
        """Run all rounds. Raise Interrupted or KeyboardInterrupt once the current run is stopped and recorded.

        An arm with a failed run is not run again. The rounds end if that leaves nothing to compare.
        """
        with self._owned():
            if all(kind_of(settled.picked.engine.name).has_queue for settled in self.arms.values()):
                self._hand_in(is_followed=True)
            for number in range(1, self.kept.repeat + 1):
                if not self._round(number):
                    break
        self.kept = replace(self.kept, finished=time.time())
        comparisons.save(self.kept, self._store)

    def leave(self) -> None:
        """Submit all runs and leave them to the queue, unattended. Raise as `go` does."""
        with self._owned():
            self._hand_in(is_followed=False)
            if not self._is_stopped():
                self._queued.clear()

    @contextlib.contextmanager
    def _owned(self) -> Iterator[None]:
        """Hold the comparison's cards while the block lasts: its file names this process. Withdraw at the end what is
        queued."""
        cards = tuple(dict.fromkeys(uuid for settled in self.arms.values() for uuid in prepare.held(settled)))
        self.kept = replace(self.kept, owner=this_process(), gpus=cards)
        try:
            comparisons.save(self.kept, self._store)
            self._held()
            yield
        finally:
            self._withdraw_all()
            self.kept = replace(self.kept, owner=None)
            with contextlib.suppress(NgcdlError):  # it is left all the same, with this process
                comparisons.leave(self.kept, self._store)

    def _order(self, number: int) -> list[str]:
        return self._left[:: 1 if number % 2 else -1]

    # -- in turn ----------------------------------------------------------------------------------------------------

    def _round(self, number: int) -> bool:
        """Run one round, and return whether another can follow."""
        for name in self._order(number):
            if self._is_cut_short():
                return False
            if not self._run(name, number):
                self._left.remove(name)
                self._withdraw(name)
                if not self.arms[name].asked.workload and self._is_pointless():  # the others may take hours
                    return False
            if file := self._edited():
                counted = tuple(one for one in self.kept.trials if (one.arm, one.round) != (name, number))
                self.kept = replace(self.kept, trials=counted)
                during = f"{self._place(number)}, {name}"
                self._end(f"{file} was edited during {during}: that run is left out, and no further begins")
                return False
        return number < self.kept.repeat and not self._is_cut_short() and not self._is_pointless()

    def _is_pointless(self) -> bool:
        """Return whether nothing is left to compare: fewer than two arms, or not the first arm, which is the base."""
        is_over = len(self._left) < min(2, len(self.arms)) or self._left[0] != next(iter(self.arms))
        if is_over:
            self._end("nothing is left to compare with: no further rounds")
        return is_over

    def _is_cut_short(self) -> bool:
        if self._until is not None and self._clock() > self._until:
            self._time_is_up()
            return True
        return self._is_stopped()

    def _is_stopped(self) -> bool:
        """Return whether `comparisons.stop` has closed the comparison's file, from another shell."""
        with contextlib.suppress(NgcdlError):  # a missing file stops nothing
            if comparisons.load(self.kept.id, self._store).finished is not None:
                self._end(comparisons.STOPPED)
                return True
        return False

    def _time_is_up(self) -> None:
        often = f"{self.kept.repeat} rounds were" if self.kept.repeat > 1 else "its runs were"
        self._end(f"the time is up: not all {often} finished")

    def _end(self, why: str) -> None:
        if why in self.kept.remarks:
            return
        self._show.say(why)
        self.kept = replace(self.kept, remarks=(*self.kept.remarks, why))

    def _run(self, name: str, number: int) -> bool:
        """Run one run to its end, and return whether it finished."""
        place = self._place(number)
        queued = self._queued.pop((name, number), None)
        ready = queued or self._begin(name, number)
        if ready is None:
            return False
        self._show.begins(f"{place}, {name}")
        try:
            begun = ready.engine.find(ready.run.id) if queued else None
            first = self._withdraw_all  # else the next run would begin as soon as this one has stopped
            run = launch.follow(ready, self._store, self._show, until=self._until, begun=begun, before_stop=first)
        except NgcdlError as error:
            if queued and isinstance(error, EngineLost):  # the queued runs go on, and the next command finds them
                self._queued.clear()
                raise
            run = self._store.load(ready.run.id)
            below = (f"  {line}" for line in error.hint.splitlines())
            self._show.say("\n".join([f"{place}, {name}: {error.message}", *below]))
        else:
            self._show.say(f"{place}, {name}: {_told(run)}")
        if run.reason == TIME_IS_UP:
            self._time_is_up()
        elif run.reason in _OURS and not (run.reason == BY_STOP and ready.engine.is_cluster):  # its cluster was asked
            raise Interrupted(_OURS[run.reason])
        return run.status == "finished"

    def _place(self, number: int) -> str:
        return f"round {number} of {self.kept.repeat}"

    def _begin(self, name: str, number: int) -> Ready | None:
        """Record a run as running, with its place in the comparison; return None if the comparison was stopped."""
        note = f"compare {self.kept.id}: {name}, {self._place(number)}"
        with comparisons.alone(self._store):  # a stop comes before this run is recorded, or sees it
            if self._is_stopped():
                return None
            ready = prepare.begin(self.arms[name], self._store, note)
            self.kept = replace(self.kept, trials=(*self.kept.trials, Trial(name, number, ready.run.id)))
            comparisons.save(self.kept, self._store)
        return ready

    # -- in a queue -------------------------------------------------------------------------------------------------

    def _hand_in(self, is_followed: bool) -> None:
        """Submit the runs of all rounds. Raise NgcdlError or Interrupted.

        Many clusters accept only a few jobs per user. If this ngcdl stays (`is_followed`) and some runs are queued, it
        submits the refused runs when it is their turn."""
        for number in range(1, self.kept.repeat + 1):
            for name in self._order(number):
                before = self.kept
                try:
                    if not self._queue(name, number):
                        return
                except NgcdlError as error:
                    if not isinstance(error, EngineLost):  # the queue may yet accept that one
                        self._queued.pop((name, number), None)
                    if not (is_followed and self._queued) or isinstance(error, EngineLost):
                        raise
                    self.kept = before
                    self._show.say(f"{error.message} The others will be submitted when it is their turn.")
                    return

    def _queue(self, name: str, number: int) -> bool:
        """Submit one run, to begin when those before it have ended; return False if the comparison was stopped."""
        ready = self._begin(name, number)
        if ready is None:
            return False
        before = tuple(one.run.container for one in self._queued.values() if one.run.container)
        ready = replace(ready, order=replace(ready.order, after=before))
        self._queued[name, number] = ready  # at once: a signal may come when the queue has it, and ngcdl not its answer
        run = launch.follow(ready, self._store, self._show, leave=True)
        if run.reason in _OURS:
            raise Interrupted(_OURS[run.reason])
        self._queued[name, number] = replace(ready, run=run)
        return True

    def _withdraw_all(self) -> None:
        self._withdraw(*self.arms)

    def _withdraw(self, *names: str) -> None:
        """Kill the queued runs of `names`, the last first; reconcile closes their records. A failure is told.

        Two threads may do this at once. So a run is forgotten only once it was killed: no thread then believes that all
        are withdrawn while another has yet to kill one."""
        for key in [one for one in reversed(list(self._queued)) if one[0] in names]:
            if ready := self._queued.get(key):
                run_id = ready.run.id
                try:
                    if job := ready.engine.find(run_id):
                        job.kill()
                except NgcdlError as error:
                    self._show.say(f"{run_id} may still be queued: {error.message} To stop it:  ngcdl stop {run_id}")
            self._queued.pop(key, None)


def _told(run: Run) -> str:
    figures = run.summary
    if run.status != "finished":
        why = f"; its output:  ngcdl logs {run.id}" if run.status == "failed" else ""
        return f"{run.status}{f', {run.reason}' if run.reason else ''} ({run.id}){why}"
    rate, each = figures.examples_per_second, figures.seconds_per_batch
    if rate is None and is_command(run):
        has_time = run.seconds is not None and not run.kind.is_cluster  # a cluster's includes the queue
        return f"took {measured(run.seconds)} s ({run.id})" if has_time else f"finished ({run.id})"
    if rate is None:
        return f"too few steps for a figure ({run.id})"
    made_up = ", on SYNTHETIC data" if run.is_synthetic else ""
    batch = "" if each is None else f", {measured(each, 4)} s/batch"
    return f"{measured(rate)} examples/s{batch}{made_up} ({run.id})"
