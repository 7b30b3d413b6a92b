"""What more nodes or GPUs buy: the speedup, and the scaling efficiency.

Strong scaling: the global batch stays the same, so each replica gets less of it. Weak scaling: each replica keeps its
batch. A command of the user's own divides its work as it likes. The efficiency is R_N / (N R_1) with R in examples/s.
Rules with their thresholds, pure; questions.py says what is reported and what is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ngcdl.report.compared.arm import Figures, counted, faster
from ngcdl.report.compared.fit import fitted
from ngcdl.report.measured.spread import Spread, duration, figure, percent, times

STRONG, WEAK, OWN = "strong", "weak", "own"
# What is varied, and the name of one unit.
UNITS: Mapping[str, str] = {"gpus": "GPU", "nodes": "node"}


def scaled(arms: Sequence[Figures], vary: str, scaling: str | None) -> Iterator[str]:
    """Say what varying `vary`, one of UNITS, buys. `scaling` None: an older comparison, which kept one global batch."""
    arms = sorted((arm for arm in arms if arm.number), key=lambda arm: arm.number)
    told = [text for arm in arms[1:] if (text := _than(arm, arms[0], UNITS[vary]))]
    if told:
        text = f"{'' if scaling == OWN else _named(arms[0], scaling == WEAK)}{'; '.join(told)}."
        yield text[0].upper() + text[1:]
    if told and scaling not in (WEAK, OWN):
        yield from _kept_cost(arms, UNITS[vary])


def _named(first: Figures, is_weak: bool) -> str:
    if not is_weak:
        return "Strong scaling" + (f", a batch of {first.batch} in all: " if first.batch else ": ")
    each = first.batch // first.replicas if first.batch and first.replicas else None
    return "Weak scaling" + (f", a batch of {each} per replica: " if each else ": ")


def _than(arm: Figures, first: Figures, unit: str) -> str | None:
    ratio = faster(arm, first)
    if not ratio:
        return None
    more = arm.number / first.number
    share = Spread(ratio.median / more, ratio.min / more, ratio.max / more)
    if not ratio.is_told:
        even = f"no measurable difference between {counted(arm.value, unit)} and {first.value}"
        return f"{even}: {times(ratio)}, an efficiency of {percent(share)}"
    return (
        f"{counted(arm.value, unit)} do {figure(Spread.of(list(arm.rates.values())))} examples/s, {times(ratio)} the "
        f"work of {counted(first.value, unit)}, an efficiency of {percent(share)}"
    )


def _kept_cost(arms: Sequence[Figures], unit: str) -> Iterator[str]:
    """Report the part of a step that does not shrink as more units share it, if a line through three or more arms
    fits."""
    arms = sorted(arms, key=lambda arm: -arm.number)
    rounds = set.intersection(*(set(arm.seconds) for arm in arms))
    line = fitted([1 / arm.number for arm in arms], [[arm.seconds[at] for arm in arms] for at in rounds])
    if line:
        yield (
            f"Of each step, {duration(line.step)} stays however many share it: {percent(line.share)} of a step on "
            f"{counted(arms[0].value, unit)}."
        )
