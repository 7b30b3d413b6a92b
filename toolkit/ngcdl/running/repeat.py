"""Repeats a recorded run with the same image (by digest), command, cards, seed and data, or refuses and says what can't
be the same."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ngcdl import __version__, engines, trainings
from ngcdl.errors import BadGpuRequest, BadOption, BadReference, NoSuchRun, NotRepeatable, RecordBroken, StartError
from ngcdl.folder import EVENTS, IMPORTED, RECORD, has_checkpoint, lines
from ngcdl.frozen import dataclass
from ngcdl.planning.asked import Asked
from ngcdl.record import Run
from ngcdl.report.measured import naming, retyped, tuned
from ngcdl.report.measured.lines import last_attempt
from ngcdl.running.context import Context
from ngcdl.running.reconcile import reconcile, still_runs
from ngcdl.settings import Settings
from ngcdl.spec import REDACTED, GpuRequest, ImageRef, Mount, RunSpec, Workload
from ngcdl.spec.inside import is_ours
from ngcdl.storing.store import Store
from ngcdl.there import is_folder


@dataclass(frozen=True)
class Repetition:
    """What to run again. `remarks` are sentences about what may differ this time."""

    asked: Asked
    remarks: tuple[str, ...]


def request_again(before: Run, context: Context, *, dry: bool = False, trust: bool = False) -> Repetition:
    """Turn a record back into what was typed. Raise NotRepeatable, also for a record that is not ngcdl's own (strange)
    without `trust`.

    With `dry` nothing will start: no data is fetched or checked, and no value comes from the caller's environment."""
    recorded, spec = _recorded(before)
    why = None if trust else strange(before, context.store)
    image = _image(before, context.settings, why)
    if why and not dry:
        trusting = f"If you trust who made it:\n    ngcdl runs replay {before.id} --trust"
        raise NotRepeatable(before.id, why, f"{_would_get(before, spec, image)}\n{trusting}")
    environment, remarks = _environment(before, spec, dry)
    if why:
        remarks.append(f"WARNING: {why}. {_would_get(before, spec, image)}")
    spec = replace(spec, environment=environment)
    workload, more = _workload(before, context, dry)
    if workload and workload.autotune and (start := _start(before, context.store)):
        workload = _as_chosen(workload, start)
        if tuned.onednn(start):
            spec = replace(spec, environment=(*spec.environment, ("TF_ENABLE_ONEDNN_OPTS", "0")))
        more = (*more, "--autotune is left out: what it chose then is set explicitly")
    extra = None
    if workload:
        extra = replace(spec, command=(), mounts=_typed(spec), workdir=None, user=None, tty=False, stdin=False)
    else:
        remarks += _of_command(before, spec, dry)
    asked = Asked(
        engine=before.engine or "auto",
        image=image,
        gpus=_gpus(before, recorded),
        workload=workload,
        own=None if workload else spec,
        device=before.device if workload and before.device in ("cpu", "gpu") else None,
        root=before.kind.has_containers and recorded.get("user") is None,
        placement=spec.placement,
        extra=extra,
        repeats=True,
        installed=before.packages,
    )
    if before.ngcdl not in (None, __version__):
        remarks.append(f"ngcdl {before.ngcdl} recorded it and this is {__version__}: the trainer may differ")
    return Repetition(asked, (*remarks, *more))


def strange(before: Run, store: Store) -> str | None:
    """Return why nobody here vouches for what the record asks for; None if ngcdl started the run here, and the record
    is as ngcdl wrote it. The run itself can change it, and would then be run again with what it likes."""
    if os.path.lexists(store.folder(before.id) / IMPORTED):
        return "it was imported, and nobody here has checked what it would do"
    if not store.is_known(before):
        return "nothing shows that its record is as ngcdl wrote it: the run itself can change it"
    return None


def _recorded(before: Run) -> tuple[Mapping[str, Any], RunSpec]:
    """Return what the record says was requested, and the same without training and image as a spec. Raise
    NotRepeatable."""
    if not before.spec:
        raise NotRepeatable(
            before.id, f"{before.engine or 'something else'} started it, and only that knows what was requested"
        )
    try:
        return before.spec, RunSpec.from_json({**before.spec, "workload": None, "image": None})
    except (BadGpuRequest, BadOption, BadReference, TypeError, ValueError, AttributeError) as error:
        raise NotRepeatable(before.id, f"its record does not say what was requested ({error})") from error


