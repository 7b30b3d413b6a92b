"""Decides where and on what a run will compute: once, before anything is fetched, with the reason in words."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ngcdl import engines
from ngcdl.engines.base import Engine, GpuWay
from ngcdl.errors import BadGpuRequest, BadOption, EngineElsewhere, EngineError, GpuError, NoGpu
from ngcdl.spec import USUAL, GpuRequest, ImageRef, kind_of
from ngcdl.telemetry import free_cards, shared_card
from ngcdl.telemetry import gpu as nvml
from ngcdl.telemetry.card import Card, Probe, compute_devices, is_mig, is_prohibited, prohibited

# Without an image: the newest of the first of these that has one for this host.
DEFAULT_FRAMEWORKS = ("tensorflow", "pytorch")
NO_GPU = GpuWay("none", "no GPU was asked for")
# https://docs.nvidia.com/datacenter/tesla/mig-user-guide/mig-device-names.html#cuda-device-enumeration
_ONE_MIG_DEVICE = "a training has a replica on each, but CUDA shows a program only one MIG device: name one"
_NONE_TO_SHARE = "no card is free, and none can be shared"
_JETSONS = ("NVIDIA Thor", "(nvgpu)")  # in their cards' names
Unfit = Callable[[Engine, ImageRef, Probe], Collection[str]]
Tagged = Callable[[ImageRef | None, Engine], tuple[ImageRef, str]]


@dataclass(frozen=True)
class Choice:
    """`gpus` is the request with the free cards named; `device` is what a training must compute on: auto, cpu or gpu.

    `uuids` are the run's GPUs, None if this host's NVML can't tell. `loud` has warnings that nobody may miss. `shares`:
    no card was free, and others use the one that it gets."""

    engine: Engine
    image: ImageRef | None
    way: GpuWay
    gpus: GpuRequest
    device: str
    uuids: tuple[str, ...] | None
    why: str
    probe: Probe
    loud: tuple[str, ...] = ()
    shares: bool = False


def choose(
    engine_name: str,
    image: ImageRef | None,
    gpus: GpuRequest,
    registry: str,
    is_training: bool = False,
    unfit: Unfit = lambda *_: (),
    held: Callable[[], Mapping[str, str]] = dict,
    usual: Sequence[str] = DEFAULT_FRAMEWORKS,
) -> Choice:
    """Choose engine, GPU way and cards. Raise GpuError if a demanded GPU is unavailable, EngineError or BadOption.

    Without an image, and with the engine `auto`, a command runs on this host; a training where it gets the GPU.
    A training has a replica on each card: under auto it gets one free card, and leaves the rest to others; if none is
    free, it shares one. `unfit` returns the UUIDs of cards that the image can't use; they are never chosen as free
    cards. It is called only on hosts with several cards. `held` returns the cards that runs hold, with the runs' ids;
    these are not free either. `usual`: the frameworks of which an image is taken if none was named.
    """
    probe = Probe() if kind_of(engine_name).is_cluster else nvml.probe()  # NVML here can't see its nodes
    on_each = is_training and gpus.kind in ("all", "devices")
    tagged = partial(_image, registry, _meant(gpus, probe), usual, on_each=on_each)
    engine, image, why = _engine(engine_name, image, gpus, probe, tagged, is_training)
    if not (engine.is_cluster or engine.shares_files):
        raise EngineElsewhere("its containers can't see this machine's folders.")
    if gpus.kind == "none":
        return Choice(engine, image, NO_GPU, gpus, "cpu", (), why, probe)
    if engine.is_cluster:
        return _of_cluster(engine, image, gpus, why, probe)
    if not engine.is_here:
        return _elsewhere(engine, image, gpus, why, probe)
    named = free_cards.visible_to_cuda(probe.cards, os.environ) if not engine.has_containers else None
    barred = {card.uuid for card in probe.cards if is_prohibited(card)}
    shown = None if named is None else tuple(uuid for uuid in named if uuid not in barred)
    if not probe.usable or shown == ():
        found = _why_none(probe, named)
        if gpus.demanded:
            raise NoGpu(str(gpus), found)
        way = replace(NO_GPU, why=found)
        if not (engine.has_containers or is_training):
            return _untold(engine, gpus, way, why, probe)
        loud = (f"WARNING: {found}: this run computes on the CPU.",)
        return Choice(engine, image, way, GpuRequest("none"), "cpu", (), why, probe, loud)
    useless = unfit(engine, image, probe) if len(probe.usable) > 1 and image else ()
    asked = str(gpus)
    uuids: tuple[str, ...] | None
    shared_with: tuple[str, ...] = ()
    if gpus.kind == "count" or (is_training and gpus.kind == "auto"):
        gpus, uuids, shared_with, rule = _free(gpus, probe, useless, held(), shown, engine)
        if gpus.kind == "none":
            way = replace(NO_GPU, why=_NONE_TO_SHARE)
            return Choice(engine, image, way, gpus, "cpu", (), why, probe, shared_with)
        why += f"; {rule}" if rule else ""
    else:
        gpus, uuids = _named_or_all(gpus, probe, shown)
    if is_training and gpus.demanded and uuids and len(uuids) > 1:  # one replica on each
        if any(map(is_mig, uuids)):
            raise NoGpu(asked, _ONE_MIG_DEVICE)
        gpus = GpuRequest("devices", devices=uuids)  # their number must be known
    way = _way(engine, gpus)
    if way.name == "none" and engine.has_containers:
        loud = (f"WARNING: this host has a GPU, but Docker can't pass it on: {way.why}. This run computes on the CPU.",)
        return Choice(engine, image, way, GpuRequest("none"), "cpu", (), why, probe, loud)
    gpus = replace(gpus, devices=tuple(_handed(gpus.devices, probe, way)))
    device = "gpu" if gpus.demanded else "auto"
    warnings = (*shared_with, *_without_fabric(probe, uuids))
    return Choice(engine, image, way, gpus, device, uuids, why, probe, warnings, shares=bool(shared_with))


def _why_none(probe: Probe, named: Collection[str] | None) -> str:
    """Say why no card can be used. `named`: what the caller's own variable leaves visible."""
    if probe.usable and not named:
        return f"{free_cards.VARIABLE} names none of this host's GPUs"
    cards = tuple(card for card in probe.cards if named is None or card.uuid in named)
    return replace(probe, cards=cards or probe.cards).why_none


