"""Which cards of this host are free: idle, not held by a run, and not hidden by CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ngcdl import processes
from ngcdl.errors import NoGpu
from ngcdl.frozen import dataclass
from ngcdl.telemetry import driver
from ngcdl.telemetry.card import PROHIBITED, Card, GpuReading, compute_devices, is_mig, is_prohibited
from ngcdl.telemetry.gpu import open_nvml

VARIABLE, ORDER = "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER"
# A desktop's card was seen at 49 % and 7 % in listings of the same day: https://github.com/XuehaiPan/nvitop/issues/49
_READINGS, _PAUSE_SECONDS = 3, 0.5
_LOST = "out of order"
_NO_MIG_DEVICE = "MIG is on, and nvidia-smi -L shows this user no MIG device to name"
_PROHIBITED = f"compute mode {PROHIBITED}, which sudo nvidia-smi -i INDEX -c 0 ends"

# A card counts as a display card (RTX A400) if it has less than half the memory of another free card (A100). Only cards
# from Volta on are compared with: an older Tesla M40 has more memory than a GeForce RTX 3080, but computes less.
_COMPUTES_SINCE = (7, 0)
_RULE = "of several free cards the newest with enough memory"


@dataclass(frozen=True)
class FreeCards:
    """The UUIDs of the chosen cards. `rule` says how they were chosen if other models were left out, else ""."""

    uuids: tuple[str, ...]
    rule: str = ""


@dataclass(frozen=True)
class Look:
    """The UUIDs of the cards that are free, the strongest first, and who uses the others, in words. `has_lost`: a card
    of this host, be it one of the wanted or not, is out of order."""

    free: tuple[str, ...]
    users: str
    has_lost: bool = False


def choose(
    count: int,
    unfit: Collection[str],
    held: Mapping[str, str],
    shown: Collection[str] | None,
    sleep: Callable[[float], None] = time.sleep,
) -> FreeCards:
    """Return `count` cards that nothing computes on, excluding those in `unfit` and `held`: the strongest first, of
    equal cards the least used. A display card comes after others, even if it is newer. If MIG is on, the MIG devices
    count instead of their card, and come after whole cards.

    `held` maps a card to the run that holds it. `shown` has the cards that CUDA_VISIBLE_DEVICES leaves visible, None
    for all; MIG devices in it come first. Raise NoGpu if too few are free, and NvmlUnavailable."""
    every = readings(_READINGS, sleep)
    hidden = [card for card in every if shown is not None and card.uuid not in shown]
    fit = [card for card in every if card.uuid not in unfit and card not in hidden]
    named = compute_devices(fit)
    free = {name: one for name, one in named.items() if one.is_free and one.uuid not in held}
    found = _in_order(free.values(), [one for one in shown or () if one not in held])
    if len(found) < count:
        others: dict[str, list[object]] = {
            "in use or out of order": [_said(name, one, held) for name, one in named.items() if name not in free],
            _NO_MIG_DEVICE: [card.index for card in fit if card.mig and not card.mig_devices],
            _PROHIBITED: [card.index for card in fit if is_prohibited(card)],
            "of no use to this run": [card.index for card in every if card.uuid in unfit],
            f"hidden by {VARIABLE}": [card.index for card in hidden],
        }
        what = "; ".join(f"{why}: GPU {', '.join(map(str, which))}" for why, which in others.items() if which)
        few = f"{len(found)} of {len(compute_devices(every))} GPUs are free ({what})"
        if not what:
            few = f"this host has only {len(found)}"
        raise NoGpu(str(count), few, is_busy=len(_in_order(_working(named), shown)) >= count)
    taken = found[:count]
    whole = [one for one in free.values() if one.uuid and not is_mig(one.uuid)]
    is_by_rule = len(taken) < len(whole) and len({one.name for one in whole}) > 1 and not any(map(is_mig, taken))
    return FreeCards(tuple(taken), _RULE if is_by_rule else "")


def candidates(unfit: Collection[str], shown: Collection[str] | None) -> tuple[str, ...]:
    """Return all cards that choose() would choose from if every one were free, in its order. Raise NvmlUnavailable."""
    fit = [card for card in readings() if card.uuid not in unfit and (shown is None or card.uuid in shown)]
    return tuple(_in_order(_working(compute_devices(fit)), shown))


def look(among: Collection[str], held: Mapping[str, str], sleep: Callable[[float], None] = time.sleep) -> Look:
    """Look which of the cards `among` are free, by the rule of choose(). Raise NvmlUnavailable."""
    found = readings(_READINGS, sleep)
    named = {name: one for name, one in compute_devices(found).items() if one.uuid in among}
    free = [one for one in named.values() if one.is_free and one.uuid not in held]
    known = {one.uuid for one in named.values()}
    # Nothing is known about a MIG device that this user may not see, so it counts as free, as in choose().
    unseen = [one for one in among if one not in known and one not in held and (is_mig(one) or ":" in one)]
    users = [f"GPU {name} ({one.name}): {user(one, held)}" for name, one in named.items() if one not in free]
    users += [f"{one}: {held.get(one, _LOST)}" for one in among if one not in known and one not in unseen]
    has_lost = any(one.is_out_of_order for one in found)
    return Look((*unseen, *_in_order(free)), "; ".join(users), has_lost)


def _working(named: Mapping[str, GpuReading]) -> list[GpuReading]:
    return [one for one in named.values() if not one.is_out_of_order]


def _in_order(devices: Iterable[GpuReading], shown: Collection[str] | None = None) -> list[str]:
    """Return the UUIDs of `devices` in the order in which they are taken, after the MIG devices in `shown`."""
    known = [(one.uuid, one) for one in devices if one.uuid]
    strong = [one for uuid, one in known if not is_mig(uuid) and one.capability >= _COMPUTES_SINCE]
    enough = max((one.memory_total_bytes or 0 for one in strong), default=0) / 2
    least = sorted(
        (is_mig(uuid), (one.memory_total_bytes or 0) < enough, one.weakness, one.use, uuid) for uuid, one in known
    )
    return list(dict.fromkeys([*filter(is_mig, shown or ()), *(uuid for *_, uuid in least)]))


def user(one: GpuReading, held: Mapping[str, str]) -> str:
    """Say who uses a card that is not free: a run, programs and their users, or how busy it is."""
    if run := held.get(one.uuid or ""):
        return run
    if one.is_out_of_order:
        return _LOST
    programs = (
        f"{process.name} of {processes.user(process.pid) or 'another user'}"
        for process in one.processes or ()
        if process.name and process.computes
    )
    return one.why_busy or ", ".join(dict.fromkeys(programs)) or "another program"


def visible_to_cuda(cards: Sequence[Card], environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return what CUDA_VISIBLE_DEVICES makes visible to the caller's programs: UUIDs of cards, and MIG devices as named
    there; None if the variable is not set. As in CUDA, the list ends at the first entry that matches no card, or more
    than one.

    A number is taken as NVML's index, which CUDA may not do: see is_ambiguous()."""
    said = environ.get(VARIABLE)
    if said is None:
        return None
    found: list[str] = []
    for word in map(str.strip, said.split(",")):
        named = [word] if is_mig(word) else [card.uuid for card in cards if card.uuid and _means(word, card)]
        if len(named) != 1:
            break
        found += named
    return tuple(dict.fromkeys(found))


