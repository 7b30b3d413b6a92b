"""Everything before a start: choose, check, find the data, pull, and write the record before anything runs."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ngcdl import __version__, choice, hostfacts, trainings
from ngcdl.engines.base import Engine, SharesCpus
from ngcdl.engines.values import Order
from ngcdl.errors import BadOption, NoGpu
from ngcdl.frozen import dataclass
from ngcdl.judging.verdicts import Verdicts
from ngcdl.planning import plan, validation
from ngcdl.planning.asked import (
    Asked,
    check_waiting,
    check_without_container,
    check_without_packages,
    check_without_screen,
    look_ahead,
)
from ngcdl.planning.show import Show
from ngcdl.record import Image, Machine, Run
from ngcdl.running import gpu_claims, hostfolders, packages, sources, turn
from ngcdl.running.context import Context
from ngcdl.running.owner import this_process
from ngcdl.settings import Settings, home
from ngcdl.spec import Placement, RunSpec
from ngcdl.storing.store import NameTaken, Store

if TYPE_CHECKING:
    from ngcdl import dataset
    from ngcdl.given_cards import Need

# TensorFlow takes all of a card's memory at once, unless told to take it as it needs it; the program that shares the
# card would then fail at its next allocation. https://www.tensorflow.org/guide/gpu#limiting_gpu_memory_growth
_GROWTH = ("TF_FORCE_GPU_ALLOW_GROWTH", "true")


@dataclass(frozen=True)
class Judged:
    """What is chosen for a run, and can run there as far as is known; of data and image nothing is fetched yet."""

    asked: Asked
    picked: choice.Choice
    placement: Placement | None
    verdicts: Verdicts


@dataclass(frozen=True)
class Settled:
    """What is decided and fetched for a run, with nothing recorded yet: any number of runs can begin from it.

    `placement` is the chosen place of these runs on a cluster; `cache` is as in Order, but the folder need not exist
    yet. `image_id` is the engine's own id of an image without a digest."""

    asked: Asked
    picked: choice.Choice
    data: dataset.Dataset | None
    digest: str | None
    target: str
    placement: Placement | None = None
    cache: Path | None = None
    image_id: str | None = None
    added: packages.Packages | None = None


@dataclass(frozen=True)
class Ready:
    """A run that is decided, fetched and recorded as running, but not started yet. `awaits`: the cards that it must get
    before (`with_cards`)."""

    engine: Engine
    order: Order
    run: Run
    awaits: Need | None = None


def decide(asked: Asked, context: Context) -> tuple[choice.Choice, RunSpec]:
    """Choose engine and cards, and plan the run. Nothing is downloaded: if CIFAR-10 is not cached, the plan has the
    synthetic data set, and a line says so."""
    return _planned(judged(asked, context, dry=True), context, dry=True)[:2]


def judged(asked: Asked, context: Context, dry: bool = False, after: tuple[str, choice.Choice] | None = None) -> Judged:
    """Choose engine and cards, and judge the image for them; with `dry` without a question to a registry. Raise
    NgcdlError.

    `after`: the name of these runs among others that are compared, and what was chosen, and said, for those before."""
    _check(asked)
    verdicts = Verdicts(asked, context.settings)
    picked = _chosen(asked, context, verdicts, dry)
    _tell(picked, asked, context.show, after)
    if picked.engine.is_cluster:
        check_without_screen(asked, picked.engine.name)
        if not dry:
            _ = picked.engine.version  # raises if the cluster can't be reached: before anything is fetched for it
    if not dry:
        look_ahead(asked)
    placement = asked.placement
    if picked.engine.is_cluster:
        placement = verdicts.placement(picked, context.show, dry)
    elif not dry:
        verdicts.tell(picked, context.show)
    if asked.workload:
        validation.check_batch(asked.workload, picked.gpus, asked.nodes)
        validation.check_place(asked.workload, picked.image, asked.device or picked.device)
    return Judged(asked, picked, placement, verdicts)