def _without_fabric(probe: Probe, uuids: Sequence[str] | None) -> tuple[str, ...]:
    """Warn of cards of a server with NVSwitches that CUDA can't use yet: NVML and nvidia-smi show nothing amiss."""
    late = [card for card in probe.cards if card.waits_for_fabric]
    if uuids is not None:
        late = [card for card in late if {card.uuid, *(one.uuid for one in card.mig_devices)}.intersection(uuids)]
    if not late:
        return ()
    states = ", ".join(f"GPU {card.index}: {card.fabric}" for card in late)
    return (
        f"WARNING: the NVLink fabric is not set up ({states}): CUDA may fail with error 802. ngcdl doctor says more.",
    )


def _untold(engine: Engine, gpus: GpuRequest, way: GpuWay, why: str, probe: Probe) -> Choice:
    """Choose for a command of this host where NVML shows no card that it may use. Nothing keeps it from one: CUDA may
    work where NVML does not, as under WSL and on a Jetson."""
    is_known = bool(probe.cards) or probe.absent
    then = "this run computes on the CPU" if is_known else "whether this run computes on a GPU is not known"
    loud = (f"WARNING: {way.why}: {then}.",)
    return Choice(engine, None, way, gpus, "auto", () if is_known else None, why, probe, loud)


def without_gpu_warnings(picked: Choice, device: str | None) -> Choice:
    """Drop the warnings about the GPU, or the lack of one, if the CPU was requested."""
    return replace(picked, loud=()) if device == "cpu" else picked


def _engine(
    name: str, image: ImageRef | None, gpus: GpuRequest, probe: Probe, tagged: Tagged, is_training: bool
) -> tuple[Engine, ImageRef | None, str]:
    if name == "local":
        if image:
            usual = "--train cifar10" if is_training else "-- python train.py"
            raise BadOption("--engine local runs what this host has, not an image.", f"    ngcdl run {usual}")
        return engines.connect("local"), None, "engine local: it was named"
    if name == "auto" and not image and not is_training:
        return engines.connect("local"), None, "engine local: no image was named, so the command runs on this host"
    if name != "auto" or image:
        why = "it was named" if name != "auto" else "an image was named"
        engine = engines.connect(USUAL if name == "auto" else name)
        image, release = tagged(image, engine)
        return engine, image, f"{release}engine {engine.name}: {why}"
    if gpus.kind == "none":
        return engines.connect("local"), None, "engine local: no image was named, and no GPU is wanted"
    if not probe.usable:
        seen = probe.why_none if probe.cards else "this host shows no NVIDIA GPU"
        return engines.connect("local"), None, f"engine local: no image was named, and {seen}"
    try:
        docker = engines.connect("docker")
        way = docker.gpu_way()
    except EngineError as error:
        return engines.connect("local"), None, f"engine local: no image was named, and Docker is unavailable ({error})"
    if way.name == "none":
        return engines.connect("local"), None, f"engine local: Docker can't pass on the GPU ({way.why})"
    image, release = tagged(None, docker)
    return docker, image, f"{release}engine docker: this host has a GPU, and {way.why}"


