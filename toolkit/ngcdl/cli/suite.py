"""`ngcdl suite`: runs published experiments as comparisons on this machine, as many as a time budget allows."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from ngcdl import console, trainings
from ngcdl.cli import lookup
from ngcdl.cli.changed import written_out
from ngcdl.cli.compare import Rounds, batches_of, carried_out, check_counts, exit_code, steps_of
from ngcdl.cli.typed import Typed
from ngcdl.comparing import compare as comparing
from ngcdl.errors import BadOption, NgcdlError, NoGpu, UsageError, signal_exit_code
from ngcdl.frozen import dataclass
from ngcdl.record import Run
from ngcdl.report.compared import in_words
from ngcdl.report.compared.comparison import Comparison
from ngcdl.report.compared.pairs import published
from ngcdl.report.measured import expected
from ngcdl.report.measured.words import duration
from ngcdl.running.ending import TIME_IS_UP
from ngcdl.running.signals import Interrupted, signal_of
from ngcdl.spec import kind_of
from ngcdl.storing.store import Store
from ngcdl.telemetry import gpu as nvml
from ngcdl.terminal_text import plain

# Those that show the most in the shortest time come first. `smoke` is not among them: it has nothing to compare.
_ARTICLES = (
    *("cifar10", "batch-sweep", "resident", "input-pipeline", "cifar10-keras"),
    *("distill", "inference", "catdog", "scaling"),
)
_TABLE7 = ("alexnet-r", "resnet-56", "fcn-r", "fcn-s", "lstm", "alexnet-s", "resnet-50")
SUITES = ("articles", "table7")
# How many of the newest runs are read to estimate how fast this machine is.
_LOOKED_AT = 100
_MOST_MINUTES = 10_000_000  # threading.Timer takes up to 9.2e9 s


@dataclass(frozen=True)
class Experiment:
    """One comparison. `vary` None: CPU against GPU. `device`: cpu if all arms must compute there, else None. `skip`:
    why this machine can't run the comparison, None if it can."""

    workload: str
    vary: str | None = None
    skip: str | None = None
    device: str | None = None

    @property
    def title(self) -> str:
        return f"{self.workload}, {self.vary or 'CPU against GPU'}"


@dataclass(frozen=True)
class Outcome:
    experiment: Experiment
    comparison: dict[str, Any] | None = None
    verdict: str | None = None
    skipped: str | None = None
    refused: bool = False
    hint: str = ""

    @property
    def title(self) -> str:
        is_synthetic = self.comparison and self.comparison["synthetic"]
        return f"{self.experiment.title}{', on SYNTHETIC data' if is_synthetic else ''}"

    def as_json(self) -> dict[str, Any]:
        of = self.experiment
        about = {"experiment": of.title, "workload": of.workload, "vary": of.vary, "skipped": self.skipped}
        return {**about, "verdict": self.verdict, "comparison": self.comparison}


def experiments(name: str, processors: int, no_gpu: str | None) -> list[Experiment]:
    """Return the experiments of the suite `name` for a machine. Those that the machine can't run have the reason in
    `skip`. `no_gpu` says why no GPU can be used, None if one can. Raise BadOption."""
    if name not in SUITES:
        raise BadOption(f"suite {name}: must be {' or '.join(SUITES)}.", "    ngcdl suite articles")
    known = trainings.names()
    if name == "articles":
        asked = [(one, trainings.bundled(one).vary) for one in _ARTICLES if one in known]
        return [Experiment(one, vary, no_gpu if _is_of_cards(vary) else None) for one, vary in asked]
    threads = [str(2**n) for n in range(8) if 2**n <= processors]
    sweep = f"threads={','.join(threads)}"
    one_core = "this machine has one processor" if len(threads) < 2 else None
    # the number of threads matters only on the CPU
    found = [Experiment(one, sweep, one_core, "cpu") for one in _TABLE7 if one in known]
    return found + [Experiment(one, None, no_gpu) for one in _TABLE7 if one in known]


def _is_of_cards(vary: str | None) -> bool:
    return (vary or "").startswith("gpus=")