def _planned(
    chosen: Judged, context: Context, dry: bool, data: dataset.Dataset | None = None
) -> tuple[choice.Choice, RunSpec, dataset.Dataset | None]:
    """Find the data, unless an earlier call found `data`, and plan the run."""
    asked, picked = chosen.asked, chosen.picked
    if asked.workload:
        if picked.engine.shares_files:
            data = data or sources.data(asked.workload, context.settings, context.show, dry)
        else:
            data = data or sources.data_of_claim(asked.workload, asked.placement)
            if data.kind:
                what = f"SYNTHETIC, {data.note}" if data.note else f"what the claim {data.folder} has"
                context.show.say(f"data: {what}")
    spec = _spec(asked, picked, chosen.placement, data, context.store)
    if picked.engine.has_containers and not picked.engine.is_cluster and picked.engine.facts().is_snap:
        picked = _in_snap(picked, spec, context)
    return picked, spec, data


def _check(asked: Asked) -> None:
    """Raise BadOption if what was asked for makes no sense on any engine."""
    if asked.workload:
        validation.check_workload(asked.workload, asked.nodes, asked.gpus)
    elif asked.own is None:
        raise BadOption(
            "Nothing to run: name an image, a training with --train, or a command after --.",
            "    ngcdl run --train cifar10\n    ngcdl run -- python3 train.py",
        )
    if asked.waits:
        check_waiting(asked)


def _chosen(asked: Asked, context: Context, verdicts: Verdicts, dry: bool) -> choice.Choice:
    """Choose engine and cards. Raise NoGpu, or BadOption for an option that makes no sense on that engine."""
    unfit = verdicts.unfit if not dry and not asked.force else lambda *_: ()
    is_training, taken = bool(asked.workload), partial(gpu_claims.claimed, context.store)
    usual = trainings.bundled(asked.workload.name).image_frameworks if asked.workload else choice.DEFAULT_FRAMEWORKS
    wanted = choice.Wanted(
        asked.engine, asked.image, asked.gpus, context.settings.registry, is_training, unfit, taken, usual, asked.waits,
        repeats=asked.repeats,
    )  # fmt: skip
    try:
        picked = choice.choose(wanted)
    except NoGpu as error:
        if asked.takes_wait and error.is_busy:
            error.leads_on()
        raise
    if asked.device == "gpu" and picked.device == "cpu":
        raise NoGpu("gpu", picked.way.why, option="--device")
    if not picked.engine.has_containers:
        check_without_container(asked)
    elif not picked.engine.shares_files or picked.engine.is_cluster:
        check_without_packages(asked, picked.engine.name)
    return choice.without_gpu_warnings(picked, asked.device)


def _tell(picked: choice.Choice, asked: Asked, show: Show, after: tuple[str, choice.Choice] | None) -> None:
    """Show what was chosen, and why; `after` is as in `judged`."""
    chosen = f"{after[0]}:" if after and after[1].why == picked.why else f"{picked.why};"
    show.say(f"{chosen} GPUs: {_gpu_words(picked)}")
    for line in picked.loud:
        show.say(line)
    if picked.shares and asked.takes_wait:
        show.say("with --wait it waits until a card is free")


def _in_snap(picked: choice.Choice, spec: RunSpec, context: Context) -> choice.Choice:
    """Say, and add to the choice, which folders of the run Docker from snap may not see."""
    from ngcdl.engines.docker import snap

    folders = [Path(mount.host) for mount in spec.mounts if not mount.is_volume]
    cache = hostfolders.cache_of(picked, spec, context.settings)
    folders += [folder for folder in (context.store.root, cache) if folder]
    hidden = snap.out_of_sight(folders, home(os.environ))
    if not hidden:
        return picked
    said = snap.warning(hidden)
    context.show.say(said)
    return replace(picked, loud=(*picked.loud, said))