def named_default(registry: str, environ: Mapping[str, str] = os.environ) -> ImageRef | None:
    from ngcdl.preflight import meant

    named = environ.get("NGCDL_DEFAULT_IMAGE")
    return meant.named(named, registry) if named else None


def default_image(registry: str, environ: Mapping[str, str] = os.environ) -> ImageRef:
    """Return NGCDL_DEFAULT_IMAGE, else the newest that runs here as far as known without a look at the cards."""
    return _image(registry, Probe(), DEFAULT_FRAMEWORKS, named_default(registry, environ))[0]


def _image(
    registry: str,
    probe: Probe,
    usual: Sequence[str],
    image: ImageRef | None,
    engine: Engine | None = None,
    *,
    on_each: bool = False,
) -> tuple[ImageRef, str]:
    """Return the image to run, and, if its name left that open, which release that is, in words.

    `on_each`: it must run on all cards of `probe`."""
    from ngcdl import hostfacts
    from ngcdl.preflight import meant
    from ngcdl.preflight.facts import HostFacts

    image = image or named_default(registry)
    if image and not meant.is_open(image):
        return image, ""
    host = hostfacts.gather(None, probe)
    if engine and not engine.is_here:  # the verdict on its nodes comes later
        host = HostFacts(host.architecture, elsewhere="its cards can't be seen from here")
    frameworks = [image] if image else [meant.named(name, registry) for name in usual]
    image, words = meant.chosen(frameworks, host, on_each=on_each)
    return image, f"{words}; "


def _meant(gpus: GpuRequest, probe: Probe) -> Probe:
    """Return the probe with only the cards that are named, as an index, a UUID or the beginning of one; with none if
    none is wanted, with all that may compute if none is named."""
    if gpus.kind == "none":
        return Probe()
    if gpus.kind != "devices":
        return replace(probe, cards=probe.usable)
    words = [word.partition(":")[0] for word in gpus.devices]
    named = [card for card in probe.cards if any(_is_named(card, word) for word in words)]
    return replace(probe, cards=tuple(named)) if named else probe


def _is_named(card: Card, word: str) -> bool:
    uuids = [one.uuid or "" for one in (card, *card.mig_devices)]
    return word == str(card.index) or (not word.isdecimal() and any(uuid.startswith(word) for uuid in uuids))


def _elsewhere(engine: Engine, image: ImageRef | None, gpus: GpuRequest, why: str, probe: Probe) -> Choice:
    """Choose for a daemon on another machine: NVML here can't see its GPUs; the check in the container decides."""
    way = engine.gpu_way()
    if way.name == "none":
        if gpus.demanded:
            raise NoGpu(str(gpus), f"the engine is on another machine, and {way.why}")
        loud = (f"WARNING: the engine is on another machine, and {way.why}: this run computes on the CPU.",)
        return Choice(engine, image, way, GpuRequest("none"), "cpu", (), why, probe, loud)
    if gpus.kind == "count":
        way = GpuWay("device-request", "a number of cards was asked for")
    return Choice(engine, image, way, gpus, "gpu" if gpus.demanded else "auto", None, why, probe)


def _of_cluster(engine: Engine, image: ImageRef | None, gpus: GpuRequest, why: str, probe: Probe) -> Choice:
    """Request a number of cards on each node, whichever the cluster picks; the trainer reports which they were."""
    if gpus.kind not in ("auto", "count"):
        raise BadGpuRequest(f"--gpus {gpus}: {engine.name} allocates GPUs by number.", "On each node:\n    --gpus 1")
    way = engine.gpu_way()
    if way.name == "none":
        if gpus.demanded:
            raise NoGpu(str(gpus), f"engine {engine.name}: {way.why}")
        loud = (f"WARNING: {way.why}: this run computes on the CPU.",)
        return Choice(engine, image, way, GpuRequest("none"), "cpu", (), why, probe, loud)
    return Choice(engine, image, way, GpuRequest("count", count=gpus.count or 1), "gpu", None, why, probe)


