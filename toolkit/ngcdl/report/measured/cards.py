"""What the cards did during a training: utilization, memory, power, energy, clocks, and other users. Pure."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from operator import and_, eq, or_
from typing import Any

from ngcdl.record import ACTIVITY, GpuSummary, Summary
from ngcdl.report.measured import energy
from ngcdl.report.measured.attempts import Stretch, joined, possible
from ngcdl.report.measured.case import computed_on, is_idle
from ngcdl.report.measured.lines import Line, Numbers, known_values, mean, most, number, only, weighted
from ngcdl.report.measured.taken import Name, Reasons, Taken, TakenCard

# At a sample that can't tell, others may have computed. A few samples never can, because a process ends while it is
# looked up.
TOLD_SHARE = 0.9
# Each card takes the work of one in all samples. Of many cards, those in fewer than one of so many samples don't count:
# they were lost soon, or a run made them up.
_MANY, _SELDOM = 64, 16
_MEANS = ("gpu_percent_mean", *(f"{name}_mean" for name in ACTIVITY))


class Card:
    """One card at the samples that are examined: `at` has the row of its reading at each, -1 if there is none."""

    def __init__(self, taken: TakenCard, at: Sequence[int]) -> None:
        self._taken, self._at = taken, at
        self._rows = at if isinstance(at, range) else array("q", (row for row in at if row >= 0))

    @property
    def name(self) -> Name:
        return self._taken.name(self._rows[0])

    @property
    def first(self) -> tuple[int, int]:
        """The place of its first sample, and its own place there."""
        row = self._rows[0]
        return self._at.index(row), self._taken.places[row]

    @property
    def reasons(self) -> list[Reasons | None]:
        """For each sample the reasons that held the clocks down, None if they are unknown."""
        found = self._taken.reasons.at(self._rows)
        return [*found] if self._rows is self._at else [None if row < 0 else next(found) for row in self._at]

    def numbers(self, name: str) -> Sequence[float]:
        return self._taken.figures[name].floats(self._rows)

    def figures(self, name: str) -> Numbers:
        """Return the figure of each sample, NaN if it is unknown."""
        return self._taken.figures[name].at(self._at)

    def is_due(self, name: str) -> bytes:
        """Return for each sample whether it lacks the card, or tells this figure of it, were it as null."""
        are_told = self._taken.figures[name].are_told(self._at)
        lacking = b"" if self._rows is self._at else bytes(row < 0 for row in self._at)
        return bytes(map(or_, are_told, lacking)) if lacking else are_told


def with_cards(
    so_far: Summary,
    taken: Taken,
    stretches: Sequence[Stretch],
    start: Line,
    is_timed: bool,
    rate: Callable[[], float | None],
) -> Summary:
    """Return `so_far` with what the samples say about the cards. `start` is a training's start event, {} for a command;
    `is_timed`: the samples cover exactly the time whose energy is asked for, at a mean `rate` of examples per second.

    Energy, clock and throttling are those of the cards that a training computed on. All figures are those of the cards
    that the run's processes were seen on, if that is known: the others may be computing for somebody else."""
    cards = _cards(taken, joined(stretches))
    weights = array("d", chain.from_iterable(one.weights for one in stretches))
    energies = [_energy(card, stretches) if is_timed else None for card in cards]
    reasons = [card.reasons for card in cards]
    gpus = tuple(_summary(*each, weights) for each in zip(cards, energies, reasons, strict=True))
    own = [card.numbers("own_processes") for card in cards]
    if any(map(any, own)):
        are_used = [any(counts) if counts else None for counts in own]
        gpus = tuple(replace(gpu, is_used=is_used) for gpu, is_used in zip(gpus, are_used, strict=True))
    its = _its(gpus, start, is_told=any(own))
    are_alike = len({gpus[at].name for at in its}) < 2
    used = [gpu for gpu in gpus if gpu.is_used is not False]
    means: Any = {name: mean(known_values(getattr(gpu, name) for gpu in used)) for name in _MEANS}
    summed = replace(
        so_far,
        gpus=gpus,
        gpu_memory_bytes_max=most(known_values(gpu.memory_bytes_max for gpu in used)),
        **means,
        # of unlike cards a mean would be a clock that none of them had
        sm_mhz_mean=mean(known_values(gpus[at].sm_mhz_mean for at in its)) if are_alike else None,
        throttled_share=_throttled_share([reasons[at] for at in its]),
        shared_gpu=_is_shared([cards[at] for at in _looked_at(gpus, its, start, is_told=any(own))]),
    )
    return _with_energy(summed, [energies[at] for at in its], None if start.get("device") == "cpu" else rate)


