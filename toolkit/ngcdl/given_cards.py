"""Which of this host's cards a run is given, and by which names they are passed into its container."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from ngcdl.engines.values import GpuWay
from ngcdl.errors import GpuError, NoGpu
from ngcdl.frozen import dataclass
from ngcdl.spec import GpuRequest
from ngcdl.telemetry import free_cards, shared_card
from ngcdl.telemetry.card import Probe, compute_devices, is_mig, is_prohibited, prohibited

# https://docs.nvidia.com/datacenter/tesla/mig-user-guide/mig-device-names.html#cuda-device-enumeration
_ONE_MIG_DEVICE = "a training has a replica on each, but CUDA shows a program only one MIG device: name one"
NONE_TO_SHARE = "no card is free, and none can be shared"
_JETSONS = ("NVIDIA Thor", "(nvgpu)")  # in their cards' names


@dataclass(frozen=True)
class Seen:
    """The cards of this host, and what is known about them. `named`: the UUIDs that the caller's CUDA_VISIBLE_DEVICES
    leaves visible, None if the variable is not set or has no effect, as in a container. `unfit`: the cards that the
    image, or the framework installed here, can't use. `held` returns the cards that other runs hold, with the ids of
    these runs."""

    probe: Probe
    named: tuple[str, ...] | None = None
    in_container: bool = False
    unfit: Collection[str] = ()
    held: Callable[[], Mapping[str, str]] = dict

    @property
    def shown(self) -> tuple[str, ...] | None:
        """The cards in `named` on which programs may compute; None if `named` is None."""
        barred = {card.uuid for card in self.probe.cards if is_prohibited(card)}
        return None if self.named is None else tuple(uuid for uuid in self.named if uuid not in barred)

    @property
    def why_none(self) -> str | None:
        """Say why a run can be given no card; None if it can be given one."""
        probe = self.probe
        if probe.usable and self.shown != ():
            return None
        if probe.usable and not self.named:
            return f"{free_cards.VARIABLE} names none of this host's GPUs"
        cards = tuple(card for card in probe.cards if self.named is None or card.uuid in self.named)
        return replace(probe, cards=cards or probe.cards).why_none


@dataclass(frozen=True)
class Need:
    """Cards to wait for: `count` of those in `names`, which has the UUIDs, each with the name that `handed` gives."""

    count: int
    names: Mapping[str, str]

    def filled(self, gpus: GpuRequest, uuids: Sequence[str]) -> GpuRequest:
        """Return `gpus` with the cards that became free."""
        return replace(gpus, devices=tuple(self.names[uuid] for uuid in uuids))


@dataclass(frozen=True)
class Given:
    """What a run is given. `gpus` is the request with the cards named, of the kind none if the run gets none. `uuids`
    are the cards, None if NVML can't tell. `loud` warns that others use the cards, or says why there is none; `rule`
    says by which rule the cards were chosen. `among`: all cards of which a run that waits may get others instead."""

    gpus: GpuRequest
    uuids: tuple[str, ...] | None
    loud: tuple[str, ...] = ()
    rule: str = ""
    among: tuple[str, ...] = ()


def for_command(gpus: GpuRequest, seen: Seen) -> Given:
    """Give a command all cards, those that are named, or free ones if a number is asked for. Raise GpuError."""
    return _free(gpus, seen) if gpus.kind == "count" else _named_or_all(gpus, seen)


def for_training(gpus: GpuRequest, seen: Seen) -> Given:
    """Give a training the cards of its replicas; under auto one card, which it may share. Raise GpuError."""
    given = _free(gpus, seen) if gpus.kind in ("auto", "count") else _named_or_all(gpus, seen)
    if not given.gpus.demanded or given.uuids is None or len(given.uuids) < 2:
        return given
    _check_replicas(gpus, given.uuids)
    return replace(given, gpus=GpuRequest("devices", devices=given.uuids))  # the training must know their number


def for_waiting(gpus: GpuRequest, seen: Seen, *, is_training: bool) -> Given:
    """Give a run that waits the cards that it gets if all are free. Named by UUID, they are held by the run even if it
    is a command that wants all. Raise GpuError if it can never get enough."""
    if gpus.kind in ("auto", "count"):
        count, among = gpus.count or 1, free_cards.candidates(seen.unfit, seen.shown)
        if is_training and count > 1:
            among = tuple(uuid for uuid in among if not is_mig(uuid))  # _ONE_MIG_DEVICE
    else:
        among = _named_or_all(gpus, seen).uuids or ()
        count = len(among)
        if is_training:
            _check_replicas(gpus, among)
    if not 0 < count <= len(among):
        raise NoGpu(str(gpus), f"of this host's GPUs, {len(among)} can be waited for")
    taken = among[:count]
    return Given(GpuRequest("devices" if gpus.demanded else "auto", devices=taken), taken, among=among)


def _check_replicas(gpus: GpuRequest, uuids: Sequence[str]) -> None:
    """Raise NoGpu if a training can't have a replica on each of the cards."""
    if len(uuids) > 1 and any(map(is_mig, uuids)):
        raise NoGpu(str(gpus), _ONE_MIG_DEVICE)


def _free(gpus: GpuRequest, seen: Seen) -> Given:
    """Choose the strongest free cards. With --gpus auto choose one, which is shared if none is free. Raise GpuError if
    GPUs were demanded and too few are free."""
    held = seen.held()
    try:
        free = free_cards.choose(gpus.count or 1, seen.unfit, held, seen.shown)
    except GpuError:
        if gpus.demanded:
            raise
        return _shared(seen, held)
    return Given(GpuRequest("devices" if gpus.demanded else "auto", devices=free.uuids), free.uuids, rule=free.rule)