def _named_or_all(
    gpus: GpuRequest, probe: Probe, shown: Collection[str] | None
) -> tuple[GpuRequest, tuple[str, ...] | None]:
    """Name the cards by UUID: CUDA and NVML may index them differently. All of them are named only if there are others,
    which may not compute. `shown`: what the caller's own variable leaves visible. Raise NoGpu. The UUIDs are None if
    there are MIG devices, but this user may see none of them."""
    known = _known(probe)
    if gpus.kind == "devices":
        uuids = tuple(_named(item, known, gpus, probe) for item in gpus.devices)
        if shown is not None and (hidden := [uuid for uuid in uuids if uuid in known.values() and uuid not in shown]):
            raise NoGpu(str(gpus), f"{free_cards.VARIABLE}={os.environ[free_cards.VARIABLE]} hides {', '.join(hidden)}")
        return GpuRequest("devices", devices=uuids), uuids
    if shown is None and known and len(probe.usable) < len(probe.cards):
        gpus = replace(gpus, devices=tuple(known.values()))
    return gpus, tuple(known.values() if shown is None else shown) or None


def _known(probe: Probe) -> dict[str, str]:
    """Return the UUIDs of everything programs can compute on, by index: 0 is a card, 0:1 a MIG device."""
    return {name: one.uuid for name, one in compute_devices(probe.cards).items() if one.uuid}


def _handed(devices: Collection[str], probe: Probe, way: GpuWay) -> Iterator[str]:
    """Yield `devices` by the names that whatever passes them on knows: UUIDs or indices.

    Only NVML knows a Jetson's bare UUID: CUDA needs GPU- before it, the toolkit there needs the index; a Thor's, too,
    although its UUID has GPU-.
    https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/pkg/nvcdi/lib-csv.go
    https://github.com/NVIDIA/NemoClaw/issues/9154
    Not every CDI description names the cards by UUID; WSL's names no single card, only all of them together.
    https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/pkg/nvcdi/lib-wsl.go
    """
    indices = {uuid: name for name, uuid in _known(probe).items()}
    by_index = {card.uuid for card in probe.cards if any(word in (card.name or "") for word in _JETSONS)}
    for uuid in devices:
        index, is_known = indices.get(uuid, uuid), uuid.startswith(("GPU-", "MIG-"))
        if way.name == "cdi":
            is_known = uuid in way.described or (is_known and index not in way.described and "all" in way.described)
        elif uuid in by_index:
            is_known = False
        yield uuid if is_known else index


def _free(
    gpus: GpuRequest,
    probe: Probe,
    unfit: Collection[str],
    held: Mapping[str, str],
    shown: Collection[str] | None,
    engine: Engine,
) -> tuple[GpuRequest, tuple[str, ...] | None, tuple[str, ...], str]:
    """Choose the strongest free cards, one under auto, and say by which rule, and loudly if that one is not free. Raise
    GpuError if there are too few for a demand."""
    try:
        free = free_cards.choose(gpus.count or 1, unfit, held, shown)
    except GpuError:
        if gpus.demanded:
            raise
        return *_shared(probe, unfit, held, shown, engine), ""
    return GpuRequest("devices" if gpus.demanded else "auto", devices=free.uuids), free.uuids, (), free.rule


def _shared(
    probe: Probe, unfit: Collection[str], held: Mapping[str, str], shown: Collection[str] | None, engine: Engine
) -> tuple[GpuRequest, tuple[str, ...] | None, tuple[str, ...]]:
    """Choose the least used card, with a loud line; all of them if the driver can't tell one from another; none if each
    is in use and allows one program only."""
    one = None
    with contextlib.suppress(GpuError):
        one = shared_card.choose(unfit, held, shown, in_container=engine.has_containers)
    if one is None:
        return *_named_or_all(GpuRequest(), probe, shown), ()
    if one.uuid is None:
        loud = f"WARNING: {_NONE_TO_SHARE} ({one.users}): this run computes on the CPU."
        return GpuRequest("none"), (), (loud,)
    loud = f"WARNING: no card is free ({one.users}): this run shares GPU {one.name}, and its speed is not the card's."
    return GpuRequest("auto", devices=(one.uuid,)), (one.uuid,), (loud,) if one.users else ()


def _named(item: str, known: Mapping[str, str], gpus: GpuRequest, probe: Probe) -> str:
    """Return the UUID that an index, a UUID or the beginning of one means. A MIG device that this user may not see is
    returned unchanged: only the driver knows it. Raise NoGpu."""
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


def _way(engine: Engine, gpus: GpuRequest) -> GpuWay:
    way = engine.gpu_way()
    if way.is_final and gpus.demanded:
        raise NoGpu(str(gpus), way.why)
    if way.name == "none" and gpus.demanded and engine.has_containers:
        # --gpus may still work; the daemon's own answer is better than a guess.
        return GpuWay("device-request", "nothing else is available")
    return way