def _spec(
    asked: Asked, picked: choice.Choice, placement: Placement | None, data: dataset.Dataset | None, store: Store
) -> RunSpec:
    """Return the plan of what was asked for, with the chosen engine, image and cards."""
    choices = hostfolders.choices_of(asked.workload, picked.image, store) if picked.engine.shares_files else None
    assert data or not asked.workload  # a training always has a data set, if only the synthetic one
    folder = data.folder if data else None
    spec = plan.of(asked, picked.image, picked.gpus, picked.device, folder, store.folder, choices)
    if asked.workload and picked.shares:
        spec = replace(spec, environment=(*spec.environment, _GROWTH))
    if picked.engine.has_containers:
        spec = replace(spec, user=None if asked.root else picked.engine.caller())
    placed = picked.engine.placed(placement)
    if placed and isinstance(picked.engine, SharesCpus):
        placed = picked.engine.with_cpus(placed, spec.gpus.per_node)
    return plan.with_extra(replace(spec, placement=placed), asked.extra)


def prepare(asked: Asked, context: Context, *, is_left: bool = False) -> Ready:
    """Do everything that comes before the start. If NgcdlError is raised, nothing is recorded.

    A run that waits for its cards does so here, unless it `is_left` to a watcher, which then waits."""
    asked, store, say = _fed(asked), context.store, context.show.say
    settled = settle(asked, context)
    need = settled.picked.awaits
    if need and not is_left:
        with turn.awaited(need, store, say) as cards:
            gpus = need.filled(settled.picked.gpus, cards)
            picked = replace(settled.picked, gpus=gpus, uuids=cards, awaits=None)
            say(f"GPUs: {_gpu_words(picked)}")
            return begin(replace(settled, picked=picked), store)

    def choose_again() -> Settled:
        return settle(fetched(asked), context, settled.data)

    with gpu_claims.still_free(taken_free(settled), store, say, settled, choose_again) as found:
        return begin(found, store)


def _fed(asked: Asked) -> Asked:
    """Return `asked` so that a command on this host reads what is piped into ngcdl, as without ngcdl."""
    if asked.own is None or asked.image or asked.own.tty:
        return asked
    from ngcdl.engines.local import program

    return replace(asked, own=replace(asked.own, stdin=True)) if program.is_fed() else asked


def fetched(asked: Asked) -> Asked:
    """Return `asked` for a second choice of cards: the image has just been pulled, and others wait."""
    return replace(asked, always_pull=False)


def held(settled: Settled) -> tuple[str, ...]:
    """Return the cards that these runs have to themselves."""
    asked, picked = settled.asked, settled.picked
    device = (asked.device or picked.device) if asked.workload else None
    return (picked.uuids or ()) if gpu_claims.is_holding(device, picked.gpus) else ()


def taken_free(settled: Settled) -> tuple[str, ...]:
    """Return the cards that were chosen because they were free. They may be taken by now: data and image were fetched
    meanwhile."""
    asked, picked = settled.asked, settled.picked
    takes_free = asked.gpus.kind == "count" or (asked.gpus.kind == "auto" and asked.workload is not None)
    is_free = takes_free and picked.gpus.devices and not (picked.shares or picked.awaits)
    return (picked.uuids or ()) if is_free else ()


def settle(asked: Asked, context: Context, data: dataset.Dataset | None = None) -> Settled:
    """Decide and fetch all that a run needs. Raise NgcdlError. `data` is the data set that an earlier call found."""
    context.store.ensure_writable()
    return provided(judged(asked, context), context, data)


def provided(chosen: Judged, context: Context, data: dataset.Dataset | None = None) -> Settled:
    """Fetch all that a run needs. Raise NgcdlError. `data` is as in `settle`."""
    asked = chosen.asked
    picked, spec, data = _planned(chosen, context, False, data)
    hostfolders.make_choices(hostfolders.choices_of(asked.workload, picked.image, context.store))
    digest, image_id, target = sources.target(picked, asked, context.show, chosen.verdicts)
    cache = hostfolders.cache_of(picked, spec, context.settings)
    added, root = None, _packages_root(context.settings)
    if spec.packages:
        made, _ = hostfolders.made_cache(cache)
        added = packages.installed(picked.engine, spec, target, made, root, context.show, asked.installed)
    return Settled(asked, picked, data, digest, target, spec.placement, cache, image_id, added)


