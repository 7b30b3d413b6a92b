"""`ngcdl suite`: the published experiments as comparisons on this machine, as far as a budget of time goes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ngcdl import compare as comparing
from ngcdl import console, plan, settings
from ngcdl.cli.compare import carried_out, exit_code
from ngcdl.cli.typed import Typed
from ngcdl.errors import BadOption, NgcdlError, UsageError, signal_exit_code
from ngcdl.report import compared
from ngcdl.report.pairs import published
from ngcdl.store import Store
from ngcdl.telemetry import gpu as nvml

# The first three were measured on a CPU and on a GPU by others: report/pairs.csv. The others were asked or told.
_SEEDS = (
    *("cifar10", "cifar10-keras", "catdog", "smoke"),
    *("batch-sweep", "resident", "scaling", "distill", "inference", "input-pipeline"),
)
_TABLE7 = ("fcn-s", "alexnet-s", "resnet-50", "fcn-r", "alexnet-r", "resnet-56", "lstm")
SUITES = ("seeds", "table7")
_UNKNOWN = "this ngcdl has no such workload"


@dataclass(frozen=True)
class Experiment:
    """One comparison. `vary` None: CPU against GPU. `skip`: why this machine can't have it."""

    workload: str
    vary: str | None = None
    skip: str | None = None

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

    def as_json(self) -> dict[str, Any]:
        of = self.experiment
        about = {"experiment": of.title, "workload": of.workload, "vary": of.vary, "skipped": self.skipped}
        return {**about, "verdict": self.verdict, "comparison": self.comparison}


def experiments(name: str, processors: int, no_gpu: str | None) -> list[Experiment]:
    """List a suite for a machine: also what it can't have, with the reason. `no_gpu` says why no GPU can be used, None
    where one can. Raises BadOption."""
    if name not in SUITES:
        raise BadOption(f"suite {name}: there is {' and '.join(SUITES)}.", "    ngcdl suite seeds")
    known = plan.workloads()
    if name == "seeds":
        return [Experiment(one, skip=None if one in known else _UNKNOWN) for one in _SEEDS]
    threads = [str(2**n) for n in range(8) if 2**n <= processors]
    sweep = f"threads={','.join(threads)}"
    one_core = "this machine has one processor" if len(threads) < 2 else None
    found = [Experiment(one, sweep, one_core) for one in _TABLE7] + [Experiment(one, None, no_gpu) for one in _TABLE7]
    return [one if one.workload in known else replace(one, skip=_UNKNOWN) for one in found]


def suite(name: str, typed: Typed, repeat: int, minutes: float | None) -> int:
    """Run one experiment after the other and give the exit code. What is left when the time is up is said."""
    if minutes is not None and not minutes > 0:
        raise BadOption("--budget is a number of minutes above 0.")
    until = None if minutes is None else time.time() + minutes * 60
    listed = experiments(name, os.cpu_count() or 1, _no_gpu(typed))
    outcomes, number = [], None
    for at, experiment in enumerate(listed, 1):
        skip = "stopped" if number else experiment.skip
        if until is not None and time.time() > until:
            skip = skip or f"the budget of {minutes:g} min was used up"
        if skip:
            outcomes.append(Outcome(experiment, skipped=skip))
        else:
            console.say(f"{at} of {len(listed)}: {experiment.title}")
            outcome, number = _outcome(experiment, typed, repeat, until)
            outcomes.append(outcome)
            console.say(f"{experiment.title}: {outcome.verdict or f'skipped, {outcome.skipped}'}")
    if typed.json:
        console.result_json([outcome.as_json() for outcome in outcomes])
    else:
        for line in _lines(outcomes):
            console.result(console.wrapped(console.plain(line), sys.stdout))
    return signal_exit_code(number) if number else int(any(outcome.refused for outcome in outcomes))


def _no_gpu(typed: Typed) -> str | None:
    if typed.gpus.strip() == "none":
        return "no GPU was asked for"
    return None if nvml.probe().cards else "this machine has no NVIDIA GPU"


def _outcome(experiment: Experiment, typed: Typed, repeat: int, until: float | None) -> tuple[Outcome, int | None]:
    shelf = Store(settings.load().runs)
    device = "cpu" if experiment.vary else None  # more threads are the processor's
    try:
        asked = replace(typed, train=experiment.workload, device=device)
        kept, number = carried_out(asked, (), experiment.vary, repeat, until)
    except UsageError:
        raise
    except NgcdlError as error:
        return Outcome(experiment, skipped=error.message, refused=True), None
    found = comparing.compared(kept, shelf)
    told = {"id": kept.id, **found.as_json()}
    return Outcome(experiment, told, compared.verdict(found), refused=bool(exit_code(found))), number


def _lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    for outcome in outcomes:
        yield f"{outcome.experiment.title}: {outcome.verdict or f'skipped, {outcome.skipped}'}"
        if outcome.comparison:
            synthetic = ", on SYNTHETIC data" if outcome.comparison["synthetic"] else ""
            yield f"  ngcdl compare --show {outcome.comparison['id']}{synthetic}"
        theirs = published(outcome.experiment.workload)
        if theirs and not outcome.experiment.vary:
            yield f"  published: {theirs.ratio:.2f} times, {theirs.gpu} against {theirs.cpu}; no spread is known"
