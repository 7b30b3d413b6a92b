"""Refuses options that a training does not take, or that contradict each other, before anything is fetched."""

from __future__ import annotations

import math

from ngcdl.catalog import releases
from ngcdl.errors import BadOption
from ngcdl.spec import FEEDS, PRECISIONS, TEACHERS, GpuRequest, ImageRef, Workload
from ngcdl.trainings import Bundled, bundled, find, has_replicas, names, replicas

# Other names for the values of --precision. 16 bits means mixed with 32.
_MEANT = dict.fromkeys(("fp16", "float16", "half", "bf16", "bfloat16", "mixed", "16"), "amp")
_MEANT |= dict.fromkeys(("fp32", "full", "single", "32"), "float32")
_MOST_THREADS = 4096  # more would exhaust the system; as in the trainer's arguments.py
_MADE_UP = ("auto", "synthetic")  # values of --data that name no folder


def check_workload(workload: Workload, nodes: int = 1, gpus: GpuRequest | None = None) -> None:
    """Raise BadOption if the trainer would refuse what was typed, on `nodes` machines with `gpus` in each."""
    known = bundled(workload.name)
    _check_words(workload)
    _check_numbers(workload)
    _check_refused(workload, known)
    _check_together(workload, gpus)
    _check_data(workload, known)
    _check_training(workload, known)
    if nodes > 1:
        _check_nodes(workload, nodes)
    check_batch(workload, gpus or GpuRequest(), nodes)


def check_batch(workload: Workload, gpus: GpuRequest, nodes: int = 1) -> None:
    """Raise BadOption if a batch is too small for all the replicas that share it."""
    many, each = nodes * replicas(workload, gpus), bundled(workload.name).least_batch
    if workload.largest_batch or workload.batch >= many * each:
        return
    share = f"too small for {many} replicas" if many > 1 else "too small"
    why = f": the batch norm of {workload.name} needs {each} examples{' in each' * (many > 1)}" if each > 1 else ""
    typed = f"--batch {workload.batch}"
    raise BadOption(f"{typed}: {share}{why}.", f"    ngcdl ... --batch {many * each}  # without {typed}")


def check_place(workload: Workload, image: ImageRef | None, device: str) -> None:
    """Raise BadOption if a training can't run with these options in `image`, as far as the catalogue knows the image,
    or on `device`."""
    has_tensorflow = image is None or image.framework == "tensorflow"  # None: this host's own Python
    if has_tensorflow and "tf2" not in bundled(workload.name).frameworks:
        raise BadOption(f"--train {workload.name}: only with PyTorch.", _in_pytorch(image))
    if device == "cpu" and workload.precision == "tf32":
        said = "--precision tf32: only GPUs have it, and this computes on the CPU."
        raise BadOption(said, "    ngcdl ... --precision float32  # without --precision tf32")
    if workload.channels_last is False and has_tensorflow:
        raise BadOption("--channels-first: only with PyTorch.", f"Leave it out, or:\n{_in_pytorch(image)}")
    if image is not None:
        _check_release(workload, image)


def _in_pytorch(image: ImageRef | None) -> str:
    """Return the line that was typed, with PyTorch in place of `image`, or of this host's own Python."""
    return f"    ngcdl ... pytorch  # without {image or '--engine NAME'}"


def _check_release(workload: Workload, image: ImageRef) -> None:
    """Raise BadOption if `image` has a TensorFlow before 1.4, or if it has TensorFlow 1 and an option was typed that
    TensorFlow 1 lacks."""
    typed = {"--precision amp": workload.precision == "amp", "--compile": workload.compile}
    stray = [name for name, is_given in typed.items() if is_given]
    if image.framework != "tensorflow" or image.tag is None:
        return
    release = releases.find(image.framework, image.tag)
    version = release.framework_version if release else None
    if version and [int(part) for part in version.split(".")[:2]] < [1, 4]:
        raise BadOption(
            f"--train {workload.name}: not before TensorFlow 1.4; {image.framework}:{image.tag} has {version}.",
            f"    ngcdl ... tensorflow:18.01-py2  # without {image}",
        )
    if stray and version and version.startswith("1."):
        raise BadOption(
            f"{', '.join(stray)}: not with TensorFlow {version}, which {image.framework}:{image.tag} has.",
            "Leave it out, or take an image of TensorFlow 2 or PyTorch:\n    ngcdl resolve tensorflow",
        )


# -- for any training -----------------------------------------------------------------------------------------------


def _check_words(workload: Workload) -> None:
    """Raise BadOption if an option does not take the word it was given."""
    for option, value, words in (
        ("--device", workload.device, ("auto", "cpu", "gpu")),
        ("--feed", workload.feed or FEEDS[0], FEEDS),
        ("--precision", workload.precision, PRECISIONS),
        ("--teacher", workload.teacher or TEACHERS[0], TEACHERS),
    ):
        if value not in words:
            meant = _MEANT.get(value.lower()) if option == "--precision" else None
            hint = f"Did you mean {meant}?\n    ngcdl ... {option} {meant}  # without {option} {value}" if meant else ""
            raise BadOption(f"{option} {value}: {', '.join(words[:-1])} or {words[-1]}.", hint)


