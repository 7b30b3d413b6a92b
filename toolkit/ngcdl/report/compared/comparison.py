"""Runs compared round by round: what each arm reached, and how many times as fast it is as the first.

Pure: measured runs in, a Comparison out. Speeds in examples/s are compared; if commands of the user's own don't report
their speed, the durations of whole runs are, start-up included. A ratio has a spread or is not given at all: it is the
median of the ratios within each round, with their minimum and maximum, so that what slows the whole machine for a while
cancels out. A run that can't be compared is refused, naming the field, and its round yields no ratio.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import zip_longest
from math import ceil
from typing import Any

from ngcdl.frozen import dataclass
from ngcdl.record import Run
from ngcdl.report.compared.arm import Figures
from ngcdl.report.compared.pairs import Published, published
from ngcdl.report.compared.questions import Answer, answers
from ngcdl.report.compared.scaling import WEAK
from ngcdl.report.compared.unlike import Entry, MeasuredRun, Refusal, refusals
from ngcdl.report.measured import lines, naming
from ngcdl.report.measured.case import is_command
from ngcdl.report.measured.spread import Spread, middle
from ngcdl.report.measured.use import Use, use
from ngcdl.trainings import find

ONE_PAIR = "one pair, no spread"
# If the best and the worst round of an arm, which did the same work, differ by more than this factor, something
# disturbed the arm.
UNSTEADY = 1.25
# In a whole run shorter than this, start-up may be a good part of the duration: a framework alone needs up to 10 s.
SHORT_SECONDS = 60.0
# In a whole run shorter than this, there is little but start-up.
TINY_SECONDS = 5.0


@dataclass(frozen=True)
class Arm:
    """One value of the varied option. `rounds` has the arm's run of each round, None where there is none yet.

    `device` is what the arm was meant to compute on, None if that was left open."""

    name: str
    rounds: tuple[MeasuredRun | None, ...]
    device: str | None = None


@dataclass(frozen=True)
class Reached:
    """What one arm's accepted runs reached. `on` is the hardware; `runs` are the ids of all the arm's runs, `counted`
    is the number of accepted ones.

    `device` is what the runs computed on. Commands of the user's own rarely report that: for them `given` is cpu or
    gpu, and `use` says how much the cards were used."""

    name: str
    runs: tuple[str, ...]
    counted: int
    device: str | None
    on: str | None
    examples_per_second: Spread | None
    seconds_per_batch: Spread | None
    cpu_percent: float | None
    gpu_percent: float | None
    examples_per_joule: float | None
    latency_p50_seconds: Spread | None = None
    latency_p95_seconds: Spread | None = None
    run_seconds: Spread | None = None
    given: str | None = None
    use: Use | None = None

    @property
    def is_short(self) -> bool:
        """Whether durations are compared, so short that start-up may be a good part of them."""
        return self._takes_less(SHORT_SECONDS)

    @property
    def is_tiny(self) -> bool:
        """Whether durations are compared, so short that they are little but start-up."""
        return self._takes_less(TINY_SECONDS)

    def _takes_less(self, seconds: float) -> bool:
        took = None if self.examples_per_second else self.run_seconds
        return took is not None and took.median < seconds

    @property
    def apart_percent(self) -> float | None:
        """By how many percent the best round exceeds the worst, if the factor is above UNSTEADY; else None."""
        speed = self.examples_per_second or self.run_seconds
        if not speed or not speed.min or speed.max / speed.min <= UNSTEADY:
            return None
        return 100 * (speed.max / speed.min - 1)


@dataclass(frozen=True)
class Pair:
    """One round's runs of `arm` and of `against`, the first arm. `ratio` is None if a run is missing or refused;
    `refused` names the fields for which."""

    round: int
    arm: str
    against: str
    runs: tuple[str | None, str | None]
    ratio: float | None
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ratio:
    """How many times as fast `arm` is as `against`, over at least two rounds."""

    arm: str
    against: str
    times: Spread

    def as_json(self) -> dict[str, Any]:
        """{"arm", "against", "median", "min", "max", "pairs": the rounds, "told": whether they show a difference}"""
        figures = asdict(self.times)
        pairs = figures.pop("rounds")
        return {"arm": self.arm, "against": self.against, **figures, "pairs": pairs, "told": self.times.is_told}


@dataclass(frozen=True)
class Note:
    """Something to know about the runs: a line for each arm concerned, and advice on what to do."""

    lines: tuple[str, ...]
    advice: str = ""

    @property
    def text(self) -> str:
        return "\n".join([*self.lines, *(f"  {line}" for line in self.advice.splitlines())])


@dataclass(frozen=True)
class Comparison:
    vary: str
    workload: str | None
    arms: tuple[Reached, ...]
    pairs: tuple[Pair, ...]
    ratios: tuple[Ratio, ...]
    refused: tuple[Refusal, ...]
    answers: tuple[Answer, ...]
    notes: tuple[Note, ...]
    published: Published | None
    is_training: bool  # the speeds are a training's or an inference's: published figures may be shown beside them
    synthetic: str | None  # why the data is not real, None if it is
    scaling: str | None = None  # when varying nodes or GPUs: scaling.STRONG or WEAK
    is_command: bool = False  # the runs are of commands of the user's own
    by_duration: bool = False  # whole runs' durations are compared: not all commands reported a speed

    @property
    def ratio(self) -> Ratio | None:
        """The ratio of the last arm to the first: with two arms, the only one."""
        last = self.arms[-1].name if self.arms else None
        return next((ratio for ratio in self.ratios if ratio.arm == last), None)

    @property
    def diagnosis(self) -> tuple[str, ...]:
        return tuple(note.text for note in self.notes)

    def as_json(self) -> dict[str, Any]:
        theirs = self.published
        return {
            "vary": self.vary,
            "scaling": self.scaling,
            "workload": self.workload,
            "by": "run_seconds" if self.by_duration else "examples_per_second",
            "synthetic": self.synthetic is not None,
            "dataset_note": self.synthetic,
            "arms": [asdict(arm) for arm in self.arms],
            "pairs": [asdict(pair) for pair in self.pairs],
            "ratio": self.ratio.as_json() if self.ratio else None,
            "ratios": [ratio.as_json() for ratio in self.ratios],
            "spread": None if self.ratio else self.why_no_ratio(),
            "refused": [refusal.as_json() for refusal in self.refused],
            "diagnosis": [*(answer.text for answer in self.answers), *self.diagnosis],
            "published": {**asdict(theirs), "ratio": round(theirs.ratio, 2)} if theirs else None,
        }

    def why_no_ratio(self, arm: str | None = None) -> str | None:
        """Say why `arm`, by default the last arm, has no ratio; None with fewer than two arms."""
        if len(self.arms) < 2:
            return None
        its_own = [pair for pair in self.pairs if pair.arm == (arm or self.arms[-1].name)]
        if sum(1 for pair in its_own if pair.ratio is not None) == 1:
            return ONE_PAIR
        fields = dict.fromkeys(name for pair in its_own for name in pair.refused)
        return f"refused: {', '.join(fields)}" if fields else "no round is complete"


def comparison(arms: Sequence[Arm], vary: str, remarks: Sequence[str] = (), scaling: str | None = None) -> Comparison:
    """Compare the arms. `vary` names what differs between them on purpose: a key of unlike.BECAUSE_OF.

    `remarks` are sentences about these runs from elsewhere: they become the first notes. `scaling`, when varying nodes
    or GPUs, is scaling.STRONG or WEAK."""
    entries = [
        Entry(arm.name, number, measured, arm.device)
        for arm in arms
        for number, measured in enumerate(arm.rounds, 1)
        if measured
    ]
    runs = [entry.run for entry in entries]
    is_own = bool(runs) and all(map(is_command, runs))
    silent = [run for run in runs if run.status == "finished" and run.summary.examples_per_second is None]
    by_duration = is_own and bool(silent) and not any(run.kind.is_cluster for run in runs)
    refused = refusals(entries, vary, is_weak=scaling == WEAK, by_duration=by_duration)
    fields = _fields_of(refused)
    reached = tuple(_reached(arm, fields, by_duration) for arm in arms)
    pairs = tuple(_pairs(arms, fields, _took if by_duration else _speed))
    ratios = tuple(ratio for arm in arms[1:] if (ratio := _ratio(arm.name, arms[0].name, pairs)))
    workload = next((name for run in runs if (name := run.workload.get("name"))), None)
    is_training = not is_own and not any(naming.without_result(entry.run, entry.measured.start) for entry in entries)
    return Comparison(
        vary=vary,
        workload=workload,
        arms=reached,
        pairs=pairs,
        ratios=ratios,
        refused=refused,
        answers=() if by_duration else answers(vary, find(workload), [_figures(arm, fields) for arm in arms], scaling),
        notes=(
            *(Note(tuple(remark.splitlines())) for remark in remarks),
            *_findings(arms, fields),
            *(Note((doubt,)) for doubt in _doubts(reached, runs)),
        ),
        published=published(workload) if vary == "device" and is_training else None,  # only CPU against GPU
        is_training=is_training,
        synthetic=next((run.dataset_note or "as requested" for run in runs if run.is_synthetic), None),
        scaling=scaling,
        is_command=is_own,
        by_duration=by_duration,
    )


def _fields_of(refused: Sequence[Refusal]) -> Mapping[str, tuple[str, ...]]:
    """Return the fields for which each run is refused, by its id."""
    found: dict[str, tuple[str, ...]] = {}
    for one in refused:
        for run in one.runs:
            found[run] = (*found.get(run, ()), one.field)
    return found


def _reached(arm: Arm, refused: Mapping[str, Sequence[str]], by_duration: bool) -> Reached:
    runs = [one.run for one in arm.rounds if one]
    good = [run for run in runs if run.id not in refused]
    known = good or runs
    given = next((one for run in known if (one := naming.given(run))), None)
    return Reached(
        name=arm.name,
        runs=tuple(run.id for run in runs),
        counted=len(good),
        device=next((run.device for run in known if run.device), None),
        on=next((there for run in known if (there := naming.hardware(naming.with_assumed_device(run)))), None),
        examples_per_second=None if by_duration else Spread.of(_numbers(good, "examples_per_second")),
        seconds_per_batch=Spread.of(_numbers(good, "seconds_per_batch")),
        cpu_percent=middle(_numbers(good, "cpu_percent_mean")),
        gpu_percent=middle(_numbers(good, "gpu_percent_mean")),
        examples_per_joule=middle(_numbers(good, "examples_per_joule")),
        latency_p50_seconds=Spread.of(_numbers(good, "latency_p50_seconds")),
        latency_p95_seconds=Spread.of(_numbers(good, "latency_p95_seconds")),
        run_seconds=Spread.of([run.seconds for run in good if run.seconds is not None]),
        given=given,
        use=use(good) if given == "gpu" else None,
    )


def _figures(arm: Arm, refused: Mapping[str, Sequence[str]]) -> Figures:
    """Return what the arm's accepted runs reached, by round."""
    good = {at: one for at, one in enumerate(arm.rounds, 1) if one and one.run.id not in refused}
    found = {at: one.run.summary for at, one in good.items()}

    def measured(name: str) -> dict[int, float]:
        return {at: value for at, one in found.items() if (value := getattr(one, name))}

    def told(name: str) -> int | None:
        numbers = [lines.number(one.start.get(name)) for one in good.values()]
        return next((int(number) for number in numbers if number), None)

    return Figures(
        value=arm.name.partition("=")[2] or arm.name,
        rates=measured("examples_per_second"),
        seconds=measured("seconds_per_batch"),
        taught=measured("teacher_seconds_per_batch"),
        p50=measured("latency_p50_seconds"),
        p95=measured("latency_p95_seconds"),
        device=next((one.run.device for one in good.values()), None),
        examples=told("dataset_images"),
        cores=next((one.run.machine.physical_cores for one in good.values()), None),
        batch=told("batch"),
        replicas=told("replicas"),
    )


