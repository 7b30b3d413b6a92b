"""What was typed becomes a RunSpec, or is refused where it can't be meant."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from ngcdl.catalog import releases
from ngcdl.engines.base import HERE, RUN_FOLDER
from ngcdl.errors import BadOption
from ngcdl.spec import FEEDS, PRECISIONS, TEACHERS, GpuRequest, ImageRef, Mount, RunSpec, Workload
from ngcdl.trainings import Bundled, bundled, containers_folder

INSIDE = "/ngcdl"  # trainer/, data/, resume/ and run/ stand below it
_DISTORTED = ("cifar10", "input-pipeline", "scaling")  # the tutorial's pictures: each time another cut, side and light
_RACE = "cifar10-94"
# What others call what --precision takes: 16 bits come mixed with 32.
_MEANT = dict.fromkeys(("fp16", "float16", "half", "bf16", "bfloat16", "mixed", "16"), "amp")
_MEANT |= dict.fromkeys(("fp32", "full", "single", "32"), "float32")


def check_workload(workload: Workload, nodes: int = 1, gpus: GpuRequest | None = None) -> None:
    """Raises BadOption where the trainer would refuse what was typed, on so many machines with these cards in each."""
    known = bundled(workload.name)
    if not known.data_folder and workload.data not in ("auto", "synthetic"):
        raise BadOption(f"--data {workload.data}: {workload.name} makes its data up.", "Leave --data away.")
    for option, value, words in (
        ("--device", workload.device, ("auto", "cpu", "gpu")),
        ("--feed", workload.feed or FEEDS[0], FEEDS),
        ("--precision", workload.precision, PRECISIONS),
        ("--teacher", workload.teacher or TEACHERS[0], TEACHERS),
    ):
        if value not in words:
            meant = _MEANT.get(value.lower()) if option == "--precision" else None
            hint = f"Did you mean {option} {meant}?" if meant else ""
            raise BadOption(f"{option} {value}: {', '.join(words[:-1])} or {words[-1]}.", hint)
    if workload.device == "gpu" and gpus and gpus.kind == "none":
        raise BadOption("--device gpu and --gpus none contradict each other.", "Leave one of them out.")
    for option, number in (
        ("--threads", workload.threads),
        ("--epochs", workload.epochs),
        ("--steps", workload.steps),
        ("--times", workload.times),
        ("--trace", workload.trace),
    ):
        if number is not None and number < 1:
            raise BadOption(f"{option} is a whole number from 1 on.")
    if workload.batch < 1:
        raise BadOption("--batch is a whole number from 1 on, or largest.")
    if not known.parameters or workload.name == _RACE:
        _check_alone(workload, known)
    if workload.feed == "resident" and known.data_folder == "pictures" and workload.data not in ("auto", "synthetic"):
        raise BadOption(
            "--feed resident: the pictures of a folder are decoded when their turn comes, and can't lie on the device.",
            f"    ngcdl run --train {workload.name} --data {workload.data}\n"
            f"    ngcdl run --train {workload.name} --feed resident --data synthetic",
        )
    _check_together(workload)
    if workload.epochs and not known.has_epochs:
        raise BadOption(
            f"--epochs: {known.name} counts none.", f"    ngcdl run --train {known.name} --steps {known.steps}"
        )
    if workload.clip is not None and not known.trains:
        raise BadOption(f"--clip: {known.name} trains nothing.", "Leave it away.")
    if workload.times > 1 and not known.has_times:
        raise BadOption(
            f"--times {workload.times}: {known.name} is trained once in a run.",
            f"    ngcdl compare --train {known.name} --repeat {workload.times}",
        )
    if nodes > 1 and workload.autotune:
        raise BadOption(f"--nodes {nodes}: each machine would choose for itself.", "Leave --autotune out.")
    if nodes > 1 and workload.largest_batch:
        raise BadOption(f"--nodes {nodes}: the largest batch is looked for on one machine.", "Leave --nodes out.")
    if nodes > 1 and not has_replicas(workload):
        raise BadOption(f"--nodes {nodes}: of {workload.name} only one replica can run.", "Leave --nodes out.")
    check_batch(workload, gpus or GpuRequest(), nodes)


def check_batch(workload: Workload, gpus: GpuRequest, nodes: int = 1) -> None:
    """Raises BadOption where a batch is too small for all the replicas that share it."""
    replicas, each = nodes * _replicas(workload, gpus), bundled(workload.name).least_batch
    if workload.largest_batch or workload.batch >= replicas * each:
        return
    share = f"too small for {replicas} replicas" if replicas > 1 else "too small"
    why = f": the batch norm of {workload.name} wants {each} examples{' in each' * (replicas > 1)}" if each > 1 else ""
    raise BadOption(f"--batch {workload.batch}: {share}{why}.", f"    --batch {replicas * each}")


def _check_alone(workload: Workload, known: Bundled) -> None:
    """Raises BadOption where what is no long training, a check or the race, was typed with what only such a one has."""
    if not known.parameters:
        why = "is a check that is run once, and has none of that"
        given = {
            "--steps": workload.steps not in (None, known.steps),
            "--epochs": workload.epochs is not None,
            "--seconds": workload.seconds is not None,
            "--batch": workload.largest_batch or workload.batch != known.batch,
            "--feed": workload.feed not in (None, Workload(workload.name).feed),
            "--autotune": workload.autotune,
            "--times": workload.times != 1,
            "--clip": workload.clip is not None,
            "--trace": workload.trace is not None,
        }
    else:
        why = "has a plan of its own from its first step to its last, its images on the device, and no checkpoint"
        given = {
            "--clip": workload.clip is not None,
            "--trace": workload.trace is not None,
            "--resume": workload.resume is not None,
            "--seconds": workload.seconds is not None,
            "--batch largest": workload.largest_batch,
            f"--feed {workload.feed}": workload.feed not in (None, "ahead", "resident"),
            "--autotune": workload.autotune,
            "--precision tf32": workload.precision == "tf32",
        }
    if stray := [name for name, is_given in given.items() if is_given]:
        image = "" if "tf2" in known.frameworks else "$(ngcdl resolve pytorch) "
        raise BadOption(f"{', '.join(stray)}: {workload.name} {why}.", f"    ngcdl run {image}--train {workload.name}")


def _check_together(workload: Workload) -> None:
    """Raises BadOption where two things were typed that don't go together."""
    if workload.steps is not None and workload.epochs is not None:
        raise BadOption("--steps and --epochs both say how far.", "Leave one of them away.")
    if workload.seconds is not None and not 0 < workload.seconds < math.inf:
        raise BadOption("--seconds is a number above 0.")
    if workload.clip is not None and not 0 < workload.clip < math.inf:
        raise BadOption("--clip is a number above 0.")
    if workload.teacher and workload.name != "distill":
        raise BadOption(f"--teacher: {workload.name} has none.", "    ngcdl run --train distill --teacher ...")
    if workload.feed == "resident" and workload.name in _DISTORTED:
        raise BadOption(
            f"--feed resident: {workload.name} distorts its pictures on the CPU, each time anew.",
            f"    ngcdl run --train {workload.name} --feed plain\n    ngcdl run --train cifar10-keras --feed resident",
        )
    if workload.resume and workload.feed in ("constant", "input"):
        raise BadOption(f"--feed {workload.feed} leaves no result, and goes on from none.", "Leave --resume away.")
    if workload.autotune and workload.feed == "input":
        raise BadOption("--feed input computes nothing that could be tuned.", "Leave --autotune away.")