def _check_numbers(workload: Workload) -> None:
    """Raise BadOption if a number is too small, too large, or not finite."""
    for option, whole in (
        ("--threads", workload.threads),
        ("--epochs", workload.epochs),
        ("--steps", workload.steps),
        ("--times", workload.times),
        ("--trace", workload.trace),
    ):
        if whole is not None and whole < 1:
            raise BadOption(f"{option} must be a whole number, 1 or more.")
    if (workload.threads or 0) > _MOST_THREADS:
        raise BadOption(f"--threads must be at most {_MOST_THREADS}.")
    if workload.batch < 1:
        raise BadOption("--batch must be a whole number, 1 or more, or largest.")
    for option, number in (("--seconds", workload.seconds), ("--clip", workload.clip)):
        if number is not None and not 0 < number < math.inf:
            raise BadOption(f"{option} must be a number above 0.")


def _check_together(workload: Workload, gpus: GpuRequest | None) -> None:
    """Raise BadOption if two options were typed that don't go together."""
    if workload.device == "gpu" and gpus and gpus.kind == "none":
        raise BadOption("--device gpu and --gpus none contradict each other.", "Leave one of them out.")
    if workload.steps is not None and workload.epochs is not None:
        raise BadOption("--steps and --epochs both set how long to train.", "Leave one of them out.")
    if workload.resume and workload.feed in ("constant", "input"):
        raise BadOption(f"--feed {workload.feed} produces no result, and can't resume from one.", "Leave --resume out.")
    if workload.autotune and workload.feed == "input":
        raise BadOption("--feed input computes nothing that could be tuned.", "Leave --autotune out.")


def _check_nodes(workload: Workload, nodes: int) -> None:
    """Raise BadOption if an option was typed that several machines can't use together."""
    if workload.autotune:
        raise BadOption(f"--nodes {nodes}: each machine would tune for itself.", "Leave --autotune out.")
    if workload.largest_batch:
        raise BadOption(f"--nodes {nodes}: the search for the largest batch runs on one machine.", "Leave --nodes out.")
    if not has_replicas(workload):
        raise BadOption(f"--nodes {nodes}: {workload.name} can run only one replica.", "Leave --nodes out.")


# -- for this training, by its file ----------------------------------------------------------------------------------


def _check_refused(workload: Workload, known: Bundled) -> None:
    """Raise BadOption if an option was typed that the training's file refuses."""
    typed = typed_options(workload, known)
    if stray := [option for option in known.refuses if option in typed]:
        less = " ".join(f"{option.split()[0]}{'' if option == '--autotune' else ' VALUE'}" for option in stray)
        raise BadOption(f"{', '.join(stray)}: {known.name} {known.because}.", f"    ngcdl ...  # without {less}")


def typed_options(workload: Workload, known: Bundled) -> frozenset[str]:
    """Return the options that a training's file may refuse and that differ from their defaults: each by its name, and
    also with its word if it takes one."""
    plain = Workload(known.name, steps=known.steps, batch=known.batch)
    given = {
        "--autotune": workload.autotune,
        "--batch": workload.largest_batch or workload.batch != plain.batch,
        "--batch largest": workload.largest_batch,
        "--clip": workload.clip is not None,
        "--epochs": workload.epochs is not None,
        "--feed": workload.feed not in (None, plain.feed),
        f"--feed {workload.feed}": workload.feed is not None,
        "--precision": workload.precision != plain.precision,
        f"--precision {workload.precision}": True,
        "--resume": workload.resume is not None,
        "--seconds": workload.seconds is not None,
        "--steps": workload.steps not in (None, plain.steps),
        "--times": workload.times != plain.times,
        "--trace": workload.trace is not None,
    }
    return frozenset(option for option, is_given in given.items() if is_given)


def _check_data(workload: Workload, known: Bundled) -> None:
    """Raise BadOption if the training can't use this data, or not with this --feed."""
    is_a_folder = workload.data not in _MADE_UP
    if is_a_folder and not known.data_folder:
        raise BadOption(f"--data {workload.data}: {known.name} makes its data up.", "Leave --data out.")
    if workload.feed == "resident" and is_a_folder and known.data_folder == "pictures":
        raise BadOption(
            "--feed resident: the pictures of a folder are decoded one by one, and can't be kept on the device.",
            "    ngcdl ...  # without --feed VALUE\n    ngcdl ... --data synthetic",
        )
    if workload.feed == "resident" and not known.has_epochs:  # batches are gathered in epoch order
        raise BadOption(
            f"--feed resident: each batch of {known.name} is made on the CPU when its turn comes, and can't be on the "
            "device beforehand.",
            "Make batches ahead of time, or use one again and again:\n"
            + "\n".join(f"    ngcdl ... --feed {feed}  # without --feed resident" for feed in ("ahead", "constant")),
        )


def _check_training(workload: Workload, known: Bundled) -> None:
    """Raise BadOption if an option was typed that other trainings have, but not this one."""
    if workload.teacher and not known.teacher:
        taught = [f"    ngcdl ... --train {name}" for name in names() if (one := find(name)) and one.teacher]
        raise BadOption(f"--teacher: {known.name} has none.", "\n".join(taught))
    if workload.epochs and not known.has_epochs:
        raise BadOption(
            f"--epochs: {known.name} has no epochs.", f"    ngcdl ... --steps {known.steps}  # without --epochs N"
        )
    if workload.clip is not None and not known.trains:
        raise BadOption(f"--clip: {known.name} trains nothing.", "Leave it out.")
    if workload.times > 1 and not known.has_times:
        raise BadOption(
            f"--times {workload.times}: {known.name} trains only once in a run.",
            "    ngcdl ...  # without --times N",
        )
