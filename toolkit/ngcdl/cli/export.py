"""`ngcdl export`: the script or manifest by which a cluster does a recorded run, wherever that was."""

from __future__ import annotations

from dataclasses import replace

from ngcdl import console, prepare, repeat, settings
from ngcdl.cli import kept
from ngcdl.cli.screen import Screen
from ngcdl.engines.base import Order
from ngcdl.errors import BadOption
from ngcdl.record import Run
from ngcdl.spec import GpuRequest, Placement

FORMS = {"slurm": "slurm", "k8s": "kubernetes", "kubernetes": "kubernetes"}


def export(form: str, name: str) -> None:
    """Print it. Raises BadOption, and NotRepeatable where the record does not say enough."""
    if form not in FORMS:
        raise BadOption(f"export {form}: slurm or k8s.", f"    ngcdl export k8s {name}")
    config, shelf = settings.load(), kept.shelf()
    run = shelf.load(shelf.find(name))
    with Screen(output_to_stderr=True) as screen:
        before = repeat.again(run, config, shelf, screen, dry=True).asked
        asked = replace(before, engine=FORMS[form], gpus=_gpus(run), device=None, placement=_placement(run, form))
        picked, spec, _ = prepare.decide(asked, config, shelf, screen, dry=True)
    target = prepare.planned_target(picked)
    order = Order(spec, run.id, shelf.folder(run.id), target, picked.way.name)
    request = picked.engine.request(order)
    console.result_exact(request.get("to_keep", request["script"]).rstrip())


def _gpus(run: Run) -> GpuRequest:
    """As many of each node as it had: which cards they were means nothing elsewhere."""
    asked = GpuRequest.parse(str((run.spec or {}).get("gpus") or "auto"))
    if run.gpus == () or asked.kind == "none":
        return GpuRequest("none")
    return GpuRequest("count", count=asked.count or len(run.gpus or asked.devices) or 1)


def _placement(run: Run, form: str) -> Placement:
    said = run.placement
    return Placement.from_json(said) if said and run.engine == FORMS[form] else Placement()