def _pairs(
    arms: Sequence[Arm], refused: Mapping[str, Sequence[str]], speed: Callable[[Run], float | None]
) -> Iterator[Pair]:
    for number, (base, *others) in enumerate(zip_longest(*(arm.rounds for arm in arms)), 1):
        for arm, other in zip(arms[1:], others, strict=True):
            if not (base or other):
                continue
            known = [one.run for one in (base, other) if one]
            fields = tuple(dict.fromkeys(name for run in known for name in refused.get(run.id, ())))
            ids = (base.run.id if base else None, other.run.id if other else None)
            slow, fast = map(speed, known) if len(known) == 2 and not fields else (None, None)
            yield Pair(number, arm.name, arms[0].name, ids, fast / slow if fast and slow else None, fields)


def _speed(run: Run) -> float | None:
    return run.summary.examples_per_second


def _took(run: Run) -> float | None:
    """Return the run's speed as runs per second, the inverse of its duration."""
    return 1 / run.seconds if run.seconds else None


def _ratio(arm: str, against: str, pairs: Sequence[Pair]) -> Ratio | None:
    ratios = [pair.ratio for pair in pairs if pair.arm == arm and pair.ratio is not None]
    times = Spread.of(ratios)
    return Ratio(arm, against, times) if times and times.rounds > 1 else None  # a ratio needs a spread


