"""Decides where and on what a run will compute: once, before anything is fetched, with the reason in words."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import partial

from ngcdl import engines, given_cards, hostfacts
from ngcdl.engines.base import Engine, Selective
from ngcdl.engines.values import GpuWay
from ngcdl.errors import BadGpuRequest, BadOption, EngineElsewhere, EngineError, NoGpu
from ngcdl.frozen import dataclass
from ngcdl.given_cards import Given, Need, Seen
from ngcdl.spec import USUAL, GpuRequest, ImageRef, kind_of
from ngcdl.telemetry import bus, free_cards
from ngcdl.telemetry import gpu as nvml
from ngcdl.telemetry.card import Card, Probe, whole_cards

# If no image is named: the newest image of the first of these frameworks that has one for this host.
DEFAULT_FRAMEWORKS = ("tensorflow", "pytorch")
NO_GPU = GpuWay("none", "no GPU was asked for")
NONE_BEFORE = GpuWay("none", "that run had none")
_BY_DOCKER = "NVIDIA's images may be able to use the card, by Docker and NVIDIA's container toolkit"
_MENDED = " ngcdl doctor says what is missing, and what to type."
_AMBIGUOUS = (
    f"WARNING: {free_cards.VARIABLE}={{}}: CUDA counts the fastest card first, the driver by the cards' places on the "
    "bus. So which card this run uses is not known, and none is measured: name it there by UUID (ngcdl gpu), or set "
    f"{free_cards.ORDER}=PCI_BUS_ID."
)
Unfit = Callable[[Engine, ImageRef, Probe], Collection[str]]


@dataclass(frozen=True)
class Choice:
    """`gpus` is the request with the free cards named; `device` is what a training must compute on: auto, cpu or gpu.

    `uuids` are the run's GPUs, None if this host's NVML can't tell. `loud` has warnings that nobody may miss. `shares`:
    no card was free, and the run gets one that others use. `awaits`: what the run must still wait for; `gpus` and
    `uuids` are then the cards that it gets if all are free. `useless`: the cards, by UUID, that the framework which is
    installed for a training without an image can't use, each with the reason."""

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
    awaits: Need | None = None
    useless: Mapping[str, str] = field(default_factory=dict)

    @property
    def has_gpu(self) -> bool:
        """Whether to install for a GPU: this host has a card that a training without an image can use, be it this run's
        or not, and no one asked for none."""
        is_unwanted = self.way in (NO_GPU, NONE_BEFORE)
        return not is_unwanted and any(card.uuid not in self.useless for card in self.probe.usable)


@dataclass(frozen=True)
class Wanted:
    """What was asked for. `engine` is an engine's name, or auto. `unfit` returns the UUIDs of cards that the image
    can't use, which are never chosen as free cards; it is called only on hosts with several cards. `held` returns the
    cards that other runs hold, with the ids of these runs; such cards are not free either. `usual`: the frameworks to
    take an image from if no image was named. `waits`: the run waits for its cards if they are not free. `repeats`: a
    recorded run had this, and nobody typed it."""

    engine: str
    image: ImageRef | None
    gpus: GpuRequest
    registry: str
    is_training: bool = False
    unfit: Unfit = lambda *_: ()
    held: Callable[[], Mapping[str, str]] = dict
    usual: Sequence[str] = DEFAULT_FRAMEWORKS
    waits: bool = False
    repeats: bool = False


def choose(wanted: Wanted) -> Choice:
    """Choose engine, GPU way and cards. Raise GpuError if a demanded GPU is unavailable, EngineError or BadOption.

    If no image is named and the engine is `auto`, a command runs on this host, and a training runs where it gets the
    GPU. A training has a replica on each of its cards: with --gpus auto it gets one free card, and leaves the rest to
    others; if no card is free, it shares one."""
    if kind_of(wanted.engine).is_cluster:
        probe = Probe()  # NVML here can't see nodes
    else:
        engines.await_begun()  # a driver is asked in a fork
        probe = nvml.probe()
    try:
        engine, image, why = _engine(wanted, probe)
    except EngineError as error:
        _check_name(wanted.image, wanted.registry, error)
        raise
    if not (engine.is_cluster or engine.shares_files):
        raise EngineElsewhere("its containers can't see this machine's folders.")
    useless = _useless(engine, probe) if wanted.is_training else {}
    way = NONE_BEFORE if wanted.repeats else NO_GPU
    without = Choice(engine, image, way, GpuRequest("none"), "cpu", (), why, probe, useless=useless)
    if wanted.gpus.kind == "none":
        return without
    if engine.is_cluster:
        return _of_cluster(wanted.gpus, without)
    has_our_cards = hostfacts.has_our_cards(engine)
    if wanted.waits and not has_our_cards:
        raise BadOption("--wait: the engine is on another machine, whose GPUs are not seen here.", "Leave it out.")
    return _here(wanted, without) if has_our_cards else _elsewhere(wanted.gpus, without)


