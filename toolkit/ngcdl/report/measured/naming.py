"""What a run is called, what it computed on, and the command line that repeats it."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from ngcdl.record import Run
from ngcdl.report.measured import lines
from ngcdl.spec import KINDS, REDACTED, USUAL, USUAL_SAMPLE_SECONDS, Mount, Placement, RunSpec, Workload, kind_of
from ngcdl.spec.inside import ROOT, WORK, is_ours
from ngcdl.spec.placement import TYPED

_DEFAULTS = {one.name: one.default for one in fields(Workload)}
_ALWAYS = ("name", "steps", "batch", "seed")  # stated even at their defaults
_PLACED = Placement().as_json()
_NOT_TYPED = ("cpus", "images", "gpu_type", "avoid")  # of a Placement: ngcdl fills these in
_CONTAINER = RunSpec(None)  # a container's defaults
_FOLDERS = (None, ROOT, WORK)  # default working folders
PLANNED = ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE")  # variables that ngcdl sets for a run by itself
# Feeds that train nothing, or nothing new (containers/trainer/feed.py): their speed is not a training's.
_WITHOUT_RESULT = {
    "input": "batches made and discarded: nothing was trained",
    "constant": "the same batch at every step: not a result",
}
_OWN_WORDS = {"name": "--train", "evaluate": "--no-eval"}
_SWITCHES = {("channels_last", True): ["--channels-last"], ("channels_last", False): ["--channels-first"]}
# What a run without an image runs: a command (False), or a training (True).
NO_IMAGE = {False: "none: this host's own programs", True: "none: this host's own Python"}


_LONGEST = 60  # characters of a command in a name


def what(run: Run) -> str:
    """Name what was run: a training, such as cifar10, or a command and where it ran."""
    name = run.workload.get("name")
    if isinstance(name, str) and name:
        return name
    called = typed(run, _LONGEST) or "a command"
    if run.image.reference:
        return f"{called} in {run.image.reference.rpartition('/')[2]}"
    return run.id if kind_of(run.engine).has_containers else f"{called} on this host"


def typed(run: Run, most: int | None = None) -> str | None:
    """Return the words of a command of the user's own, secrets hidden, cut to `most` characters; None for a training,
    and for what an image starts by itself."""
    words = _list(run.spec or {}, "command")
    if run.workload or not words:
        return None
    said = shlex.join(str(word) for word in words)
    return said if most is None or len(said) <= most else f"{said[: most - 3].rstrip()}..."


def folder(run: Run) -> str | None:
    """Say in which folder a command ran, and which folder of the host was mounted there, if any; None if unknown."""
    spec = run.spec or {}
    inside = spec.get("workdir")
    if run.workload or not isinstance(inside, str):
        return None
    mounts = (Mount.from_text(str(mount)) for mount in _list(spec, "mounts"))
    outside = next((mount.host for mount in mounts if mount.container == inside), None)
    return f"{outside}, at {inside}" if outside else inside


def computed(run: Run, start: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a training was fed and computed, by its `start` event, else as requested. None is unknown or not
    applicable.

    Trainers that did not report all of this made batches ahead, and computed in float32 on a CPU."""
    asked = run.workload
    precision = asked.get("precision")
    if precision in (None, "auto"):
        precision = "float32" if run.device == "cpu" else None
    told = {
        "feed": asked.get("feed") or "ahead",
        "precision": precision,
        "compiled": bool(asked.get("compile")),
        "channels_last": asked.get("channels_last"),
        "teacher": asked.get("teacher"),
        "clip": asked.get("clip"),
        "batch": asked.get("batch"),
    }
    return {name: start.get(name, value) for name, value in told.items()}


def way(run: Run, start: Mapping[str, Any]) -> str | None:
    """Say in words what computed() returns, without the batch: `tf32, compiled, channels last, fed resident`. None:
    unknown."""
    it = computed(run, start)
    words = [str(it["precision"])] if it["precision"] else []
    words += ["compiled"] if it["compiled"] else []
    words += [f"channels {'last' if it['channels_last'] else 'first'}"] if it["channels_last"] is not None else []
    words += [f"fed {it['feed']}"] if it["feed"] != "ahead" else []
    words += [f"teacher {it['teacher']}"] if it["teacher"] else []
    words += [f"clipped at {clip:g}"] if (clip := lines.number(it["clip"])) is not None else []
    return ", ".join(words) or None


def without_result(run: Run, start: Mapping[str, Any]) -> str | None:
    """Say why the run's speed is not a training's; None if it is."""
    return _WITHOUT_RESULT.get(str(computed(run, start)["feed"]))


def stages(event: Mapping[str, Any]) -> str | None:
    """Say how fast a pipeline is up to each of its stages, by its `stages` event: `crop 214,496, flip 137,401`."""
    found = event.get("stages")
    told = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    rates = [(str(one.get("name")), lines.number(one.get("examples_per_second"))) for one in told]
    return ", ".join(f"{name} {rate:,.0f}" for name, rate in rates if rate is not None) or None