def _findings(arms: Sequence[Arm], refused: Mapping[str, Sequence[str]]) -> Iterator[Note]:
    """Yield what limited the arms according to their runs' records: per finding a line for each arm, and the advice."""
    told: dict[str, dict[str, str]] = {}
    advice: dict[str, str] = {}
    for arm in arms:
        for run in (one.run for one in arm.rounds if one and one.run.id not in refused):
            for finding in run.findings or ():
                told.setdefault(finding.rule, {}).setdefault(arm.name, finding.text)
                advice.setdefault(finding.rule, finding.advice or "")
    for rule, by_arm in told.items():
        yield Note(tuple(f"{arm}: {text}" for arm, text in by_arm.items()), advice[rule])


def _doubts(arms: Sequence[Reached], runs: Sequence[Run]) -> Iterator[str]:
    for arm in arms:
        if (percent := arm.apart_percent) is not None:
            why = (
                "short runs differ by their start-up" if arm.is_short else "as if something else had been running here"
            )
            yield f"{arm.name}: its rounds are {percent:.0f} % apart, {why}"
    told = {finding.rule for run in runs for finding in run.findings or ()}
    if "oversubscribed" not in told:  # runs too short to be sampled have no findings, but this needs none
        yield from dict.fromkeys(text for run in runs if (text := _too_many_threads(run)))
    may_compute_there = (run for run in runs if run.device == "gpu" or (run.device is None and is_command(run)))
    if any(run.summary.gpus and run.summary.shared_gpu is None for run in may_compute_there):
        yield "it is not known whether others computed on the GPU meanwhile"


def _too_many_threads(run: Run) -> str | None:
    threads, cores = run.workload.get("threads"), run.allowed_cores or run.machine.cores
    if not isinstance(threads, int) or not cores or threads <= ceil(cores):
        return None
    return f"{threads} threads on {cores:g} processors: more threads than processors usually cost speed"


def _numbers(runs: Sequence[Run], name: str) -> list[float]:
    return [value for run in runs if (value := getattr(run.summary, name)) is not None]
