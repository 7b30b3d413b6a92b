"""All that comes before a start: choose, check, data, pull, and the record that exists before anything runs."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ngcdl import __version__, choice, fetch, held, plan, trainings
from ngcdl.asked import Asked, Show, look_ahead, nothing_of_a_container, nothing_of_a_screen
from ngcdl.engines.base import Engine, Order
from ngcdl.errors import BadOption, NgcdlError, NoGpu, StateNotWritable, UnknownRepository, UnknownTag
from ngcdl.owner import this_process
from ngcdl.record import Image, Machine, Run
from ngcdl.settings import Settings
from ngcdl.spec import ImageRef, Placement, RunSpec, Workload
from ngcdl.store import NameTaken, Store
from ngcdl.telemetry import host
from ngcdl.verdicts import Verdicts

if TYPE_CHECKING:
    from ngcdl import dataset
    from ngcdl.imagefacts import Found


@dataclass(frozen=True)
class Settled:
    """All is decided and fetched, nothing is recorded: as many runs as are wanted can begin from it.

    `placement` is where they go on a cluster, as it was chosen."""

    asked: Asked
    picked: choice.Choice
    data: dataset.Dataset | None
    digest: str | None
    target: str
    placement: Placement | None = None


@dataclass(frozen=True)
class Ready:
    """All is decided and fetched; `run` is recorded as running, nothing runs yet."""

    engine: Engine
    order: Order
    run: Run


def decide(
    asked: Asked,
    settings: Settings,
    shelf: Store,
    show: Show,
    dry: bool = False,
    data: dataset.Dataset | None = None,
    verdicts: Verdicts | None = None,
) -> tuple[choice.Choice, RunSpec, dataset.Dataset | None]:
    """Choose and plan. With `dry` nothing is downloaded: without a cached CIFAR-10 the plan has the synthetic set.
    `data` is what an earlier decision found, `verdicts` keep what was seen of the image."""
    if asked.workload:
        plan.check_workload(asked.workload, asked.nodes, asked.gpus)
    elif asked.image is None:
        raise BadOption("What shall run? An image, or --train.", "    ngcdl run --train cifar10")
    verdicts = verdicts or Verdicts(asked, settings)
    unfit = verdicts.unfit if not dry and not asked.force else lambda *_: ()
    is_training, taken = bool(asked.workload), partial(held.cards, shelf)
    picked = choice.choose(asked.engine, asked.image, asked.gpus, settings.registry, is_training, unfit, taken)
    if asked.device == "gpu" and picked.device == "cpu":
        raise NoGpu("gpu", picked.way.why, option="--device")
    picked = choice.heard(picked, asked.device)
    if not picked.engine.has_containers:
        nothing_of_a_container(asked)
    show.say(f"{picked.why}; GPUs: {_gpu_words(picked)}")
    for line in picked.loud:
        show.say(line)
    if picked.engine.is_cluster:
        nothing_of_a_screen(asked, picked.engine.name)
    if not dry:
        look_ahead(asked)
    placement = asked.placement
    if picked.engine.is_cluster:
        placement = verdicts.placement(picked, show, dry)
    elif not dry:
        verdicts.tell(picked, show)
    if asked.workload:
        plan.check_batch(asked.workload, picked.gpus, asked.nodes)
        plan.check_place(asked.workload, picked.image, asked.device or picked.device)
        if picked.engine.shares_files:
            data = data or _data(asked.workload, settings, show, dry)
        else:
            data = data or _data_of_claim(asked.workload, asked.placement)
            show.say(f"data: {data.note or f'what the claim {data.folder} has'}")
    return picked, _spec(asked, picked, placement, data, shelf), data


def _spec(
    asked: Asked, picked: choice.Choice, placement: Placement | None, data: dataset.Dataset | None, shelf: Store
) -> RunSpec:
    """Plan what was asked for, as it was chosen."""
    if asked.workload:
        assert data is not None  # a training has one, be it the synthetic
        workload = replace(asked.workload, device=asked.device or picked.device)
        resume = shelf.folder(workload.resume) if workload.resume else None
        choices = choices_of(workload, shelf) if picked.engine.shares_files else None
        spec = plan.training(picked.image, workload, picked.gpus, data.folder, resume, choices)
    else:
        assert asked.own is not None  # Asked has one of the two
        spec = replace(asked.own, image=picked.image, gpus=picked.gpus)
    if picked.engine.has_containers:
        spec = replace(spec, user=None if asked.root else picked.engine.caller())
    return _with_extra(replace(spec, placement=picked.engine.placed(placement)), asked.extra)


def choices_of(workload: Workload | None, shelf: Store) -> Path | None:
    """Give the folder in which what --autotune chose outlives the run."""
    return shelf.root.with_name("autotune") if workload and workload.autotune else None


def prepare(asked: Asked, settings: Settings, shelf: Store, show: Show) -> Ready:
    """Do all that comes before the start. Raises NgcdlError; then nothing was recorded."""
    settled = settle(asked, settings, shelf, show)
    if not _chose_free(settled):
        return begin(settled, shelf)
    with held.turn(shelf):
        if not held.cards(shelf).keys().isdisjoint(settled.picked.uuids or ()):
            show.say("another run took the GPU meanwhile: choosing once more")
            settled = settle(asked, settings, shelf, show, settled.data)
        return begin(settled, shelf)


def _chose_free(settled: Settled) -> bool:
    """Were its cards chosen because they were free? Some time ago then: data and image were fetched meanwhile."""
    return settled.asked.gpus.kind in ("auto", "count") and bool(settled.picked.gpus.devices)


def settle(asked: Asked, settings: Settings, shelf: Store, show: Show, data: dataset.Dataset | None = None) -> Settled:
    """Decide and fetch. Raises NgcdlError. `data` is what an earlier one found."""
    shelf.ensure_writable()
    if choices := choices_of(asked.workload, shelf):
        try:
            choices.mkdir(exist_ok=True)  # Docker would make it, as root's
        except OSError as error:
            why = error.strerror or str(error)
            raise StateNotWritable(choices, why, "What --autotune chose is remembered") from error
    verdicts = Verdicts(asked, settings)
    picked, spec, data = decide(asked, settings, shelf, show, data=data, verdicts=verdicts)
    digest, target = _target(picked, asked, show, verdicts)
    return Settled(asked, picked, data, digest, target, spec.placement)


def doubt(settled: Settled, shelf: Store) -> str | None:
    """Give what speaks against it that a run from it can ever be placed. Raises NotPlaceable; nothing is recorded."""
    picked, run_id = settled.picked, "planned"
    spec = _spec(settled.asked, picked, settled.placement, settled.data, shelf)
    return picked.engine.fits(Order(spec, run_id, shelf.folder(run_id), settled.target, picked.way.name))


def begin(settled: Settled, shelf: Store, *notes: str) -> Ready:
    """Record a run as running. Raises StateNotWritable."""
    picked, data, digest = settled.picked, settled.data, settled.digest
    spec = _spec(settled.asked, picked, settled.placement, data, shelf)
    what = spec.workload.name if spec.workload else (picked.image.framework if picked.image else "run")
    run = Run(
        id=shelf.new_id(what),
        status="running",
        started=time.time(),
        engine=picked.engine.name,
        engine_version=picked.engine.version,
        engine_id=picked.engine.identity,
        gpu_way=picked.way.name,
        image=Image(str(picked.image) if picked.image else None, digest),
        dataset=data.kind if data else None,
        dataset_note=data.note if data else None,
        gpus=picked.uuids,
        machine=Machine() if picked.engine.is_cluster else _machine(picked),
        spec=spec.as_json(),
        owner=None if picked.engine.is_cluster else this_process(),
        notes=(*picked.loud, *notes),
        ngcdl=__version__,
    )
    while True:
        try:
            folder = shelf.create(run)
            break
        except NameTaken:
            run = replace(run, id=shelf.new_id(what))
    return Ready(picked.engine, Order(spec, run.id, folder, settled.target, picked.way.name), run)


def _gpu_words(picked: choice.Choice) -> str:
    if picked.gpus.kind == "none":
        return "none" if picked.loud else f"none ({picked.way.why})"
    cards = [f"{card.index} ({card.name})" for card in picked.probe.cards if card.uuid in (picked.uuids or ())]
    way = "" if not picked.engine.has_containers else f", by {picked.way.name} ({picked.way.why})"
    return (", ".join(cards) or str(picked.gpus)) + way


def _data(workload: Workload, settings: Settings, show: Show, dry: bool) -> dataset.Dataset:
    from ngcdl import dataset

    known = trainings.bundled(workload.name)
    stands_for = known.data
    if known.data_folder == "pictures" and workload.data not in ("auto", "synthetic"):
        return dataset.pictures(workload.data, known.classes, workload.evaluate)
    if stands_for != "cifar10":
        return dataset.Dataset("synthetic", None, None, f"{workload.name} makes its data up, in place of {stands_for}")
    if dry and workload.data == "auto" and not os.environ.get(dataset.FOLDER):
        return dataset.cached(settings.cache) or dataset.Dataset("synthetic", None, None, "nothing is cached yet")
    return dataset.prepare(workload.data, cache=settings.cache, say=show.say, progress=show.download)


def _data_of_claim(workload: Workload, placement: Placement | None) -> dataset.Dataset:
    """Give the data that pods see: a volume claim, by its name, or what is made up. No folder of this host is seen."""
    from ngcdl import dataset

    known, claim = trainings.bundled(workload.name), placement.data_pvc if placement else None
    if workload.data not in ("auto", "synthetic"):
        raise BadOption(
            f"--data {workload.data}: a pod sees no folder of this machine.",
            "Copy it to a volume claim, into whose first folder it goes:\n    ngcdl run ... --data-pvc CLAIM",
        )
    if known.data_folder and claim and workload.data == "auto":
        return dataset.Dataset("pictures" if known.data_folder == "pictures" else "cifar10", Path(claim), None, None)
    why = f"in place of {known.data}: no claim was named (--data-pvc)" if not claim else "as it was asked for"
    return dataset.Dataset("synthetic", None, None, f"made up, {why}")


def _with_extra(spec: RunSpec, extra: RunSpec | None) -> RunSpec:
    if extra is None:
        return spec
    return replace(
        spec,
        mounts=spec.mounts + extra.mounts,
        environment=tuple((dict(spec.environment) | dict(extra.environment)).items()),
        ports=extra.ports,
        shm_bytes=extra.shm_bytes,
        ulimits=extra.ulimits,
        workdir=extra.workdir or spec.workdir,
    )


def _target(picked: choice.Choice, asked: Asked, show: Show, verdicts: Verdicts) -> tuple[str | None, str]:
    """Give the image's digest and the name it is started by; fetch it where it is not here.

    The nodes of a cluster fetch for themselves: they are told the digest, where the registry can be asked for it."""
    if picked.image is None:
        return None, picked.engine.without_image(bool(picked.probe.cards), show.pull)
    if picked.engine.is_cluster:
        pinned = _pinned(picked.image, verdicts.found(picked.image), show)
        return pinned, picked.engine.target(picked.image, pinned) if pinned else str(picked.image)
    digest = None if asked.always_pull else picked.engine.has(picked.image)
    if digest is None:
        try:
            digest = fetch.image(picked.engine, picked.image, show.pull, show.say)
        finally:
            show.quiet()
    return digest, picked.engine.target(picked.image, digest)


def _pinned(image: ImageRef, found: Found | NgcdlError, show: Show) -> str | None:
    """Give the digest that `image` has now, None where nobody can say. Raises UnknownTag and UnknownRepository."""
    if isinstance(found, UnknownTag | UnknownRepository):
        raise found
    if isinstance(found, NgcdlError):
        show.say(f"{found.message} The nodes are told the tag, which each of them looks up for itself.")
        return image.digest
    digest = found.facts.digest or image.digest
    if digest is None:
        show.say(f"The registry can't be asked for the digest of {image}: the nodes are told the tag.")
    return digest


def planned_target(picked: choice.Choice) -> str:
    """Name what would be started, for a plan that fetches nothing: the image, or the local Python."""
    return str(picked.image) if picked.image else picked.engine.without_image(bool(picked.probe.cards), None)


def _machine(picked: choice.Choice) -> Machine:
    probe = picked.probe
    is_known = probe.absent or probe.error is None
    return host.machine(probe.driver.version if probe.driver else None, probe.cards if is_known else None)
