"""Whether a run has left its cards idle since it began, so that its program may compute on the CPU, unnoticed; and
whether others compute there now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ngcdl.report.measured.lines import Line, lines_in, number

_IDLE_PERCENT = 1  # of a card that draws a desktop
# A CUDA context took 523 MiB of an H100 (driver 580.159.04); a process that only asks CUDA for its devices, 4 MiB.
_CONTEXT_BYTES = 32 << 20
_LEAST_SHARE = 0.9  # of the samples that were due
_FEWEST = 20


def are_shared(samples: Iterable[Line], uuids: Sequence[str]) -> bool:
    """Return whether processes of others compute on one of these cards, by its last sample that tells."""
    others: dict[str, float] = {}
    for sample in samples:
        for card in lines_in(sample.get("gpus")):
            if (count := number(card.get("foreign_processes"))) is not None:
                others[str(card.get("uuid"))] = count
    return any(others.get(uuid, 0) > 0 for uuid in uuids)


def are_idle(samples: Iterable[Line], uuids: Sequence[str], due: float) -> bool:
    """Return whether in these samples, of which `due` were to be taken, nothing has computed on these cards, and
    nothing has taken memory there since the first one. False if a sample can't tell, or if there are too few."""
    first: dict[str, float] = {}
    count = 0
    for sample in samples:
        cards = {str(card.get("uuid")): card for card in lines_in(sample.get("gpus"))}
        for uuid in uuids:
            card = cards.get(uuid, {})
            percent = number(card.get("gpu_percent"))
            if percent is None or percent > _IDLE_PERCENT:
                return False
            if "memory_used_bytes" not in card:  # it is not a full sample
                continue
            memory_bytes = number(card["memory_used_bytes"])
            if memory_bytes is None or memory_bytes - first.setdefault(uuid, memory_bytes) >= _CONTEXT_BYTES:
                return False
        count += 1
    return bool(uuids) and count >= max(_LEAST_SHARE * due, _FEWEST)
