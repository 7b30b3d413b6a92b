"""`ngcdl export`: prints the script or manifest that repeats a recorded run on a cluster, wherever it ran before."""

from __future__ import annotations

import shlex
from dataclasses import replace

from ngcdl import console, settings
from ngcdl.cli import lookup
from ngcdl.cli.screen import Screen
from ngcdl.engines.values import Order
from ngcdl.errors import BadOption
from ngcdl.record import Run
from ngcdl.report.measured.case import is_command
from ngcdl.running import prepare, repeat, sources
from ngcdl.spec import KINDS, GpuRequest, Placement, kind_of


def export(form: str, name: str) -> None:
    """Print the script or manifest. Raise BadOption, or NotRepeatable if the record does not say enough."""
    engine = _cluster(form, name)
    config, store = settings.load(), lookup.open_store()
    run = store.load(store.find(name))
    if is_command(run) and not kind_of(run.engine).has_containers:
        raise BadOption(
            f"{run.id} ran without an image, and --engine {engine} needs one.",
            f"With one that has what the command needs:\n    {_in_an_image(run, engine)}",
        )
    with Screen(output_to_stderr=True) as screen:
        before = repeat.request_again(run, config, store, screen, dry=True)
        asked = replace(before.asked, engine=engine, gpus=_gpus(run), device=None, placement=_placement(run, engine))
        picked, spec, _ = prepare.decide(asked, config, store, screen, dry=True)
    for remark in before.remarks:
        console.say(remark)
    target = sources.planned_target(picked, asked)
    order = Order(spec, run.id, store.folder(run.id), target, picked.way.name)
    request = picked.engine.request(order)
    console.result_exact(request.get("to_keep", request["script"]).rstrip())


def _cluster(form: str, name: str) -> str:
    """Return the engine that `form` means: its name or its short name."""
    clusters = {one.short or engine: engine for engine, one in KINDS.items() if one.is_cluster}
    if form not in (*clusters, *clusters.values()):
        raise BadOption(
            f"export {form}: must be {' or '.join(clusters)}.", f"    ngcdl export {[*clusters][-1]} {name}"
        )
    return clusters.get(form, form)


def _in_an_image(run: Run, engine: str) -> str:
    """Return the line that prints the script or manifest for the command of `run` in an image."""
    gpus = _gpus(run)
    words = ["ngcdl", "run", "pytorch", "--engine", engine, "--gpus", str(gpus), "--dry-run", "--"]
    return shlex.join([*words, *map(str, (run.spec or {}).get("command") or ())])


def _gpus(run: Run) -> GpuRequest:
    """Return as many GPUs per node as the run had. Which cards the run had means nothing on other machines."""
    asked = GpuRequest.parse(str((run.spec or {}).get("gpus") or "auto"))
    if run.gpus == () or asked.kind == "none":
        return GpuRequest("none")
    return GpuRequest("count", count=asked.count or len(run.gpus or asked.devices) or 1)


def _placement(run: Run, engine: str) -> Placement:
    said = run.placement
    return Placement.from_json(said) if said and run.engine == engine else Placement()
