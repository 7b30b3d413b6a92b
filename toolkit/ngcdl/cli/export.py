"""`ngcdl export`: prints what repeats a recorded run on a cluster or with docker compose, wherever it ran before."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace

from ngcdl import console, settings
from ngcdl.cli import lookup
from ngcdl.cli.screen import Screen
from ngcdl.engines.docker import compose
from ngcdl.engines.values import Order
from ngcdl.errors import BadOption
from ngcdl.planning import plan
from ngcdl.planning.asked import Asked, installing, packages_of
from ngcdl.planning.show import Show
from ngcdl.record import Run
from ngcdl.report.measured.case import is_command
from ngcdl.running import prepare, repeat, sources
from ngcdl.running.context import Context
from ngcdl.settings import Settings
from ngcdl.spec import KINDS, USUAL, GpuRequest, Placement, RunSpec, kind_of
from ngcdl.storing.store import Store

COMPOSE = "compose"
_INSIDE_ROOT = "0:0"


def export(form: str, name: str) -> None:
    """Print the script, manifest or compose file. Raise BadOption, or NotRepeatable if the record says too little."""
    engine = _engine(form, name)
    config, store = settings.load(), lookup.open_store()
    run = store.load(lookup.id_of(name, store))
    if not run.kind.has_containers and (engine == USUAL or is_command(run)):
        what = "docker compose" if engine == USUAL else f"--engine {engine}"
        raise BadOption(
            f"{run.id} ran without an image, and {what} needs one.",
            f"With one that has what it needs:\n    {_in_an_image(run, engine)}",
        )
    with Screen(output_to_stderr=True) as screen:
        before = repeat.request_again(run, Context(config, store, screen), dry=True)
        if engine != USUAL and before.asked.image and before.asked.image.is_engines_own:
            raise _not_on_nodes(run, engine, before.asked.image.typable)
        asked = replace(before.asked, repeats=False, engine=engine, gpus=_gpus(run), placement=_placement(run, engine))
        write = _service if engine == USUAL else _for_cluster
        text = write(run, asked, config, store, screen)
    for remark in before.remarks:
        console.say(remark)
    console.result_exact(text.rstrip())


def _for_cluster(run: Run, asked: Asked, config: Settings, store: Store, show: Show) -> str:
    asked = replace(asked, device=None)
    picked, spec = prepare.decide(asked, Context(config, store, show))
    _say_if_made_up(run, spec, asked.engine)
    order = Order(spec, run.id, store.folder(run.id), sources.planned_target(picked, asked), picked.way.name)
    request = picked.engine.request(order)
    return str(request.get("to_keep", request["script"]))


def _service(run: Run, asked: Asked, config: Settings, store: Store, show: Show) -> str:
    """Return the file for docker compose. No engine is asked, because it may be meant for another machine's."""
    if packages_of(asked):
        raise BadOption(
            f"{run.id} had packages added (--pip), which docker compose does not do.",
            f"Install them in the same command, and export that run:\n{installing(asked)}",
        )
    assert asked.image is not None  # of a run in a container
    way = run.gpu_way if run.engine == USUAL and run.gpu_way in ("runtime", "cdi") else "device-request"
    gpus = asked.gpus if way == "device-request" else _by_index(run, asked.gpus)
    data = sources.data(asked.workload, config, show, dry=True).folder if asked.workload else None
    device = "cpu" if gpus.kind == "none" else "gpu"
    spec = plan.of(asked, asked.image, gpus, device, data, store.folder)
    _say_if_made_up(run, spec, COMPOSE)
    user = None if asked.root else _user(run)
    spec = plan.with_extra(replace(spec, user=user), asked.extra)
    groups = [] if user in (None, _INSIDE_ROOT) else sorted({*os.getgroups()} - {os.getgid()})
    image = run.image.reference or str(asked.image)
    target = image if asked.image.id else str(asked.image)
    return compose.service(Order(spec, run.id, store.folder(run.id), target, way), image, groups)


def _say_if_made_up(run: Run, spec: RunSpec, form: str) -> None:
    """Say if a training is printed with made-up images, because those that it had are not here."""
    if not spec.workload or run.dataset is None or run.is_synthetic or "synthetic" not in spec.command:
        return
    line = f"NGCDL_DATA=FOLDER ngcdl export {form} {run.id}"
    if not kind_of(form).shares_files:
        line = f"{_in_an_image(run, form, str(spec.image))} --data-pvc CLAIM --dry-run"
    console.say(f"WARNING: {run.id} trained on {run.dataset}; this trains on made-up images. With a copy:\n    {line}")


def _user(run: Run) -> str:
    """Return the caller. A run of a rootless engine was root inside, who is the caller outside, and stays so."""
    had = (run.spec or {}).get("user")
    return _INSIDE_ROOT if run.engine == USUAL and had == _INSIDE_ROOT else f"{os.getuid()}:{os.getgid()}"


def _by_index(run: Run, gpus: GpuRequest) -> GpuRequest:
    """Return as many cards by index, from 0, as Docker takes them for a number: the runtime and CDI know no numbers."""
    if gpus.kind == "none":
        return gpus
    if len(run.gpus or ()) == len(run.machine.gpus or ()):
        return GpuRequest("all")
    return GpuRequest("devices", devices=tuple(map(str, range(gpus.count or 1))))


def _engine(form: str, name: str) -> str:
    """Return the engine that `form` means: a cluster by its name or short name, or Docker for docker compose."""
    clusters = {one.short or engine: engine for engine, one in KINDS.items() if one.is_cluster}
    forms = clusters | {COMPOSE: USUAL}
    if form not in (*forms, *clusters.values()):
        *others, last = forms
        raise BadOption(
            f"export {form}: must be {', '.join(others)} or {last}.", f"    ngcdl export {others[-1]} {name}"
        )
    return forms.get(form, form)


def _not_on_nodes(run: Run, engine: str, name: str) -> BadOption:
    there = f"REGISTRY/{name.rpartition('/')[2]}"
    return BadOption(
        f"{run.id} ran in {name}, an image of its engine's own, which no node of a cluster can pull.",
        "Push it to a registry that they reach, and run it from there:\n"
        f"    docker tag {name} {there} && docker push {there}\n    {_in_an_image(run, engine, there)}",
    )


def _in_an_image(run: Run, engine: str, image: str = "pytorch") -> str:
    """Return the line that runs the same in an image; on a cluster, that prints the script or manifest for it."""
    is_cluster, gpus = kind_of(engine).is_cluster, str(_gpus(run))
    words = ["ngcdl", "run", image, *(["--engine", engine] * is_cluster), "--gpus", gpus]
    own = ["--", *map(str, (run.spec or {}).get("command") or ())]
    words += ["--train", run.workload["name"]] if run.workload else ["--dry-run"] * is_cluster + own
    return shlex.join(words)


def _gpus(run: Run) -> GpuRequest:
    """Return as many GPUs per node as the run had. Which cards the run had means nothing on other machines."""
    asked = GpuRequest.parse(str((run.spec or {}).get("gpus") or "auto"))
    if run.gpus == () or asked.kind == "none":
        return GpuRequest("none")
    return GpuRequest("count", count=asked.count or len(run.gpus or asked.devices) or 1)


def _placement(run: Run, engine: str) -> Placement:
    said = run.placement
    return Placement.from_json(said) if said and run.engine == engine else Placement()