def suite(name: str, typed: Typed, repeat: int, minutes: float | None) -> int:
    """Run one experiment after another and return the exit code. Say what is left when the time is up."""
    if minutes is not None and not 0 < minutes <= _MOST_MINUTES:
        raise BadOption(f"--budget {minutes:g}: must be a number of minutes above 0, at most {_MOST_MINUTES:,}.")
    check_counts(repeat, typed.steps)
    until = None if minutes is None else time.time() + minutes * 60
    no_gpu = _no_gpu(typed)
    listed = _possible(experiments(name, os.cpu_count() or 1, no_gpu), typed, no_gpu)
    store = lookup.open_store()
    found = pace(store)
    for line in estimates_in_words(listed, estimates(listed, typed, repeat, found, no_gpu), minutes, found.is_measured):
        console.say(line)
    outcomes: list[Outcome] = []
    number = None
    for at, experiment in enumerate(listed, 1):
        skip = "stopped" if number else experiment.skip
        try:
            if until is not None and not skip:
                at_hand = pace(store)  # anew: the runs since then show how long this takes
                needed = estimates([experiment], typed, repeat, at_hand, no_gpu)[experiment]
                why = too_late(until - time.time(), needed if at_hand.is_measured else None)
                skip = why and f"the budget of {minutes:g} min {why}"
            if skip:
                outcomes.append(Outcome(experiment, skipped=skip))
                continue
            console.say(f"{at} of {len(listed)}: {experiment.title}")
            rounds = Rounds(experiment.vary or "device=cpu,gpu", repeat, until, tells_gpu=False)
            outcome, number = _outcome(experiment, typed, rounds, is_first=not any(one.comparison for one in outcomes))
        except (KeyboardInterrupt, Interrupted) as error:  # while no run was under way
            number = signal_of(error)
            outcome = Outcome(experiment, skipped="stopped")
        is_told = outcome.hint in {one.hint for one in outcomes}
        outcomes.append(outcome)
        advice = "" if is_told else f"\n{outcome.hint}"
        console.say(f"{outcome.title}: {outcome.verdict or f'skipped, {outcome.skipped}{advice}'}".rstrip())
    if typed.json:
        console.result_json([outcome.as_json() for outcome in outcomes])
    else:
        for line in _lines(outcomes):
            console.result(console.wrapped(plain(line), sys.stdout))
    return signal_exit_code(number) if number else int(any(outcome.refused for outcome in outcomes))


def too_late(left: float, needed: float | None) -> str | None:
    """Say why `left` seconds are too few to begin an experiment that takes `needed` seconds, None if they are enough.
    If `needed` is unknown (None), the experiment is tried, and stopped when the time is up."""
    if left <= 0:
        return "was used up"
    return "was probably no longer enough" if needed is not None and needed > left else None


def _no_gpu(typed: Typed) -> str | None:
    if typed.gpus.strip() == "none":
        return "no GPU was asked for"
    if kind_of(typed.engine).is_cluster:  # a cluster's nodes have GPUs, whatever this machine has
        return None
    probe = nvml.probe()
    return None if probe.usable else probe.why_none


def _possible(listed: Sequence[Experiment], typed: Typed, no_gpu: str | None) -> list[Experiment]:
    """Skip CPU against GPU if --gpus none was typed. If no GPU can be used for another reason, keep these experiments,
    and say once that they only measure the CPU."""
    both = [one for one in listed if not one.vary and not one.skip]
    if no_gpu and both and typed.gpus.strip() != "none":
        names = ", ".join(one.workload for one in both)
        console.say(f"{no_gpu}: for CPU against GPU ({names}) only the CPU is measured")
        return list(listed)
    return [replace(one, skip=no_gpu) if one in both else one for one in listed]


# -- beforehand -----------------------------------------------------------------------------------------------------


def pace(store: Store) -> expected.Pace:
    """Return how fast this machine is, as its newest runs show."""
    costs = {name: float(trainings.bundled(name).flops_per_example) for name in trainings.names()}
    return expected.pace(_seen(store), costs)


