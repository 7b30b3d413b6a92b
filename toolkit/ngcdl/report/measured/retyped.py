"""The command line that requests a recorded run again."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from ngcdl.record import Run
from ngcdl.report.measured.naming import PLANNED, listed
from ngcdl.spec import KINDS, REDACTED, USUAL, USUAL_SAMPLE_SECONDS, Placement, RunSpec, Workload
from ngcdl.spec.inside import ROOT, WORK, is_ours
from ngcdl.spec.placement import TYPED

_DEFAULTS = {one.name: one.default for one in fields(Workload)}
_ALWAYS = ("name", "steps", "batch", "seed")  # stated even at their defaults
_PLACED = Placement().as_json()
_NOT_TYPED = ("cpus", "images", "gpu_type", "avoid")  # of a Placement: ngcdl fills these in
_CONTAINER = RunSpec(None)  # a container's defaults
_FOLDERS = (None, ROOT, WORK)  # default working folders
_OWN_WORDS = {"name": "--train", "evaluate": "--no-eval"}
_SWITCHES = {("channels_last", True): ["--channels-last"], ("channels_last", False): ["--channels-first"]}


def command(run: Run) -> str | None:
    """Return the command that requests the same run; None if the record has no spec.

    The image is named by its digest. A variable with a redacted value is taken from the caller's environment.
    """
    spec = run.spec
    if not spec:
        return None
    words = ["ngcdl", "run", *_image(run)]
    asked = run.workload
    for name, value in asked.items():
        if name == "feed" and value and asked.get("autotune"):  # typed by the user: otherwise the trial chooses it
            words += ["--feed", str(value)]
            continue
        words += _option(name, "largest" if name == "batch" and asked.get("largest_batch") else value)
    if asked and run.is_synthetic and asked.get("data") == "auto":
        words += ["--data", "synthetic"]
    gpus = str(spec.get("gpus") or "auto")
    words += [] if gpus.startswith("auto") else ["--gpus", "all" if gpus.startswith("all:") else gpus]
    words += ["--engine", run.engine] if run.engine in KINDS and run.engine != USUAL else []
    words += _placement(run.placement)
    words += ["--sample-every", f"{run.sample_seconds:g}"] if run.sample_seconds != USUAL_SAMPLE_SECONDS else []
    mounts = [str(mount) for mount in listed(spec, "mounts") if _typed(str(mount), is_training=bool(asked))]
    words += [word for mount in mounts for word in ("-v", mount)]
    for name, value in dict(spec.get("environment") or {}).items():
        if name not in PLANNED:
            words += ["-e", name if value == REDACTED else f"{name}={value}"]
    words += _container(spec) if run.kind.has_containers else []
    words += ["--", *(str(word) for word in listed(spec, "command"))] if not asked and spec.get("command") else []
    return shlex.join(words)


def _placement(placement: Mapping[str, Any]) -> list[str]:
    """Return the options that place the run on a cluster, without values that ngcdl found by itself."""
    words = []
    for name, value in placement.items():
        if name in ("options", "patches") or name in _NOT_TYPED or value in (None, _PLACED.get(name)):
            continue
        words += [TYPED.get(name, f"--{name.replace('_', '-')}"), str(value)]
    words += [f"--sbatch={word}" for word in placement.get("options") or ()]
    return words + [f"--job-patch={text}" for text in placement.get("patches") or ()]


def _container(spec: Mapping[str, Any]) -> list[str]:
    """Return the container's options that differ from their defaults. What a record lacks is left out."""
    words = [word for port in listed(spec, "ports") for word in ("-p", str(port))]
    shm = spec.get("shm_bytes", _CONTAINER.shm_bytes)
    words += ["--shm-size", str(shm)] if shm != _CONTAINER.shm_bytes else []
    usual = dict(_CONTAINER.ulimits)
    limits = dict(spec.get("ulimits", usual))
    words += [word for name in usual.keys() - limits.keys() for word in ("--ulimit", f"{name}=host")]
    words += [
        word for name, limit in limits.items() if usual.get(name) != limit for word in ("--ulimit", f"{name}={limit}")
    ]
    for line in map(str, listed(spec, "packages")):
        words += [f"--pip={line}"] if line.startswith("-") else ["--pip", line]  # pip's own options
    limited = {"--cpus": spec.get("cpu_limit"), "--memory": spec.get("memory_bytes")}
    words += [word for name, limit in limited.items() if limit is not None for word in (name, str(limit))]
    words += ["-w", str(spec["workdir"])] if spec.get("workdir") not in _FOLDERS else []
    words += ["-i"] if spec.get("stdin") and not spec.get("tty") else []
    return words + (["--root"] if spec.get("user", "") is None else [])


def _typed(mount: str, is_training: bool) -> bool:
    """Return whether the user typed this mount, rather than ngcdl's plan adding it. A plan adds a folder at /work to
    commands only; a volume claim there was typed."""
    inside = mount.removesuffix(":ro").rpartition(":")[2]
    return not is_ours(inside) and (is_training or inside != WORK or not mount.startswith("/"))


def _image(run: Run) -> list[str]:
    reference, digest = run.image.reference, run.image.digest
    if not reference:
        return []
    if digest and "@" not in reference:
        head, slash, last = reference.rpartition("/")
        return [f"{head}{slash}{last.partition(':')[0]}@{digest}"]
    return [reference]


def _option(name: str, value: Any) -> list[str]:
    if value is None or name == "largest_batch" or (name not in _ALWAYS and value == _DEFAULTS.get(name)):
        return []
    if (name, value) in _SWITCHES:
        return _SWITCHES[name, value]
    word = _OWN_WORDS.get(name, f"--{name.replace('_', '-')}")
    return [word] if isinstance(value, bool) else [word, str(value)]