def _of_command(before: Run, spec: RunSpec, dry: bool) -> list[str]:
    """Return remarks on what may differ for a command. Raise NotRepeatable if it was not recorded as it was, or as
    `_here` does."""
    if any(REDACTED in word for word in spec.command):
        raise NotRepeatable(
            before.id,
            "a word of its command looked like a secret and was not recorded",
            f"With the word in place of {REDACTED}:\n    {retyped.command(before)}",
        )
    remarks = ["its stdin was not recorded"] if spec.stdin and not spec.tty else []
    return remarks if before.kind.has_containers else remarks + _here(before, spec, dry)


def _here(before: Run, spec: RunSpec, dry: bool) -> list[str]:
    """Return remarks on what has changed on this host for a command without an image. Raise NotRepeatable if its folder
    is gone."""
    if not spec.command:
        raise NotRepeatable(before.id, "its record does not say which command it was")
    if spec.workdir and (why := _unusable(Path(spec.workdir))):
        gone = f"its folder {spec.workdir} {why}"
        if dry:
            return [gone]
        raise NotRepeatable(before.id, gone, f"To run it in another folder, there:\n    {retyped.command(before)}")
    with contextlib.suppress(StartError):  # the start itself reports a program that is gone
        now = engines.connect(str(before.engine)).without_image(spec, False, None)
        if before.program not in (None, now):
            return [f"{spec.command[0]} was {before.program} then, and is {now} now"]
    return []


def _unusable(folder: Path) -> str | None:
    """Return what is wrong with the folder in which a command ran; None if it is there."""
    try:
        return None if is_folder(folder) else "no longer exists"
    except OSError as error:
        return f"can't be entered: {error.strerror}"


def _image(before: Run, settings: Settings, doubt: str | None) -> ImageRef | None:
    if not before.kind.has_containers:
        return None
    if not before.image.reference or not before.image.identity:
        why = "the digest of its image was not recorded: a tag may be another image by now"
        warning = f"WARNING: {doubt}.\n" if doubt else ""
        today = f"{warning}With the image that its tag is today:\n    {retyped.command(before)}"
        raise NotRepeatable(before.id, why, today if before.image.reference else "")
    try:
        image = ImageRef.parse(before.image.reference, settings.registry)
        ImageRef.parse(image.pinned(before.image.identity))
    except BadReference as error:
        raise NotRepeatable(before.id, f"its record names no valid image ({error})") from error
    if not before.image.digest:
        return replace(image, id=before.image.id)
    return replace(image, tag=None, digest=before.image.digest)


def _gpus(before: Run, recorded: Mapping[str, Any]) -> GpuRequest:
    """Request the same cards that the run had, and none if it had none, even if this host has cards today."""
    if before.gpus:
        return GpuRequest("devices", devices=before.gpus)
    if before.gpus is not None or (before.gpu_way == "none" and before.kind.has_containers):
        return GpuRequest("none")
    return GpuRequest.parse(str(recorded.get("gpus") or "auto"))


def _typed(spec: RunSpec) -> tuple[Mount, ...]:
    """Return the mounts that the user typed for a training, without those that its plan added."""
    return tuple(mount for mount in spec.mounts if not is_ours(mount.container))


def _would_get(before: Run, spec: RunSpec, image: ImageRef | None) -> str:
    """List everything a run would get from this host, for the user who must decide whether to allow it."""
    training, kind = before.workload, before.kind
    names = [f"{name} as it is set here" if value == REDACTED else name for name, value in spec.environment]
    folders = [str(mount) for mount in _typed(spec)] if training else [str(mount) for mount in spec.mounts]
    folders += [str(training["data"])] if training.get("data", "auto") not in ("auto", "synthetic") else []
    what = {
        "image": str(image or naming.NO_IMAGE[bool(training)]),
        "training": str(training.get("name", "")),
        "command": "" if training else shlex.join(spec.command),
        "folder": "" if training or kind.has_containers else spec.workdir or "",
        "packages": ", ".join(spec.packages),
        "variables": ", ".join(names),
        "folders": ", ".join(folders),
        "ports": ", ".join(map(str, spec.ports)),
        "user": "root, if the image names no other" if kind.has_containers and spec.user is None else "",
        "resumes": str(training.get("resume") or ""),
        "sbatch": shlex.join(spec.placed.options),
        "job patch": "\n".join(spec.placed.patches),
    }
    told = [f"    {name:<9}  {value}".replace("\n", "\\n") for name, value in what.items() if value]
    return "\n".join(["It would get:", *told])


