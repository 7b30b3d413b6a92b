"""The answer to an experiment's question, in a sentence: rules over its arms' figures, with their thresholds. Pure.

A figure derived from several arms is computed within each round and reported as the median over the rounds, with their
minimum and maximum. A single round yields no such figure; if the rounds disagree, the answer says that. An arm without
figures (its runs were refused) removes only the sentences that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from ngcdl.figures import measured
from ngcdl.frozen import dataclass
from ngcdl.report.compared.arm import Figures, counted, faster
from ngcdl.report.compared.beside import feed, teacher
from ngcdl.report.compared.fit import fitted
from ngcdl.report.compared.scaling import UNITS, scaled
from ngcdl.report.measured.spread import Spread, duration, percent, times
from ngcdl.trainings import Bundled


@dataclass(frozen=True)
class Answer:
    """`is_whole`: the text says all that sentences about the ratios would say, and replaces them."""

    text: str
    is_whole: bool = True


def answers(
    vary: str, known: Bundled | None, arms: Sequence[Figures], scaling: str | None = None
) -> tuple[Answer, ...]:
    """Answer the question posed by varying `vary`, as far as these arms allow; () if there is no answer.

    `known` is the bundled workload, None for any other; `scaling`, when varying nodes or GPUs, is scaling.STRONG or
    WEAK."""
    measured = [arm for arm in arms if arm.rates]
    whole = known.whole if known else None
    rule = partial(_batch_of, whole) if whole and vary == "batch" else _RULES.get(vary)
    told = [Answer(text) for text in rule(measured)] if rule else []
    told += [Answer(text) for text in scaled(measured, vary, scaling)] if vary in UNITS else []
    if known and whole and measured:
        told.append(Answer(_whole(vary, known.unit, measured), is_whole=False))
    return tuple(told)


# -- batch ----------------------------------------------------------------------------------------------------------


def _batch(arms: Sequence[Figures], whole: str = "An epoch") -> Iterator[str]:
    arms = sorted(arms, key=lambda arm: arm.number)
    if len(arms) < 2:
        return
    rounds = set.intersection(*(set(arm.seconds) for arm in arms))
    line = fitted([arm.number for arm in arms], [[arm.seconds[at] for arm in arms] for at in rounds])
    if line:
        yield (
            f"A step costs {duration(line.step)} whatever its batch, plus {duration(line.example)} per example: "
            f"a batch of {arms[0].value} spends {percent(line.share)} of its time on the former."
        )
    ratio = faster(arms[-1], arms[0])
    if ratio:
        yield _wholes(arms[0], arms[-1], ratio, whole)
    best = max(arms, key=lambda arm: arm.rate)
    more = faster(best, arms[-1])
    if best is not arms[0] and more and more.is_told:
        fastest = f"The fastest is a batch of {best.value}{_tied(best, arms)}"
        yield f"{fastest}: {times(more)} the work of batches of {arms[-1].value}."


def _batch_of(whole: str, arms: Sequence[Figures]) -> Iterator[str]:
    return _batch([replace(arm, examples=None) for arm in arms], f"The {whole}")  # _whole reports all arms' seconds


def _wholes(small: Figures, large: Figures, ratio: Spread, whole: str) -> str:
    if not ratio.is_told:
        return f"No measurable difference between batches of {small.value} and of {large.value}: {times(ratio)}."
    slow, fast = (small, large) if ratio.min > 1 else (large, small)
    share = faster(fast, slow) or ratio
    text = f"{whole} takes {times(share)} as long with batches of {slow.value} as with batches of {fast.value}"
    here, there = slow.whole, fast.whole
    if here and there:
        text += f": {duration(here)} and {duration(there)} for {slow.examples:,} examples"
    return f"{text}."


# -- threads, precision ---------------------------------------------------------------------------------------------


def _threads(arms: Sequence[Figures]) -> Iterator[str]:
    arms = sorted(arms, key=lambda arm: arm.number)
    if len(arms) < 2:
        return
    best = max(arms, key=lambda arm: arm.rate)
    gain = faster(best, arms[0])
    losses = [(arm, loss) for arm in arms[arms.index(best) + 1 :] if (loss := faster(arm, best)) and loss.is_told]
    fastest = f"Fastest with {counted(best.value, 'thread')}{_tied(best, arms)}"
    if gain and gain.is_told:
        yield f"{fastest}: {times(gain)} the work of {counted(arms[0].value, 'thread')}."
    elif losses:
        yield f"{fastest}."
    taught = [(arm, spread) for arm in arms if (spread := Spread.of([*arm.taught.values()]))]
    if taught:
        each = "; ".join(f"{duration(spread)} with {counted(arm.value, 'thread')}" for arm, spread in taught)
        yield f"Per batch the teacher takes {each}."
    for arm, loss in losses:
        cores = arm.cores
        is_beyond = cores is not None and best.number <= cores < arm.number
        why = f": more threads than the {cores} physical cores hurt" if is_beyond else ""
        yield f"{counted(arm.value, 'thread')} do {times(loss)} the work of {best.value}{why}."


def _tied(best: Figures, arms: Sequence[Figures]) -> str:
    """Name the arms not measurably different from the best one: among equals, chance picks the best."""
    even = [arm.value for arm in arms if arm is not best and (ratio := faster(best, arm)) and not ratio.is_told]
    return f" (not measurably faster than {' or '.join(even)})" if even else ""


def _precision(arms: Sequence[Figures]) -> Iterator[str]:
    for arm in arms[1:]:
        ratio = faster(arm, arms[0])
        if not ratio:
            continue
        speed = f"{times(ratio)} the speed of {arms[0].value}"
        if ratio.is_told:
            yield f"{arm.value} is {'faster:' if ratio.min > 1 else 'slower:'} {speed}."
        else:
            yield f"{arm.value} makes no measurable difference: {speed}."


# -- all examples, such as a film -----------------------------------------------------------------------------------


def _whole(vary: str, unit: str, arms: Sequence[Figures]) -> str:
    """State how long all examples take (the question is about that, not a rate), and a batch's latency if measured."""
    words, waits = [], []
    for arm in arms:
        rate = arm.rate
        seconds = arm.whole
        name = arm.value.upper() if vary == "device" else f"{vary} {arm.value}"
        p50, p95 = (Spread.of([*latency.values()]) for latency in (arm.p50, arm.p95))
        waits += [f"{name} p50 {duration(p50)}, p95 {duration(p95)}"] if p50 and p95 else []
        took = f"{duration(seconds)}, " if seconds else ""
        words.append(f"{name} {took}{measured(rate)} a second")
    known = next((arm.examples for arm in arms if arm.examples), None)
    waited = f" From requesting a batch to its result: {'; '.join(waits)}." if waits else ""
    return f"{f'{known:,} {unit}' if known else unit.capitalize()}: {'; '.join(words)}.{waited}"


_RULES: Mapping[str, Callable[[Sequence[Figures]], Iterator[str]]] = {
    "batch": _batch,
    "feed": feed,
    "teacher": teacher,
    "threads": _threads,
    "precision": _precision,
}
