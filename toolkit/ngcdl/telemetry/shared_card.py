"""Which card a training shares with others if none is free."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ngcdl.frozen import dataclass
from ngcdl.telemetry.card import EXCLUSIVE, GpuReading, compute_devices, is_mig
from ngcdl.telemetry.free_cards import VARIABLE, readings, user

_ALONE = ", and its compute mode allows one program only (several through MPS{})"
_NOT_FROM_CONTAINERS = ", but not from ngcdl's containers"


@dataclass(frozen=True)
class SharedCard:
    """The card to share. `name` is such as 0 or 0:1. `users` says who uses the cards (GPU 0: RUN; GPU 1: PROGRAM of
    USER), or is "" if the card is free by now. `uuid` is None if each card that could be taken allows one program
    only, and is in use.
    """

    name: str
    uuid: str | None
    users: str


def choose(
    unfit: Collection[str], held: Mapping[str, str], shown: Collection[str] | None, *, in_container: bool
) -> SharedCard | None:
    """Return the card, or MIG device, with the most memory left, and of equal ones the least used; None if none can be
    named. `unfit`, `held` and `shown` are as in free_cards.choose(); `in_container`: the training will run in a
    container. Raise NvmlUnavailable."""
    alone = _ALONE.format(_NOT_FROM_CONTAINERS if in_container else "")
    left: dict[str, GpuReading] = {}
    users, is_any_full = [], False
    for whole in readings():
        for name, one in compute_devices([whole]).items():
            why = _why_not(whole, one, unfit, shown)
            is_full = not why and _is_full(one, held, in_container)
            users.append(f"GPU {name}: {why or user(one, held)}{alone if is_full else ''}")
            left |= {} if why or is_full else {name: one}
            is_any_full |= is_full
    free = {name: one for name, one in left.items() if one.is_free and one.uuid not in held}
    if not left:
        return SharedCard("", None, "; ".join(users)) if is_any_full else None
    name, one = min((free or left).items(), key=lambda item: _order(item[1]))
    return SharedCard(name, one.uuid or "", "" if free else "; ".join(users))


def _is_full(one: GpuReading, held: Mapping[str, str], in_container: bool) -> bool:
    """Return whether CUDA would refuse another program on a card whose compute mode allows one only. Several programs
    can share such a card through an MPS server, but a container needs the server's pipe for that, which ngcdl does not
    mount. Without the pipe CUDA goes on without MPS, and finds the card taken by the server:
    https://docs.nvidia.com/deploy/mps/index.html"""
    if one.compute_mode not in EXCLUSIVE:
        return False
    processes = one.processes or ()
    computes = any(process.computes for process in processes) if processes else not one.is_free
    has_mps = any(process.is_mps_server for process in processes) and not in_container
    return (computes or one.uuid in held) and not has_mps


def _order(one: GpuReading) -> tuple[bool, int, tuple[int, int, int]]:
    return is_mig(one.uuid or ""), (one.memory_used_bytes or 0) - (one.memory_total_bytes or 0), one.use


def _why_not(whole: GpuReading, one: GpuReading, unfit: Collection[str], shown: Collection[str] | None) -> str:
    if one.is_out_of_order:
        return "out of order"
    if whole.uuid in unfit:
        return "of no use to this run"
    return f"hidden by {VARIABLE}" if shown is not None and not {whole.uuid, one.uuid} & set(shown) else ""
