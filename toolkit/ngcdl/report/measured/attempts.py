"""When each attempt of a run trained, what was sampled meanwhile, and how many examples it then took per second. Pure.

An attempt begins with a `start` event: a job that was queued again has several. A user's own script that reports none
has one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import compress, pairwise
from math import nan
from statistics import median

from ngcdl.report.measured.lines import Line, column, number

_OF_A_STEP = ("step", "examples_per_second", "seconds_per_batch")
MOST = 1e12  # s since the epoch, W, J: a larger value is invalid, and its products could overflow to infinity


@dataclass(frozen=True)
class Attempt:
    """The logged steps of an attempt that have a time, and their times. It trained from the least to the greatest of
    them, which may not be the first and the last: the clock may have been set back meanwhile."""

    steps: Sequence[Line]
    times: Sequence[float]


@dataclass(frozen=True)
class Stretch:
    """Samples of an uninterrupted time, and how many seconds after its beginning each was taken; None: unknown."""

    samples: Sequence[Line]
    seconds: Sequence[float | None]

    @property
    def weights(self) -> list[float]:
        """For how many seconds the means of each full sample count: since the full sample before. The first one's count
        like the usual one's, or since the beginning if that is longer. 0 for a sample that is not full."""
        are_full = [
            at is not None and "host_cpu_percent" in one for one, at in zip(self.samples, self.seconds, strict=True)
        ]
        times = [at for at in compress(self.seconds, are_full) if at is not None]
        steps = [max(later - earlier, 0.0) for earlier, later in pairwise(times)]
        each = iter([max(times[0], median(steps) if steps else 0.0), *steps] if times else [])
        return [next(each) if is_full else 0.0 for is_full in are_full]

    @property
    def set_forward(self) -> float:
        """The seconds by which the machine's clock was set forward meanwhile; less than 0: it was set back."""
        timed = [(one["t"], at) for one, at in zip(self.samples, self.seconds, strict=True) if at is not None]
        return (timed[-1][0] - timed[0][0]) - (timed[-1][1] - timed[0][1]) if timed else 0.0


def attempts(events: Sequence[Line]) -> list[Attempt]:
    """Return the attempts with two or more logged steps: one step alone doesn't show for how long it trained."""
    starts = [at for at, event in enumerate(events) if event.get("event") == "start"]
    found = []
    for at, to in pairwise([0, *starts, len(events)]):
        steps = [one for one in events[at:to] if one.get("event") == "step" and number(one.get("t")) is not None]
        if len(steps) > 1:
            found.append(Attempt(steps, [step["t"] for step in steps]))
    return found


def merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the spans from the least to the greatest, as one where they overlap."""
    found: list[tuple[float, float]] = []
    for least, greatest in sorted(spans):
        if found and least <= found[-1][1]:
            least, before = found.pop()
            greatest = max(greatest, before)
        found.append((least, greatest))
    return found


def sampled(trained: Sequence[Attempt], samples: Iterable[Line]) -> list[Stretch]:
    """Return the samples between the first and the last logged step of each attempt that has any. Attempts that
    overlap, because the clock was set back between them, have a stretch together."""
    spans = merged((min(one.times), max(one.times)) for one in trained)
    begins = [least for least, _ in spans]
    began = {bisect_right(begins, one.times[0]) - 1: one.times[0] for one in reversed(trained)}
    found: list[list[Line]] = [[] for _ in spans]
    for sample in samples:
        t = number(sample.get("t"))
        if t is not None and (at := bisect_right(begins, t) - 1) >= 0 and t <= spans[at][1]:
            found[at].append(sample)
    return [stretch(some, began[at]) for at, some in enumerate(found) if some]


def stretch(samples: Sequence[Line], began: float | None = None) -> Stretch:
    """Say when each sample was taken, from `began` on (s since the epoch; None: from the first sample on).

    By the sampler's own clock, as the machine's may be set meanwhile; by the machine's where the other isn't told, or
    began anew with another sampler."""
    seconds: list[float | None] = []
    at, then, own_then = 0.0, began, None
    for sample in samples:
        t, own = possible(sample.get("t")), possible(sample.get("seconds"))
        if t is None:
            seconds.append(None)
            continue
        if own is not None and own_then is not None and own > own_then:
            at += own - own_then
        elif then is not None:
            at += t - then
        seconds.append(at)
        then, own_then = t, own
    return Stretch(samples, seconds)


def possible(value: object) -> float | None:
    figure = number(value)
    return figure if figure is not None and 0 <= figure < MOST else None


def examples_per_second(trained: Iterable[Attempt], stretches: Iterable[Stretch]) -> float | None:
    """Return the mean rate from the first to the last logged step of each attempt, with all pauses between them; None
    if no step tells its rate and its seconds per batch.

    It is never more than the greatest rate that was reported, whatever the clocks say."""
    wall, held, examples = -sum(one.set_forward for one in stretches), 0.0, 0.0
    try:
        for attempt in trained:
            seconds, count = _trained(attempt)
            wall += attempt.times[-1] - attempt.times[0] if seconds else 0.0
            held, examples = held + seconds, examples + count
    except OverflowError:  # numbers that no training reports
        return None
    return number(examples / max(wall, held)) if held else None


def _trained(attempt: Attempt) -> tuple[float, float]:
    """Return in how many seconds an attempt took how many examples, by what its steps report.

    A rate is that of the steps since the one reported before, and holds for their seconds, without what else the script
    did meanwhile; but for no longer than the time since the attempt's first step that other steps have left: cifar10-94
    reports a training's steps when it is over."""
    # the first step's figures are of its start-up
    numbers, rates, seconds_each = (column([step.get(name) for step in attempt.steps[1:]]) for name in _OF_A_STEP)
    held, examples, left, then = 0.0, 0.0, 0.0, attempt.times[0]
    before = next((n for step in attempt.steps if (n := number(step.get("step"))) is not None), nan)
    # what is unknown is NaN, which is neither more nor less than anything
    for t, step, rate, each in zip(attempt.times[1:], numbers, rates, seconds_each, strict=True):
        passed, then = t - then, t
        if step > before and rate >= 0 and each > 0:
            seconds = each * (step - before)
            left += passed if passed >= 0 else seconds  # the clock was set back
            seconds = seconds if seconds < left else left
            left -= seconds
            held += seconds
            examples += rate * seconds
            before = step
        else:
            left += passed if passed >= 0 else 0.0
            if step < before:  # another training, or the script began anew
                before = step
    return held, examples