def _check_name(image: ImageRef | None, registry: str, error: EngineError) -> None:
    """Raise BadReference if `image` is a name that no registry has: its remedy comes before that of `error`."""
    from ngcdl.preflight import meant

    if image:
        meant.without_engine(image, registry, error)


def _on_cpu(without: Choice, way: GpuWay, *loud: str) -> Choice:
    """Return the choice of the CPU; `way` says why there is no GPU, and `loud` has the warnings about it."""
    return replace(without, way=way, loud=loud)


def _useless(engine: Engine, probe: Probe) -> dict[str, str]:
    """Return the UUIDs of the cards that the framework which `engine` installs can't use, each with the reason."""
    if not isinstance(engine, Selective):
        return {}
    version = probe.driver.version if probe.driver else None
    judged = ((card, engine.why_unfit(card.compute_capability, version)) for card in probe.usable)
    return {
        card.uuid: f"GPU {card.index} ({card.name}) is of no use to this run: {why}"
        for card, why in judged
        if why and card.uuid
    }


def _here(wanted: Wanted, without: Choice) -> Choice:
    """Choose among this host's cards."""
    gpus, engine, probe, useless = wanted.gpus, without.engine, without.probe, without.useless
    named = None if engine.has_containers else free_cards.visible_to_cuda(probe.cards, os.environ)
    seen = Seen(probe, named, engine.has_containers)
    if engine.has_containers and not wanted.waits and hostfacts.is_unseen_jetson(probe):
        return _on_unseen_jetson(gpus, without)
    if why := seen.why_none:
        return _without_card(wanted, why, without)
    shown = {card.uuid for card in probe.usable} if seen.shown is None else whole_cards(seen.shown, probe.cards)
    if shown <= useless.keys():  # some card is shown
        return _without_use(wanted, next(why for uuid, why in useless.items() if uuid in shown), without)
    unfit = wanted.unfit(engine, without.image, probe) if len(probe.usable) > 1 and without.image else ()
    seen = replace(seen, unfit=unfit or useless, held=wanted.held)
    if wanted.waits:
        given = given_cards.for_waiting(gpus, seen, is_training=wanted.is_training)
    else:
        given = (given_cards.for_training if wanted.is_training else given_cards.for_command)(gpus, seen)
    if bad := sorted(whole_cards(given.uuids or (), probe.cards) & useless.keys()):
        return _without_use(wanted, useless[bad[0]], without)
    if given.gpus.kind == "none":
        return _on_cpu(without, replace(NO_GPU, why=given_cards.NONE_TO_SHARE), *given.loud)
    way = _way(engine, given.gpus)
    if way.name == "none" and engine.has_containers:
        said = f"this host has a GPU, but Docker can't pass it on: {way.why}"
        if wanted.waits:
            raise NoGpu(str(gpus), said)
        mended = "" if way.is_final or os.environ.get("NGCDL_GPU_WAY") else _MENDED
        return _on_cpu(without, way, f"WARNING: {said}. This run computes on the CPU.{mended}")
    is_by_variable = bool(named) and not (wanted.is_training or given.gpus.devices)
    return _with(given, way, without, waits=wanted.waits, is_by_variable=is_by_variable)


def _without_card(wanted: Wanted, why: str, without: Choice) -> Choice:
    """Choose for a host that has no card for this run; `why` says so. Raise NoGpu if a GPU is demanded."""
    if wanted.gpus.demanded or wanted.waits:
        raise NoGpu(str(wanted.gpus), why)
    way = replace(NO_GPU, why=why)
    if not (without.engine.has_containers or wanted.is_training):
        return _untold(wanted.gpus, way, without)
    return _on_cpu(without, way, f"WARNING: {why}: this run computes on the CPU.{_mended(without.probe)}")