def _environment(before: Run, spec: RunSpec, dry: bool) -> tuple[tuple[tuple[str, str], ...], list[str]]:
    """Return the environment, with the caller's values in place of redacted ones, and remarks. Raise NotRepeatable if
    the caller's environment lacks one."""
    hidden = [name for name, value in spec.environment if value == REDACTED]
    if dry:
        return spec.environment, [f"the value of {name} was not recorded: the current one is used" for name in hidden]
    missing = [name for name in hidden if name not in os.environ]
    if missing:
        raise NotRepeatable(
            before.id,
            f"the value of {', '.join(missing)} looked like a secret and was not recorded",
            f"Set it here:\n    {' '.join(f'{name}=...' for name in missing)} ngcdl runs replay {before.id}",
        )
    remarks = [f"the value of {name} was not recorded: the one set here is used" for name in hidden]
    return tuple((name, os.environ[name] if name in hidden else value) for name, value in spec.environment), remarks


def _start(before: Run, store: Store) -> Mapping[str, Any]:
    """Return the last start event, {} if no training began."""
    return last_attempt(lines(store.folder(before.id) / EVENTS))[0]


def _as_chosen(workload: Workload, start: Mapping[str, Any]) -> Workload:
    """Request explicitly what autotune chose."""
    known = {name: value for name, value in tuned.chosen(start).items() if name in ("threads", "channels_last", "feed")}
    return replace(workload, **{"feed": workload.feed or "ahead", **known, "autotune": False})


def _workload(before: Run, context: Context, dry: bool) -> tuple[Workload | None, tuple[str, ...]]:
    recorded = before.workload
    if not recorded:
        return None, ()
    known = {one.name for one in fields(Workload)}
    unknown = [name for name, value in recorded.items() if name not in known and value is not None]
    if unknown:
        raise NotRepeatable(before.id, f"this ngcdl does not know its {', '.join(unknown)}", "Update ngcdl.")
    if not recorded.get("name"):
        raise NotRepeatable(before.id, "its record does not say which training it was")
    workload = Workload(**{name: value for name, value in recorded.items() if name in known})
    remarks: tuple[str, ...] = ()
    if workload.resume:
        _check_resumed(before, workload.resume, context.store)
        remarks = (f"it resumed from {workload.resume}: now from the last checkpoint that is there",)
    if before.is_synthetic:
        return replace(workload, data="synthetic"), remarks
    if not dry and before.kind.shares_files:  # pods see no data of this host: they have a claim's
        workload = replace(workload, data=_data(before, workload, context))
    return workload, remarks


def _check_resumed(before: Run, source: str, store: Store) -> None:
    """Raise NotRepeatable if `source`, which `before` resumed from, is not here, has no checkpoints (any more), or is
    still running."""
    told = EVENTS if before.kind.shares_files else RECORD  # a pod's events may never have arrived
    if not (store.folder(source) / told).exists():
        raise NotRepeatable(before.id, f"it resumed from {source}, which is not here")
    with contextlib.suppress(RecordBroken, NoSuchRun):  # its checkpoints may be intact all the same
        if still_runs(store, reconcile(store, store.load(source))):
            raise NotRepeatable(
                before.id,
                f"it resumed from {source}, which is still running; a second training would do the same beside it.",
                f"Watch it, or stop it first:\n    ngcdl logs -f {source}\n    ngcdl stop {source}",
            )
    if before.kind.shares_files and not has_checkpoint(store.folder(source)):
        raise NotRepeatable(before.id, f"it resumed from {source}, whose checkpoints are not here")


def _data(before: Run, workload: Workload, context: Context) -> str:
    """Return the folder of the same data set. Raise NotRepeatable if the one here is different."""
    from ngcdl import dataset

    if before.dataset is None and not trainings.bundled(workload.name).data_folder:
        return workload.data  # without data: the smoke test
    if before.dataset == "pictures":
        return str(dataset.pictures(workload.data).folder)
    show = context.show
    found = dataset.prepare(workload.data, cache=context.settings.cache, say=show.say, progress=show.download)
    wanted = _start(before, context.store).get("dataset_sha256")
    if found.kind != before.dataset:
        raise NotRepeatable(before.id, f"it trained on {before.dataset}, which is not available now")
    if wanted and found.sha256 and found.sha256 != wanted:
        raise NotRepeatable(before.id, "the training images here are not bit for bit those that it had")
    return str(found.folder) if found.folder else "synthetic"
