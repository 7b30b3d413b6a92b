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

from ngcdl.report.measured.lines import Line, number

MOST = 1e12  # s since the epoch, W, J: a larger value is invalid, and its products could overflow to infinity


@dataclass
class Attempt:
    """The logged steps of an attempt that have a time, read a few at a time. It trained from the least to the greatest
    of their times, which may not be the first and the last: the clock may have been set back meanwhile.

    By what its steps report, it took `examples` in `held` seconds. A rate is that of the steps since the one reported
    before, and holds for their seconds, without what else the script did meanwhile; but for no longer than the time
    since the attempt's first step that other steps have left: cifar10-94 reports a training's steps when it is over.
    """

    count: int = 0
    first: float = nan
    last: float = nan
    least: float = nan
    greatest: float = nan
    held: float = 0.0
    examples: float = 0.0
    is_beyond: bool = False  # by numbers that no training reports
    _before: float = nan
    _left: float = 0.0

    def add(
        self, times: Sequence[float], numbers: Sequence[float], rates: Sequence[float], seconds_each: Sequence[float]
    ) -> None:
        """Add steps by their times, numbers, rates and seconds per batch. What is unknown is NaN."""
        steps = [step for step in zip(times, numbers, rates, seconds_each, strict=True) if step[0] == step[0]]
        if not steps:
            return
        known = [step[0] for step in steps]
        if not self.count:
            self.first = self.last = self.least = self.greatest = known[0]
            self._before = steps[0][1]
            del steps[0]  # its figures are of the start-up
        self.count += len(known)
        self.least, self.greatest = min(self.least, *known), max(self.greatest, *known)
        try:
            self._take(steps)
        except OverflowError:
            self.is_beyond = True

    def _take(self, steps: Iterable[tuple[float, float, float, float]]) -> None:
        held, examples, left, before, then = self.held, self.examples, self._left, self._before, self.last
        # what is unknown is NaN, which is neither more nor less than anything
        for t, step, rate, each in steps:
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
                if step < before or before != before:  # another training, or the script began anew
                    before = step
        self.held, self.examples, self._left, self._before, self.last = held, examples, left, before, then


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
    spans = merged((one.least, one.greatest) for one in trained)
    begins = [least for least, _ in spans]
    began = {bisect_right(begins, one.first) - 1: one.first for one in reversed(trained)}
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
    for attempt in trained:
        if attempt.is_beyond:
            return None
        wall += attempt.last - attempt.first if attempt.held else 0.0
        held, examples = held + attempt.held, examples + attempt.examples
    return number(examples / max(wall, held)) if held else None