def planned_packages(picked: choice.Choice, spec: RunSpec, settings: Settings) -> Path | None:
    """Return the folder that a run would see at inside.PACKAGES, which need not exist yet; None if it adds nothing."""
    if picked.image is None or not spec.packages:
        return None
    held = picked.engine.has(picked.image)
    known = (picked.engine.target(picked.image, held.digest) if held.digest else held.id) if held else str(picked.image)
    return packages.folder_of(_packages_root(settings), spec, known) / packages.BASE


def _packages_root(settings: Settings) -> Path:
    """Return the folder that keeps what --pip adds to images."""
    return settings.cache / "packages"


def doubt(settled: Settled, store: Store) -> str | None:
    """Return why the cluster may never place these runs, None if there is no reason. Raise NotPlaceable if it never
    can. Record nothing."""
    picked, run_id = settled.picked, "planned"
    spec = _spec(settled.asked, picked, settled.placement, settled.data, store)
    return picked.engine.fits(Order(spec, run_id, store.folder(run_id), settled.target, picked.way.name))


def begin(settled: Settled, store: Store, *notes: str) -> Ready:
    """Record a run as running; one that must still wait for its cards holds none. Raise StateNotWritable."""
    picked, data, digest = settled.picked, settled.data, settled.digest
    spec = _spec(settled.asked, picked, settled.placement, data, store)
    need = picked.awaits
    known = replace(spec, gpus=settled.asked.gpus) if need else spec
    cache, lost = hostfolders.made_cache(settled.cache)
    usual = spec.workload.name if spec.workload else (picked.image.framework if picked.image else "run")
    what = settled.asked.name or usual
    run = Run(
        id=store.new_id(what),
        status="running",
        started=time.time(),
        engine=picked.engine.name,
        engine_version=picked.engine.version if spec.workload or picked.image else None,  # locally it is this Python's
        engine_id=picked.engine.identity,
        gpu_way=picked.way.name,
        image=Image(str(picked.image) if picked.image else None, digest, settled.image_id),
        dataset=data.kind if data else None,
        dataset_note=data.note if data else None,
        gpus=None if need else picked.uuids,
        machine=Machine() if picked.engine.is_cluster else hostfacts.machine(picked.engine, picked.probe),
        spec=known.as_json(),
        program=None if spec.workload or picked.image else settled.target,
        packages=settled.added.installed if settled.added else None,
        owner=None if picked.engine.is_cluster else this_process(),
        reason=f"waits since {time.strftime('%F %R')} for {turn.cards(need)}" if need else None,
        notes=(*picked.loud, *notes, *lost),
        ngcdl=__version__,
    )
    while True:
        try:
            folder = store.create(run)
            break
        except NameTaken:
            run = replace(run, id=store.new_id(what))
    added = settled.added.folder if settled.added else None
    if picked.engine.has_containers and picked.engine.shares_files and not picked.engine.is_cluster:
        hostfolders.make_mount_points(spec.mounts)
    order = Order(spec, run.id, folder, settled.target, picked.way.name, cache=cache, packages=added)
    return Ready(picked.engine, order, run, need)


def with_cards(ready: Ready, need: Need, cards: tuple[str, ...]) -> Ready:
    """Return a run that has waited with the cards that became free."""
    spec = replace(ready.order.spec, gpus=need.filled(ready.order.spec.gpus, cards))
    run = replace(ready.run, gpus=cards, spec=spec.as_json(), reason=None, started=time.time())
    return Ready(ready.engine, replace(ready.order, spec=spec), run)


def _gpu_words(picked: choice.Choice) -> str:
    if picked.gpus.kind == "none" or picked.uuids == ():
        return "none" if picked.loud else f"none ({picked.way.why})"
    alike: dict[str | None, list[str]] = {}  # a server has eight of one name
    for card in picked.probe.cards:
        if card.uuid in (picked.uuids or ()):
            alike.setdefault(card.name, []).append(str(card.index))
    cards = [f"{', '.join(indices)} ({name})" for name, indices in alike.items()]
    cards = [turn.cards(picked.awaits)] if picked.awaits else cards
    way = "" if not picked.engine.has_containers else f", by {picked.way.name} ({picked.way.why})"
    return (", ".join(cards) or str(picked.gpus)) + way