def _mended(probe: Probe) -> str:
    """Return a sentence that says what to type if a card of this host can't be seen by `probe`, and could be; "" if
    there is none, as far as known."""
    may_be_seen = not probe.cards and (not probe.absent or bus.cards())
    return _MENDED if may_be_seen else ""


def _with(given: Given, way: GpuWay, without: Choice, *, waits: bool, is_by_variable: bool) -> Choice:
    """Return the choice of the cards that the run is given, or waits for, named as `way` passes them on.
    `is_by_variable`: nothing but the caller's CUDA_VISIBLE_DEVICES names them to CUDA."""
    probe, uuids, loud = without.probe, given.uuids, given.loud
    if is_by_variable and free_cards.is_ambiguous(probe.cards, os.environ):
        uuids, loud = None, (*loud, _AMBIGUOUS.format(os.environ[free_cards.VARIABLE]))
    names = dict(zip(given.among, given_cards.handed(given.among, probe, way), strict=True))
    return replace(
        without,
        way=way,
        gpus=replace(given.gpus, devices=tuple(given_cards.handed(given.gpus.devices, probe, way))),
        device="gpu" if given.gpus.demanded else "auto",
        uuids=uuids,
        why=f"{without.why}; {given.rule}" if given.rule else without.why,
        loud=(*loud, *given_cards.without_fabric(probe, given.among or uuids)),
        shares=bool(given.loud),
        awaits=Need(len(given.gpus.devices), names) if waits else None,
    )


def _without_use(wanted: Wanted, why: str, without: Choice) -> Choice:
    """Choose the CPU for a training whose framework can't use its cards. Raise NoGpu if a GPU is demanded."""
    if wanted.gpus.demanded or wanted.waits:
        instead = f"{_BY_DOCKER}:\n    ngcdl doctor\nTo run without a GPU, say so:\n    ngcdl run ... --gpus none"
        raise NoGpu(str(wanted.gpus), why, instead=instead)
    loud = f"WARNING: {why}: this run computes on the CPU. {_BY_DOCKER} (ngcdl doctor)."
    return _on_cpu(without, replace(NO_GPU, why=why), loud)


def _untold(gpus: GpuRequest, way: GpuWay, without: Choice) -> Choice:
    """Choose for a command on this host if NVML shows no card that the command may use. The command may compute on a
    GPU all the same: CUDA may work where NVML does not, as under WSL and on a Jetson."""
    is_known = bool(without.probe.cards) or without.probe.absent
    then = "this run computes on the CPU" if is_known else "whether this run computes on a GPU is not known"
    loud = (f"WARNING: {way.why}: {then}.{_mended(without.probe)}",)
    return replace(without, way=way, gpus=gpus, device="auto", uuids=() if is_known else None, loud=loud)


def without_gpu_warnings(picked: Choice, device: str | None) -> Choice:
    """Drop the warnings about the GPU, or the lack of one, if the CPU was requested."""
    return replace(picked, loud=()) if device == "cpu" else picked


def _engine(wanted: Wanted, probe: Probe) -> tuple[Engine, ImageRef | None, str]:
    """Return the engine, the image that it is to run, if any, and why these."""
    name, image, gpus, is_training = wanted.engine, wanted.image, wanted.gpus, wanted.is_training
    on_each = is_training and gpus.kind in ("all", "devices")
    named = "as in the run that is repeated" if wanted.repeats else "it was named"
    tagged = partial(_image, wanted.registry, _meant(gpus, probe), wanted.usual, on_each=on_each)
    if name == "local":
        if image:
            usual = "--train cifar10" if is_training else "-- python3 train.py"
            raise BadOption("--engine local runs what this host has, not an image.", f"    ngcdl run {usual}")
        return engines.connect("local"), None, f"engine local: {named}"
    if name == "auto" and not image and not is_training:
        return engines.connect("local"), None, "engine local: no image was named, so the command runs on this host"
    if name != "auto" or image:
        why = named if name != "auto" else "an image was named"
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
    return docker, image, f"{release}engine docker: this host has a GPU"