def estimates(
    listed: Sequence[Experiment], typed: Typed, repeat: int, at: expected.Pace, no_gpu: str | None
) -> dict[Experiment, float]:
    """Return, for each experiment that can run, how many seconds it will probably take."""
    known = {one.workload: trainings.bundled(one.workload) for one in listed if not one.skip}
    found = {}
    for one in listed:
        if one.skip:
            continue
        bundled = known[one.workload]
        steps = typed.steps or steps_of(bundled, one.vary)
        there = one.device or ("cpu" if no_gpu else "gpu")
        arms = [there] * (one.vary.count(",") + 1) if one.vary else ["cpu", *([] if no_gpu else ["gpu"])]
        sizes = batches_of(one.vary) or [bundled.batch] * len(arms)
        flops = [float(steps * size * bundled.flops_per_example) for size in sizes]
        found[one] = expected.seconds(expected.Work(one.workload, tuple(zip(arms, flops, strict=True)), repeat), at)
    return found


def _seen(store: Store) -> Iterator[Run]:
    here = os.uname().nodename
    for run_id in store.ids()[:_LOOKED_AT]:
        with contextlib.suppress(NgcdlError):
            run = store.load(run_id)
            if run.machine.hostname == here:
                yield run


def estimates_in_words(
    listed: Sequence[Experiment], seconds: dict[Experiment, float], minutes: float | None, is_measured: bool
) -> Iterator[str]:
    """Yield lines that say how long each experiment will probably take, and which of them fit into `minutes`. Unless
    `is_measured`, nothing has trained here yet, and an image, TensorFlow or CIFAR-10 may have to be fetched first."""
    if seconds:
        basis = "and earlier trainings here" if is_measured else "alone; what has to be fetched first comes on top"
        yield f"estimates, from the operation counts {basis}:"
    passed = 0.0
    for one in listed:
        if one in seconds:
            passed += seconds[one]
            late = minutes is not None and passed > minutes * 60
            fits = f"; {'not ' if late else ''}within the {minutes:g} min" if minutes is not None else ""
            yield f"  {one.title}: {duration(seconds[one])}{fits}"


# -- results, one and all -------------------------------------------------------------------------------------------


def _outcome(experiment: Experiment, typed: Typed, rounds: Rounds, is_first: bool) -> tuple[Outcome, int | None]:
    store = lookup.open_store()
    is_taken = typed.data == "synthetic" or trainings.bundled(experiment.workload).data == "cifar10"
    asked = replace(typed, train=experiment.workload, device=experiment.device, data=typed.data if is_taken else "auto")
    try:
        comparison, number = carried_out(asked, (), rounds)
    except NgcdlError as error:
        if isinstance(error, UsageError) and is_first:
            raise
        is_lacking = isinstance(error, NoGpu) and _is_of_cards(experiment.vary)  # too few cards are not a failure
        why = error.message.removesuffix(".")
        hint = written_out(error.hint, sys.argv[1:])
        return Outcome(experiment, skipped=why, refused=not is_lacking, hint=hint), None
    found = comparing.compared(comparison, store)
    told = {"id": comparison.id, **found.as_json()}
    is_late = rounds.until is not None and time.time() > rounds.until
    return Outcome(experiment, told, in_words.verdict(found), refused=is_failure(found, is_late)), number


def is_failure(found: Comparison, is_late: bool) -> bool:
    """Return whether a comparison failed. Running out of time is not a failure, but an error before that is."""
    by_time = is_late and all(refusal.why == TIME_IS_UP for refusal in found.refused)
    return bool(exit_code(found)) and not by_time


def _lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """Yield a line or more for each experiment that ran, and one for each reason why others did not."""
    for outcome in outcomes:
        if not outcome.comparison:
            continue
        yield f"{outcome.title}: {outcome.verdict}"
        yield f"  ngcdl compare --show {outcome.comparison['id']}"
        theirs = published(outcome.experiment.workload)
        if theirs and not outcome.experiment.vary:
            yield f"  published: {theirs.ratio:.2f} times, {theirs.gpu} against {theirs.cpu}; the spread is unknown"
    reasons = dict.fromkeys(outcome.skipped for outcome in outcomes if outcome.skipped)
    for reason in reasons:
        titles = [outcome.experiment.title for outcome in outcomes if outcome.skipped == reason]
        yield f"skipped, {reason}: {'; '.join(titles)}"