def is_ambiguous(cards: Sequence[Card], environ: Mapping[str, str]) -> bool:
    """Return whether CUDA_VISIBLE_DEVICES may make other cards visible than visible_to_cuda() returns. CUDA's default
    order puts the fastest card first, and on a host with several models only CUDA knows which one that is.
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables"""
    visible = visible_to_cuda(cards, environ) or ()
    return (
        environ.get(ORDER) != "PCI_BUS_ID"
        and len({card.name for card in cards}) > 1
        and any(word.strip().isdecimal() for word in environ.get(VARIABLE, "").split(","))
        and 0 < len(visible) < len(cards)
    )


def _means(word: str, card: Card) -> bool:
    return word == str(card.index) or (word.startswith("GPU-") and (card.uuid or "").startswith(word))


def _said(name: str, card: GpuReading, held: Mapping[str, str]) -> str:
    run = held.get(card.uuid or "")
    if run:
        return f"{name} by {run}"
    return f"{name} ({card.why_busy})" if card.why_busy else name


def readings(most: int = 1, sleep: Callable[[float], None] = time.sleep) -> tuple[GpuReading, ...]:
    """Read all cards of this host; while a card is not free only because it is busy, up to `most` times, because a
    desktop is busy at times. Return the last reading, with each card's least use. Raise NvmlUnavailable, also for a
    driver that hangs."""

    def read() -> tuple[GpuReading, ...]:
        with open_nvml() as nvml:
            found = nvml.read()
            for _ in range(most - 1):
                if not any(card.is_too_busy for card in found):
                    break
                sleep(_PAUSE_SECONDS)
                found = _with_least_use(nvml.read(), found)
            return found

    with driver.asking(read) as answer:
        return answer()


def _with_least_use(now: Sequence[GpuReading], before: Sequence[GpuReading]) -> tuple[GpuReading, ...]:
    was = {card.uuid: card.gpu_percent for card in before}
    known = [[one for one in (card.gpu_percent, was.get(card.uuid)) if one is not None] for card in now]
    return tuple(replace(card, gpu_percent=min(each, default=None)) for card, each in zip(now, known, strict=True))