def named_default(registry: str, environ: Mapping[str, str] = os.environ) -> ImageRef | None:
    from ngcdl.preflight import meant

    named = environ.get("NGCDL_DEFAULT_IMAGE")
    return meant.typed(named, registry) if named else None


def default_image(registry: str, environ: Mapping[str, str] = os.environ) -> ImageRef:
    """Return the image in NGCDL_DEFAULT_IMAGE, else the newest image that runs here, as far as can be told without the
    cards."""
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
    """Return the image to run, and in words what its name left open: the release, or whose image it is.

    `on_each`: the image must run on all cards of `probe`."""
    from ngcdl.preflight import meant
    from ngcdl.preflight.facts import HostFacts

    image = image or named_default(registry)
    if image:
        image = meant.settled(image, registry, engine.has if engine else lambda _: None)
        if image.id and image.short:
            return image, f"{meant.own_in_words(image)}; "
    if image and not meant.is_open(image):
        return image, ""
    host = hostfacts.gather(None, probe)
    if engine and not hostfacts.has_our_cards(engine):  # the verdict on its nodes comes later
        host = HostFacts(host.architecture, elsewhere="its cards can't be seen from here")
    frameworks = [image] if image else [meant.named(name, registry) for name in usual]
    image, words = meant.chosen(frameworks, host, on_each=on_each)
    return image, f"{words}; "


def _meant(gpus: GpuRequest, probe: Probe) -> Probe:
    """Return `probe` with only the cards that `gpus` names by index, UUID or the beginning of a UUID; with no cards if
    no GPU is wanted, and with all cards that may compute if none is named."""
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


def _elsewhere(gpus: GpuRequest, without: Choice) -> Choice:
    """Choose for a daemon on another machine: NVML here can't see that machine's GPUs, so the check in the container
    decides."""
    way = without.engine.gpu_way()
    if gpus.kind == "count" and way.name != "none":
        way = GpuWay("device-request", "a number of cards was asked for")
    return _unseen(gpus, without, way, "the engine is on another machine")


def _on_unseen_jetson(gpus: GpuRequest, without: Choice) -> Choice:
    """Choose for a Jetson without NVML: it has one GPU, and the check in the container decides."""
    if gpus.count and gpus.count > 1:
        raise NoGpu(str(gpus), "this is a Jetson, which has one GPU")
    return _unseen(gpus, without, _way(without.engine, gpus), "Docker runs on a Jetson")


def _unseen(gpus: GpuRequest, without: Choice, way: GpuWay, where: str) -> Choice:
    """Choose the cards that are asked for, without knowing which there are; `where` says what is known."""
    if way.name == "none":
        if gpus.demanded:
            raise NoGpu(str(gpus), f"{where}, and {way.why}")
        return _on_cpu(without, way, f"WARNING: {where}, and {way.why}: this run computes on the CPU.")
    return replace(without, way=way, gpus=gpus, device="gpu" if gpus.demanded else "auto", uuids=None)


def _of_cluster(gpus: GpuRequest, without: Choice) -> Choice:
    """Request a number of cards on each node, whichever the cluster picks; the trainer reports which they were."""
    engine = without.engine
    if gpus.kind not in ("auto", "count"):
        raise BadGpuRequest(f"--gpus {gpus}: {engine.name} allocates GPUs by number.", "On each node:\n    --gpus 1")
    way = engine.gpu_way()
    if way.name == "none":
        if gpus.demanded:
            raise NoGpu(str(gpus), f"engine {engine.name}: {way.why}")
        return _on_cpu(without, way, f"WARNING: {way.why}: this run computes on the CPU.")
    return replace(without, way=way, gpus=GpuRequest("count", count=gpus.count or 1), device="gpu", uuids=None)


def _way(engine: Engine, gpus: GpuRequest) -> GpuWay:
    way = engine.gpu_way()
    if way.is_final and gpus.demanded:
        raise NoGpu(str(gpus), way.why)
    if way.name == "none" and gpus.demanded and engine.has_containers:
        # --gpus may still work; the daemon's own answer is better than a guess.
        return GpuWay("device-request", "nothing else is available")
    return way