def _shared(seen: Seen, held: Mapping[str, str]) -> Given:
    """Choose the least used card, with a warning. Choose all cards if the driver can't name one, and none if each card
    is in use and allows one program only."""
    one = None
    with contextlib.suppress(GpuError):
        one = shared_card.choose(seen.unfit, held, seen.shown, in_container=seen.in_container)
    if one is None:
        return _named_or_all(GpuRequest(), seen)
    if one.uuid is None:
        loud = f"WARNING: {NONE_TO_SHARE} ({one.users}): this run computes on the CPU."
        return Given(GpuRequest("none"), (), (loud,))
    loud = f"WARNING: no card is free ({one.users}): this run shares GPU {one.name}, and its speed is not the card's."
    return Given(GpuRequest("auto", devices=(one.uuid,)), (one.uuid,), (loud,) if one.users else ())


def _named_or_all(gpus: GpuRequest, seen: Seen) -> Given:
    """Give the cards that the request names, or all. Named cards are returned as UUIDs, because CUDA and NVML may index
    cards differently. If all are wanted, the request names them only if the host has other cards, which may not
    compute. `uuids` is None if there are MIG devices but this user may see none. Raise NoGpu."""
    probe, shown, known = seen.probe, seen.shown, _known(seen.probe)
    if gpus.kind == "devices":
        uuids = tuple(_named(item, known, gpus, probe) for item in gpus.devices)
        if shown is not None and (hidden := [uuid for uuid in uuids if uuid in known.values() and uuid not in shown]):
            raise NoGpu(str(gpus), f"{free_cards.VARIABLE}={os.environ[free_cards.VARIABLE]} hides {', '.join(hidden)}")
        return Given(GpuRequest("devices", devices=uuids), uuids)
    if shown is None and known and len(probe.usable) < len(probe.cards):
        gpus = replace(gpus, devices=tuple(known.values()))
    return Given(gpus, tuple(known.values() if shown is None else shown) or None)


def _named(item: str, known: Mapping[str, str], gpus: GpuRequest, probe: Probe) -> str:
    """Return the UUID of `item`, which is an index, a UUID or the beginning of one. The name of a MIG device that this
    user may not see is returned unchanged, because only the driver knows it. Raise NoGpu."""
    begun = [] if item.isdecimal() else [uuid for uuid in known.values() if uuid.startswith(item)]
    matches = [known[item]] if item in known else begun
    if len(matches) == 1:
        return matches[0]
    if not matches and (is_mig(item) or ":" in item):
        return item
    for card in probe.cards:
        is_it = item == str(card.index) or (card.uuid or "").startswith(item)
        if is_it and is_prohibited(card):
            raise NoGpu(str(gpus), f"GPU {card.index} may not compute: {prohibited(card.index)}")
        if is_it and card.mig:
            parts = ", ".join(f"{name} ({one.uuid})" for name, one in compute_devices([card]).items())
            what = f"GPU {card.index} has MIG on, and only its MIG devices compute"
            raise NoGpu(str(gpus), f"{what}: name {parts or 'one of them, as nvidia-smi -L shows them'}")
    have = ", ".join(f"{index} ({uuid})" for index, uuid in known.items())
    what = f"more than one GPU's UUID begins with {item}" if matches else f"there is no GPU {item}"
    raise NoGpu(str(gpus), f"{what}; this host has {have}")


def _known(probe: Probe) -> dict[str, str]:
    """Return the UUIDs of everything programs can compute on, by index: 0 is a card, 0:1 a MIG device."""
    return {name: one.uuid for name, one in compute_devices(probe.cards).items() if one.uuid}


def handed(devices: Collection[str], probe: Probe, way: GpuWay) -> Iterator[str]:
    """Yield `devices` by names that the `way` into the container understands: UUIDs or indices.

    NVML returns a Jetson's UUID without GPU-, and only NVML knows it in that form: CUDA needs GPU- before it, and the
    container toolkit there needs the index. The toolkit needs the index of a Thor, too, although a Thor's UUID has
    GPU-.
    https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/pkg/nvcdi/lib-csv.go
    https://github.com/NVIDIA/NemoClaw/issues/9154
    The toolkit in Docker's snap finds cards in a CDI description that it makes with --device-name-strategy index:
    https://github.com/canonical/docker-snap/tree/main/nvidia/lib
    Not every CDI description names the cards by UUID; WSL's names no single card, only all of them together.
    https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/pkg/nvcdi/lib-wsl.go
    """
    indices = {uuid: name for name, uuid in _known(probe).items()}
    by_index = {card.uuid for card in probe.cards if any(word in (card.name or "") for word in _JETSONS)}
    for uuid in devices:
        index, is_known = indices.get(uuid, uuid), uuid.startswith(("GPU-", "MIG-"))
        if way.name == "cdi":
            is_known = uuid in way.described or (is_known and index not in way.described and "all" in way.described)
        elif uuid in by_index or way.by_index:
            is_known = False
        yield uuid if is_known else index


def without_fabric(probe: Probe, uuids: Sequence[str] | None) -> tuple[str, ...]:
    """Return a warning about cards of a server with NVSwitches that CUDA can't use yet, although nvidia-smi and the
    other values of NVML show nothing wrong; () if there are none."""
    late = [card for card in probe.cards if card.waits_for_fabric]
    if uuids is not None:
        late = [card for card in late if {card.uuid, *(one.uuid for one in card.mig_devices)}.intersection(uuids)]
    if not late:
        return ()
    states = ", ".join(f"GPU {card.index}: {card.fabric}" for card in late)
    return (
        f"WARNING: the NVLink fabric is not set up ({states}): CUDA may fail with error 802, or work without NVLink. "
        "ngcdl doctor says more.",
    )
