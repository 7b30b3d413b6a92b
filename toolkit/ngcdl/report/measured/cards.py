"""What the cards did during a training: utilization, memory, power, energy, clocks, and other users. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain

from ngcdl.record import GpuSummary, Summary
from ngcdl.report.measured import energy, throttling
from ngcdl.report.measured.attempts import Stretch, possible
from ngcdl.report.measured.case import IDLE_PERCENT, computed_on
from ngcdl.report.measured.lines import Line, known_values, mean, most, number, numbers, text, texts_in, weighted

# At a sample that can't tell, others may have computed. A few samples never can, because a process ends while it is
# looked up.
TOLD_SHARE = 0.9

Reasons = frozenset[str]
Card = list[tuple[Line, Line]]  # each sample with its reading of this card, {} if it has none


def with_cards(
    so_far: Summary, stretches: Sequence[Stretch], start: Line, is_timed: bool, rate: Callable[[], float | None]
) -> Summary:
    """Return `so_far` with what the samples say about the cards. `start` is a training's start event, {} for a command;
    `is_timed`: the samples cover exactly the time whose energy is asked for, at a mean `rate` of examples per second.

    Energy, clock and throttling are those of the cards that a training computed on. Of a command all figures are those
    of the cards that its processes were seen on: the others may be computing for somebody else."""
    cards = _cards(chain.from_iterable(one.samples for one in stretches))
    weights = [weight for one in stretches for weight in one.weights]
    energies = [_energy(card, stretches) if is_timed else None for card in cards]
    reasons = [_reasons(card) for card in cards]
    gpus = tuple(_summary(*each, weights) for each in zip(cards, energies, reasons, strict=True))
    own = [numbers([reading for _, reading in card], "own_processes") for card in cards]
    if not start and any(map(any, own)):
        gpus = tuple(replace(gpu, is_used=any(counts)) for gpu, counts in zip(gpus, own, strict=True))
    its = _its(gpus, start, is_told=any(own))
    are_alike = len({gpus[at].name for at in its}) < 2
    used = [gpu for gpu in gpus if gpu.is_used is not False]
    summed = replace(
        so_far,
        gpus=gpus,
        gpu_percent_mean=mean(known_values(gpu.gpu_percent_mean for gpu in used)),
        gpu_memory_bytes_max=most(known_values(gpu.memory_bytes_max for gpu in used)),
        sm_active_percent_mean=mean(known_values(gpu.sm_active_percent_mean for gpu in used)),
        sm_occupancy_percent_mean=mean(known_values(gpu.sm_occupancy_percent_mean for gpu in used)),
        tensor_active_percent_mean=mean(known_values(gpu.tensor_active_percent_mean for gpu in used)),
        dram_bandwidth_percent_mean=mean(known_values(gpu.dram_bandwidth_percent_mean for gpu in used)),
        # of unlike cards a mean would be a clock that none of them had
        sm_mhz_mean=mean(known_values(gpus[at].sm_mhz_mean for at in its)) if are_alike else None,
        throttled_share=_throttled_share([reasons[at] for at in its]),
        shared_gpu=_is_shared([cards[at] for at in its] if not start else cards),
    )
    return _with_energy(summed, [energies[at] for at in its], None if start.get("device") == "cpu" else rate)


def _its(gpus: Sequence[GpuSummary], start: Line, is_told: bool) -> list[int]:
    """Return the places in `gpus` of the cards that a run computed on, of all cards if that is not known. A command
    that was given several cards computed on none if its processes were looked for (`is_told`) and seen on none of them,
    and may have computed on none if one was idle."""
    if start:
        its = computed_on(gpus, start)
        return [at for at, gpu in enumerate(gpus) if not its or any(gpu is one for one in its)]
    if len(gpus) > 1 and not any(gpu.is_used for gpu in gpus) and (is_told or any(map(_is_idle, gpus))):
        return []
    return [at for at, gpu in enumerate(gpus) if gpu.is_used is not False]


def _is_idle(gpu: GpuSummary) -> bool:
    return gpu.gpu_percent_mean is not None and gpu.gpu_percent_mean < IDLE_PERCENT


def _cards(samples: Iterable[Line]) -> list[Card]:
    samples = list(samples)
    found: dict[str, dict[int, Line]] = {}
    for place, sample in enumerate(samples):
        for gpu in cards_in(sample):
            found.setdefault(str(gpu.get("uuid") or gpu.get("index")), {})[place] = gpu
    return [[(sample, card.get(place, {})) for place, sample in enumerate(samples)] for card in found.values()]


def cards_in(sample: Line) -> list[Line]:
    gpus = sample.get("gpus")
    return [gpu for gpu in gpus if isinstance(gpu, dict) and gpu] if isinstance(gpus, list) else []


def _summary(
    card: Card, used: energy.Energy | None, reasons: Sequence[Reasons | None], weights: Sequence[float]
) -> GpuSummary:
    readings = [reading for _, reading in card if reading]

    def since_the_sample_before(name: str) -> float | None:
        return weighted((number(reading.get(name)) for _, reading in card), weights)

    return GpuSummary(
        index=most(numbers(readings[:1], "index")),
        uuid=text(readings[0].get("uuid")),
        name=text(readings[0].get("name")),
        node=text(readings[0].get("node")),
        gpu_percent_mean=mean(numbers(readings, "gpu_percent")),
        memory_bytes_max=most(numbers(readings, "memory_used_bytes")),
        watts_mean=mean(numbers(readings, "watts")),
        joules=used.joules if used else None,
        energy_from=used.source if used else None,
        sm_mhz_mean=mean(numbers(readings, "sm_mhz")),
        throttled_share=_throttled_share([reasons]),
        sm_active_percent_mean=since_the_sample_before("sm_active_percent"),
        sm_occupancy_percent_mean=since_the_sample_before("sm_occupancy_percent"),
        tensor_active_percent_mean=since_the_sample_before("tensor_active_percent"),
        dram_bandwidth_percent_mean=since_the_sample_before("dram_bandwidth_percent"),
    )


def _energy(card: Card, stretches: Sequence[Stretch]) -> energy.Energy | None:
    readings = (reading for _, reading in card)
    timed = [
        [(t, reading) for t, reading in zip(one.seconds, readings, strict=False) if t is not None] for one in stretches
    ]

    def told(name: str) -> energy.Stretches:
        # With close sampling the counter is not due in every sample: its absence is no gap.
        return [[(t, possible(it.get(name))) for t, it in one if name in it or not it] for one in timed]

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


def _reasons(card: Card) -> list[Reasons | None]:
    """Return for each sample the reasons that held the clocks down, None if they are unknown."""
    made: dict[tuple[str, ...], Reasons] = {}  # very many samples share a few distinct sets
    found: list[Reasons | None] = []
    for _, reading in card:
        named = texts_in(reading.get("throttle_reasons"))
        key = None if named is None else tuple(named)
        found.append(None if key is None else made.setdefault(key, frozenset(key) - {throttling.IDLE}))
    return found


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
    looks = [[reading for _, reading in card if "foreign_processes" in reading] for card in cards]
    counts = [numbers(card, "foreign_processes") for card in looks]
    if any(count > 0 for card in counts for count in card):
        return True
    are_known = [bool(card) and len(known) >= TOLD_SHARE * len(card) for card, known in zip(looks, counts, strict=True)]
    return False if are_known and all(are_known) else None