def check_place(workload: Workload, image: ImageRef | None, device: str) -> None:
    """Raises BadOption where a training can't be computed so in `image`, as far as the catalogue knows it, or on
    `device`."""
    has_tensorflow = image is None or image.framework == "tensorflow"  # None: this host's own Python
    if has_tensorflow and workload.name and "tf2" not in bundled(workload.name).frameworks:
        raise BadOption(
            f"--train {workload.name}: with PyTorch alone.",
            f"    ngcdl run $(ngcdl resolve pytorch) --train {workload.name}",
        )
    if device == "cpu" and workload.precision == "tf32":
        raise BadOption("--precision tf32: that is a GPU's, and this computes on the CPU.", "    --precision float32")
    if workload.channels_last is False and has_tensorflow:
        raise BadOption("--channels-first: with PyTorch alone.", "Leave it away, or:\n    ngcdl resolve pytorch")
    typed = [name for name, is_given in {
        "--precision amp": workload.precision == "amp", "--compile": workload.compile,
    }.items() if is_given]  # fmt: skip
    if not typed or image is None or image.tag is None:
        return
    release = releases.find(image.framework, image.tag)
    version = release.framework_version if release else None
    if image.framework == "tensorflow" and version and version.startswith("1."):
        raise BadOption(
            f"{', '.join(typed)}: not with TensorFlow {version}, which {image.framework}:{image.tag} has.",
            "Leave it away, or take an image of TensorFlow 2 or PyTorch:\n    ngcdl resolve tensorflow",
        )


