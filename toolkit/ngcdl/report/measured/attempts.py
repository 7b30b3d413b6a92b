"""When each attempt of a run trained, what was sampled meanwhile, and how many examples it then took per second. Pure.

An attempt begins with a `start` event: a job that was queued again has several. A user's own script that reports none
has one.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import chain, compress, repeat
from math import inf, isnan, nan
from operator import and_, eq, le, sub
from statistics import median

from ngcdl.frozen import dataclass
from ngcdl.report.measured.lines import Numbers, number
from ngcdl.report.measured.taken import Taken

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
    _before: float = inf
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
        self.count += len(known)
        self.least, self.greatest = min(self.least, *known), max(self.greatest, *known)
        self._take(steps)

    def _take(self, steps: Iterable[tuple[float, float, float, float]]) -> None:
        held, examples, left, before, then = self.held, self.examples, self._left, self._before, self.last
        # what is unknown is NaN, which is neither more nor less than anything
        for t, step, rate, each in steps:
            passed, then = t - then, t
            if step > before and rate >= 0 and each > 0:
                seconds = each * float(step - before)  # an integer may be greater than any float
                left += passed if passed >= 0 else seconds  # the clock was set back
                seconds = seconds if seconds < left else left
                left -= seconds
                held += seconds
                examples += rate * seconds
                before = step
            else:
                left += passed if passed >= 0 else 0.0
                if step < before:  # the first step, another training, or the script began anew
                    before = step
        self.held, self.examples, self._left, self._before, self.last = held, examples, left, before, then


@dataclass(frozen=True)
class Stretch:
    """Samples of an uninterrupted time, by their rows, and how many seconds after its beginning each was taken; NaN:
    unknown. `set_forward`: the seconds by which the machine's clock was set forward meanwhile; less than 0: back."""

    rows: Sequence[int]
    seconds: array[float]
    are_full: bytes
    set_forward: float

    @cached_property
    def weights(self) -> array[float]:
        """For how many seconds the means of each full sample count: since the full sample before. The first one's count
        like the usual one's, or since the beginning if that is longer. 0 for a sample that is not full."""
        are_full = bytes(map(and_, self.are_full, map(eq, self.seconds, self.seconds)))
        times = array("d", compress(self.seconds, are_full))
        if not times:
            return array("d", [0.0]) * len(are_full)
        steps = array("d", map(sub, times[1:], times))
        if steps and min(steps) < 0:
            steps = array("d", map(max, steps, repeat(0.0)))
        weights = array("d", [max(times[0], median(steps) if steps else 0.0)]) + steps
        if all(are_full):
            return weights
        each = iter(weights)
        return array("d", [next(each) if is_full else 0.0 for is_full in are_full])


def merged(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the spans from the least to the greatest, as one where they overlap."""
    found: list[tuple[float, float]] = []
    for least, greatest in sorted(spans):
        if found and least <= found[-1][1]:
            least, before = found.pop()
            greatest = max(greatest, before)
        found.append((least, greatest))
    return found


def sampled(trained: Sequence[Attempt], taken: Taken) -> list[Stretch]:
    """Return the samples between the first and the last logged step of each attempt that has any. Attempts that
    overlap, because the clock was set back between them, have a stretch together."""
    spans = merged((one.least, one.greatest) for one in trained)
    begins = [least for least, _ in spans]
    began = {bisect_right(begins, one.first) - 1: one.first for one in reversed(trained)}
    times = taken.figures["t"].at(taken.rows)
    found: list[Sequence[int]]
    if all(map(le, times, chain(times[1:], (inf,)))):  # the last one is not unknown either
        found = [range(bisect_left(times, least), bisect_right(times, greatest)) for least, greatest in spans]
    else:  # the clock was set back, or some times are unknown
        of_each = [array("q") for _ in spans]
        for row, t in enumerate(times):
            if t == t and (at := bisect_right(begins, t) - 1) >= 0 and t <= spans[at][1]:
                of_each[at].append(row)
        found = [*of_each]
    return [stretch(taken, some, began[at]) for at, some in enumerate(found) if some]


def joined(stretches: Sequence[Stretch]) -> Sequence[int]:
    """Return the rows of all of them."""
    return stretches[0].rows if len(stretches) == 1 else array("q", chain.from_iterable(one.rows for one in stretches))


def stretch(taken: Taken, rows: Sequence[int], began: float | None = None) -> Stretch:
    """Say when each sample was taken, from `began` on (s since the epoch; None: from the first sample on).

    By the sampler's own clock, as the machine's may be set meanwhile; by the machine's where the other isn't told, or
    began anew with another sampler."""
    seconds = array("d")
    at, then, own_then = 0.0, nan if began is None else began, nan
    first: tuple[float, float] | None = None
    last = 0.0, 0.0
    for t, own in zip(*(possible(taken.figures[name].at(rows)) for name in ("t", "seconds")), strict=True):
        if t != t:
            seconds.append(nan)
            continue
        if own > own_then:  # both are known
            at += own - own_then
        elif then == then:
            at += t - then
        seconds.append(at)
        then, own_then = t, own
        last = t, at
        first = first or last
    set_forward = (last[0] - first[0]) - (last[1] - first[1]) if first else 0.0
    return Stretch(rows, seconds, taken.are_full(rows), set_forward)


def possible(values: Numbers) -> Numbers:
    """Return `values` with NaN in place of what is impossible."""
    if not values or (min(values) >= 0 and max(values) < MOST and not isnan(sum(values))):
        return values
    found = values[:0]
    found.extend(value if 0 <= value < MOST else nan for value in values)
    return found


def examples_per_second(trained: Iterable[Attempt], stretches: Iterable[Stretch]) -> float | None:
    """Return the mean rate from the first to the last logged step of each attempt, with all pauses between them; None
    if no step tells its rate and its seconds per batch.

    It is never more than the greatest rate that was reported, whatever the clocks say."""
    wall, held, examples = -sum(one.set_forward for one in stretches), 0.0, 0.0
    for attempt in trained:
        wall += attempt.last - attempt.first if attempt.held else 0.0
        held, examples = held + attempt.held, examples + attempt.examples
    return number(examples / max(wall, held)) if held else None