def _its(gpus: Sequence[GpuSummary], start: Line, is_told: bool) -> list[int]:
    """Return the places in `gpus` of the cards that a run computed on, of all cards if that is not known. A command
    that was given several cards computed on none if its processes were looked for (`is_told`) and seen on none of them,
    and may have computed on none if one was idle."""
    if start:
        its = computed_on(gpus, start)
        some = its or [gpu for gpu in gpus if gpu.is_used is not False]
        return [at for at, gpu in enumerate(gpus) if any(gpu is one for one in some)]
    if len(gpus) > 1 and not any(gpu.is_used for gpu in gpus) and (is_told or any(map(is_idle, gpus))):
        return []
    return [at for at, gpu in enumerate(gpus) if gpu.is_used is not False]


def _looked_at(gpus: Sequence[GpuSummary], its: Sequence[int], start: Line, is_told: bool) -> Sequence[int]:
    """Return the places of the cards that others may have shared with a run: of a command that was seen on none, all of
    them, as others are what keeps them busy."""
    if start or (is_told and not its):
        return [at for at, gpu in enumerate(gpus) if gpu.is_used is not False]
    return its


def _cards(taken: Taken, rows: Sequence[int]) -> list[Card]:
    """Return the cards that these samples have, in the order in which they appear."""
    found = []
    for card in taken.cards.values():
        if len(taken.cards) > _MANY and _SELDOM * len(card.rows) < taken.size:
            continue
        at = rows
        if len(card.rows) < taken.size:
            readings = array("q", [-1]) * taken.size
            for reading, sample in enumerate(card.rows):
                readings[sample] = reading
            at = array("q", map(readings.__getitem__, rows))
        if max(at, default=-1) >= 0:
            found.append(Card(card, at))
    return sorted(found, key=lambda card: card.first)


def _summary(
    card: Card, used: energy.Energy | None, reasons: Sequence[Reasons | None], weights: array[float]
) -> GpuSummary:
    index, card_index, uuid, name, node = card.name
    activity: Any = {f"{name}_mean": weighted(card.figures(name), weights) for name in ACTIVITY}
    return GpuSummary(
        index=None if index is None else int(index),
        card_index=None if card_index is None else int(card_index),
        uuid=uuid,
        name=name,
        node=node,
        gpu_percent_mean=mean(card.numbers("gpu_percent")),
        memory_bytes_max=most(card.numbers("memory_used_bytes")),
        watts_mean=mean(card.numbers("watts")),
        joules=used.joules if used else None,
        energy_from=used.source if used else None,
        sm_mhz_mean=mean(card.numbers("sm_mhz")),
        throttled_share=_throttled_share([reasons]),
        **activity,
    )


def _energy(card: Card, stretches: Sequence[Stretch]) -> energy.Energy | None:
    def told(name: str) -> list[energy.Readings]:
        figures, are_due = possible(card.figures(name)), card.is_due(name)
        found, end = [], 0
        for one in stretches:
            begin, end = end, end + len(one.seconds)
            # With close sampling the counter is not due in every sample: its absence is no gap.
            are_kept = bytes(map(and_, are_due[begin:end], map(eq, one.seconds, one.seconds)))
            found.append((only(one.seconds, are_kept), only(figures[begin:end], are_kept)))
        return found

    return energy.used(told("energy_joules"), told("watts"))


def _with_energy(
    so_far: Summary, energies: Sequence[energy.Energy | None], rate: Callable[[], float | None] | None
) -> Summary:
    """Return `so_far` with the sum of the cards' energy, unknown if that of one card is. A training on the CPU has no
    examples/J (`rate` is None), because its GPUs did not compute."""
    used = [one for one in energies if one]
    if not used or len(used) < len(energies):
        return so_far
    watts, per_second = sum(one.watts for one in used), rate() if rate else None
    return replace(
        so_far,
        energy_joules=sum(one.joules for one in used),
        energy_from=energy.COUNTER if all(one.source == energy.COUNTER for one in used) else energy.INTEGRATED,
        energy_seconds=max(one.seconds for one in used),
        energy_gap_seconds=max(one.gap_seconds for one in used),
        examples_per_joule=number(per_second / watts) if per_second is not None and watts > 0 else None,
    )


def _throttled_share(reasons: Sequence[Sequence[Reasons | None]]) -> dict[str, float] | None:
    """Return for each reason the share of the samples in which it held down the clocks of any card."""
    samples = Counter(zip(*reasons, strict=True))
    told = {each: count for each, count in samples.items() if any(one is not None for one in each)}
    counts: Counter[str] = Counter()
    for each, count in told.items():
        for reason in Reasons().union(*(one for one in each if one)):
            counts[reason] += count
    return {reason: counts[reason] / sum(told.values()) for reason in sorted(counts)} if told else None


def _is_shared(cards: Sequence[Card]) -> bool | None:
    """Return whether others computed on one of the cards; False only if nearly all samples of each card can tell, else
    None."""
    looks = [sum(card.is_due("foreign_processes")) for card in cards]
    counts = [card.numbers("foreign_processes") for card in cards]
    if any(max(card, default=0) > 0 for card in counts):
        return True
    are_known = [look > 0 and len(known) >= TOLD_SHARE * look for look, known in zip(looks, counts, strict=True)]
    return False if are_known and all(are_known) else None
