"""What is said at the end of a user's own command that reported no steps: how its cards were used. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ngcdl.figures import NOT_AVAILABLE
from ngcdl.record import GpuSummary, Run
from ngcdl.report.measured import naming
from ngcdl.report.measured.case import can_judge
from ngcdl.report.measured.lines import known_values
from ngcdl.report.measured.words import card_memory, formatted

# More cards than this are summed up: a line for each of eight is too much.
_MOST_CARDS = 2


def observed(run: Run) -> list[str]:
    """Return a line on the cards that the run used, and a second line with the first finding, if there is one; [] if
    the run has too few samples, or no card."""
    cards = run.summary.used_gpus
    if not cards or not can_judge(run):
        return []
    line = "; ".join(_told(card, run) for card in cards) if len(cards) <= _MOST_CARDS else _all(cards)
    said = [f"{line} (mean of {run.summary.training_samples:,} samples; ngcdl show {run.id})"]
    return said + [finding.text for finding in (run.findings or ())[:1]]


def _all(cards: Sequence[GpuSummary]) -> str:
    percents = known_values(card.gpu_percent_mean for card in cards)
    busy = f"{min(percents):.0f} to {max(percents):.0f} % busy" if percents else f"{NOT_AVAILABLE} busy"
    unknown = f", {NOT_AVAILABLE} for {len(cards) - len(percents)}" if 0 < len(percents) < len(cards) else ""
    return f"{len(cards)} GPUs: {busy}{unknown}"


def _told(card: GpuSummary, run: Run) -> str:
    place = naming.place(card.index, card.card_index) or NOT_AVAILABLE
    memory = "memory n/a" if card.memory_bytes_max is None else f"at most {card_memory(run, card)}"
    busy = f"{formatted(card, 'gpu_percent_mean', digits=0)} busy"
    if card.sm_active_percent_mean is not None:
        busy += f", SMs active {formatted(card, 'sm_active_percent_mean', digits=0)}"
    return f"GPU {place}: {busy}, {memory}"