def training(
    image: ImageRef | None,
    workload: Workload,
    gpus: GpuRequest,
    data: Path | None,
    resume: Path | None,
    choices: Path | None = None,
) -> RunSpec:
    """Plan a bundled training, in `image` or, where it is None, with this host's own Python.

    `data` is a checked folder of CIFAR-10 or one of pictures, None for the synthetic set, and left aside where the
    workload makes its own data up; `resume` the folder of the run to go on from; `choices` the one that outlives it, in
    which is remembered what a trial chose.
    The command runs through the image's own ENTRYPOINT, which enables NVIDIA's compatibility libraries.
    """
    inside = image is not None
    data = data if bundled(workload.name).data_folder else None
    words = ["python", "-m", "trainer", workload.name, "--out", RUN_FOLDER]
    words += ["--device", workload.device]
    words += ["--steps", str(workload.steps)] if workload.steps is not None else []
    words += ["--batch", "largest" if workload.largest_batch else str(workload.batch), "--seed", str(workload.seed)]
    words += ["--threads", str(workload.threads)] if workload.threads else []
    words += _computed(workload)
    words += ["--replicas", str(many)] if (many := _replicas(workload, gpus)) > 1 else []
    words += ["--data", (f"{INSIDE}/data" if inside else str(data)) if data else "synthetic"]
    words += ["--resume", f"{INSIDE}/resume" if inside else str(resume)] if resume else []
    words += [] if workload.evaluate else ["--no-eval"]
    words += ["--choices", f"{INSIDE}/choices" if inside else str(choices)] if choices else []
    containers = containers_folder()
    mounts = [Mount(str(containers / "trainer"), f"{INSIDE}/trainer")] if inside else []
    mounts += [Mount(str(data), f"{INSIDE}/data")] if inside and data else []
    mounts += [Mount(str(resume), f"{INSIDE}/resume")] if inside and resume else []
    mounts += [Mount(str(choices), f"{INSIDE}/choices", writable=True)] if inside and choices else []
    return RunSpec(
        image=image,
        command=tuple(words),
        gpus=gpus,
        mounts=tuple(mounts),
        environment=(("PYTHONUNBUFFERED", "1"), ("PYTHONDONTWRITEBYTECODE", "1")),
        workdir=INSIDE if inside else str(containers),
        workload=workload,
    )


def has_replicas(workload: Workload) -> bool:
    """Can several replicas train it together?"""
    known, is_taught = bundled(workload.name), workload.name == "distill" and workload.teacher != "none"
    return known.trains and known.has_replicas and workload.feed != "input" and not is_taught


def _replicas(workload: Workload, gpus: GpuRequest) -> int:
    """Give how many replicas train on a machine: one for each card that was asked for by number or name.

    What can't be trained by several has one, whatever it is given.
    """
    return (gpus.count or len(gpus.devices) or 1) if has_replicas(workload) else 1


def _computed(workload: Workload) -> list[str]:
    """Give the trainer's options of how it computes, how it is fed and how long: what differs from its own."""
    plain = Workload(workload.name)
    is_fed = workload.feed is not None and (workload.autotune or workload.feed != plain.feed)  # what is typed stays
    words = ["--feed", str(workload.feed)] if is_fed else []
    words += ["--precision", workload.precision] if workload.precision != plain.precision else []
    words += ["--compile"] if workload.compile else []
    words += ["--autotune"] if workload.autotune else []
    if workload.channels_last is not None:
        words += ["--channels-last" if workload.channels_last else "--channels-first"]
    words += ["--seconds", f"{workload.seconds:.15g}"] if workload.seconds is not None else []
    words += ["--epochs", str(workload.epochs)] if workload.epochs is not None else []
    words += ["--clip", f"{workload.clip:.15g}"] if workload.clip is not None else []
    words += ["--trace", str(workload.trace)] if workload.trace is not None else []
    words += ["--times", str(workload.times)] if workload.times != plain.times else []
    return words + (["--teacher", workload.teacher] if workload.teacher else [])


def command(image: ImageRef, words: tuple[str, ...], gpus: GpuRequest, terminal: bool, piped: bool) -> RunSpec:
    """Plan somebody's own command, or with no `words` what the image starts by itself: a shell.

    `terminal`: stdin and stdout are one; `piped`: stdin is to be read, without a terminal.
    """
    interactive = terminal or piped
    return RunSpec(image=image, command=words, gpus=gpus, tty=terminal, stdin=interactive)


def at_hand(spec: RunSpec, folder: Path) -> RunSpec:
    """Give `spec` with `folder` at HERE as its working directory."""
    return replace(spec, mounts=(*spec.mounts, Mount(str(folder), HERE, writable=True)), workdir=spec.workdir or HERE)