def length(run: Run, start: Mapping[str, Any]) -> str | None:
    """Say how long a training was to be: 1,000 steps; 10 epochs (2,000 steps); 30 s; None if unknown."""
    asked = run.workload
    steps, epochs = start.get("steps", asked.get("steps")), asked.get("epochs")
    words = [f"{steps:,} steps"] if isinstance(steps, int) else []
    if epochs is not None:
        words = [f"{epochs} epochs{f' ({words[0]})' if words else ''}"]
    words += [f"{seconds:g} s"] if (seconds := lines.number(asked.get("seconds"))) is not None else []
    times = f", {many} times" if (many := asked.get("times") or 1) != 1 else ""
    return f"{' or '.join(words)}{times}" if words else None


def device(run: Run) -> str:
    """Return GPU or CPU, or n/a if the framework never reported its device."""
    return run.device.upper() if run.device else "n/a"


def given(run: Run) -> str | None:
    """Return what a command was given to compute on, gpu or cpu; None for a training, or if unknown."""
    if run.workload or not run.spec:
        return None
    if run.gpus is not None:
        return "gpu" if run.gpus else "cpu"
    asked = run.spec.get("gpus")  # on a cluster; auto may have come to nothing
    return {"none": "cpu", "auto": None}.get(str(asked), "gpu") if asked else None


def with_assumed_device(run: Run) -> Run:
    """Return a command's run as if it had computed on the device it was given, any other run unchanged."""
    return replace(run, device=found) if (found := given(run)) else run


def hardware(run: Run) -> str | None:
    """Name what the run computed on: its cards, or the processor. None if unknown."""
    if run.device == "gpu":
        names = [gpu.name for gpu in run.machine.gpus or () if run.gpus and gpu.uuid in run.gpus and gpu.name]
        names = names or [gpu.name for gpu in run.summary.gpus if gpu.name]
        counted = Counter(names)
        return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in counted.items()) or None
    if run.device == "cpu" and run.machine.cpu:
        return ", ".join(filter(None, (run.machine.cpu, cores(run))))
    return None


def cores(run: Run) -> str | None:
    """Say how many processors the machine had, and how many of them the run was allowed to use; None if unknown."""
    if not run.machine.cores:
        return None
    allowed = "" if run.allowed_cores is None else f"{run.allowed_cores:g} of "
    return f"{allowed}{run.machine.cores} cores"


def on(run: Run) -> str:
    """Say where the run computed: `the GPU (NVIDIA H200)`."""
    if not run.device:
        return "a device that was not recorded"
    there = hardware(run)
    return f"the {device(run)} ({there})" if there else f"the {device(run)}"


def command(run: Run) -> str | None:
    """Return the command that requests the same run; None if the record has no spec, as a record from Docker Compose.

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
    mounts = [str(mount) for mount in _list(spec, "mounts") if _typed(str(mount), is_training=bool(asked))]
    words += [word for mount in mounts for word in ("-v", mount)]
    for name, value in dict(spec.get("environment") or {}).items():
        if name not in PLANNED:
            words += ["-e", name if value == REDACTED else f"{name}={value}"]
    words += _container(spec) if kind_of(run.engine).has_containers else []
    words += ["--", *(str(word) for word in _list(spec, "command"))] if not asked and spec.get("command") else []
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
    words = [word for port in _list(spec, "ports") for word in ("-p", str(port))]
    shm = spec.get("shm_bytes", _CONTAINER.shm_bytes)
    words += ["--shm-size", str(shm)] if shm != _CONTAINER.shm_bytes else []
    usual = dict(_CONTAINER.ulimits)
    limits = dict(spec.get("ulimits", usual))
    words += [word for name in usual.keys() - limits.keys() for word in ("--ulimit", f"{name}=host")]
    words += [
        word for name, limit in limits.items() if usual.get(name) != limit for word in ("--ulimit", f"{name}={limit}")
    ]
    for line in map(str, _list(spec, "packages")):
        words += [f"--pip={line}"] if line.startswith("-") else ["--pip", line]  # pip's own options
    limited = {"--cpus": spec.get("cpu_limit"), "--memory": spec.get("memory_bytes")}
    words += [word for name, limit in limited.items() if limit is not None for word in (name, str(limit))]
    words += ["-w", str(spec["workdir"])] if spec.get("workdir") not in _FOLDERS else []
    words += ["-i"] if spec.get("stdin") and not spec.get("tty") else []
    return words + (["--root"] if spec.get("user", "") is None else [])


def _list(spec: Mapping[str, Any], name: str) -> list[Any]:
    return value if isinstance(value := spec.get(name), list) else []


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
