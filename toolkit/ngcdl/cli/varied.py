"""Turns `--vary NAME=A,B` into the arms of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ngcdl import trainings
from ngcdl.comparing.compare import Variant
from ngcdl.errors import ON_CPU_ALONE, BadOption
from ngcdl.frozen import dataclass
from ngcdl.planning import validation
from ngcdl.planning.asked import Asked
from ngcdl.preflight import meant
from ngcdl.report.compared.scaling import OWN, STRONG, UNITS, WEAK
from ngcdl.spec import KINDS, GpuRequest, ImageRef, Placement, Workload, kind_of


@dataclass(frozen=True)
class _Axis:
    """One property of a workload that can be varied: its field, the option that sets it, and how to read a value."""

    field: str
    option: str
    read: Callable[[str], object]


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise ValueError("must be whole numbers")
    return int(text)


def _one_of(**values: bool) -> Callable[[str], object]:
    def read(text: str) -> object:
        if text not in values:
            raise ValueError(f"must be {' or '.join(values)}")
        return values[text]

    return read


AXES: Mapping[str, _Axis] = {
    "batch": _Axis("batch", "--batch", _number),
    "threads": _Axis("threads", "--threads", _number),
    "seed": _Axis("seed", "--seed", _number),
    "feed": _Axis("feed", "--feed", str),
    "precision": _Axis("precision", "--precision", str),
    "teacher": _Axis("teacher", "--teacher", str),
    "compile": _Axis("compile", "--compile", _one_of(on=True, off=False)),
    "channels": _Axis("channels_last", "--channels-last or --channels-first", _one_of(last=True, first=False)),
}
_SPOKEN = {"tf": "tensorflow", "tf1": "tensorflow", "tf2": "tensorflow", "torch": "pytorch"}
OTHERS = ("gpus", "nodes", "image", "framework", "device")
FORM = f"must be NAME=VALUE,VALUE with {', '.join((*AXES, *OTHERS[:-1]))} or {OTHERS[-1]} for the name."
# Values to show to those who typed none for a name.
VALUES = {
    "batch": "8,64", "threads": "1,2", "seed": "0,1", "feed": "ahead,plain", "precision": "float32,amp",
    "teacher": "together,ahead", "compile": "off,on", "channels": "first,last", "gpus": "1,2", "nodes": "1,2",
    "device": "cpu,gpu", "framework": "tensorflow,pytorch",
    "image": "pytorch:24.05-py3,pytorch:25.03-py3",
}  # fmt: skip
# What sets the same as --vary, where that is not the option of the same name, with a value.
_CONTRADICTS = {
    "precision": "--precision N --amp", "compile": "--compile", "channels": "--channels-last --channels-first",
}  # fmt: skip
# What can be varied for a command of the user's own, whose computation is unknown.
_OF_COMMAND = ("device", "image", *UNITS)
_OWN = "    ngcdl compare -- python3 train.py"
_IN_AN_IMAGE = "    ngcdl compare IMAGE -- python train.py"
_ITS_OWN = "Run it with each of its own settings, then look at both runs:\n    ngcdl report last last-1"
_OF_FRAMEWORKS = "    ngcdl compare TENSORFLOW-IMAGE PYTORCH-IMAGE --vary framework=tensorflow,pytorch --train cifar10"
_ON_NODES = "    ngcdl compare IMAGE --train cifar10 --engine slurm --vary nodes=1,2"


def arms(
    base: Asked, vary: str | None, images: Sequence[ImageRef], registry: str, scaling: str | None = None
) -> tuple[str, list[Variant]]:
    """Return what is varied, and the arms, the baseline first. Raise BadOption.

    `scaling` matters if the number of nodes or GPUs is varied. STRONG, and None: --batch is for all replicas together;
    WEAK: --batch is for each replica."""
    example = _example(base, (vary or "").partition("=")[0])
    if vary is None and len(images) > 1:
        check_images(base, images)
        return "image", [Variant(_short(image, images), replace(base, image=image)) for image in images]
    again = f"--train {base.workload.name} --vary" if base.workload else "--vary"
    name, _, text = (vary or "device=cpu,gpu").partition("=")
    values = [value.strip() for value in text.split(",")]
    if "" in values:
        full = named(name, _OF_COMMAND if base.workload is None else tuple(VALUES))
        raise BadOption(f"--vary {vary}: {FORM}", f"    ngcdl compare ... --vary {full}" if full else example)
    if len(values) < 2 or len(set(values)) < len(values):
        raise BadOption(f"--vary {vary}: needs at least two values, all different.", example)
    if base.workload is None and name not in _OF_COMMAND:
        known = f"{', '.join(_OF_COMMAND[:-1])} or {_OF_COMMAND[-1]}"
        lead = "only a bundled training has that, and " if name in VALUES else ""
        raise BadOption(f"--vary {name}: {lead}a command of your own is compared by {known}.", _ITS_OWN)
    if name not in VALUES:
        raise BadOption(f"--vary {vary}: {FORM}", example)
    if len(images) > 1 and name != "framework":
        raise BadOption(f"--vary {name} takes one image.", f"    ngcdl compare IMAGE {again} ...")
    if name == "device":
        return name, _devices(base, values)
    if name == "gpus" and "none" in values:
        raise BadOption(
            "--vary gpus compares cards, and none means the CPU.", f"    ngcdl compare {again} device=cpu,gpu"
        )
    asked = {f"{name}={value}": _with(base, name, value, images, registry) for value in values}
    if name == "image":
        check_images(base, [one.image for one in asked.values() if one.image])
    elif alike := _twice(list(asked.values())):
        raise BadOption(f"--vary {vary}: {values[alike[0]]} and {values[alike[1]]} are the same.", example)
    if name in UNITS and base.workload:
        asked = {arm: _scaled(arm, one, scaling == WEAK) for arm, one in asked.items()}
    return name, [Variant(arm, one, base.device) for arm, one in asked.items()]


def named(values: str, names: Sequence[str]) -> str | None:
    """Return NAME=`values`, with the one of the `names` that has these values, or with the first that has numbers if
    they are numbers, which several have; None if they are something else."""
    words = sorted(values.split(","))
    if len(words) > 1 and all(map(str.isdecimal, words)):
        found = [name for name in names if VALUES.get(name, "")[:1].isdecimal()]
    else:
        found = [name for name in names if words == sorted(VALUES.get(name, "").split(",")) and words[0].isalpha()]
    return f"{found[0]}={values}" if found else None


def example(name: str, training: str = "cifar10") -> str:
    """Return a line that varies `name`; something else if no example of `name` fits on a line."""
    if name in ("nodes", "framework"):
        return _ON_NODES if name == "nodes" else _OF_FRAMEWORKS
    name = name if name in VALUES else "threads"
    return f"    ngcdl compare --train {training} --vary {name}={VALUES[name]}"


def _example(base: Asked, name: str) -> str:
    """Return the line that was typed, varying `name`, without an option that contradicts that."""
    if not base.workload:
        return _IN_AN_IMAGE if base.image else _OWN
    if name in ("nodes", "framework"):
        return example(name, base.workload.name)
    name = name if name in VALUES else "threads"
    less = _CONTRADICTS.get(name, f"--{name} N") + (
        " --gpus N" if name == "device" and base.gpus.kind == "none" else ""
    )
    return f"    ngcdl ... --vary {name}={VALUES[name]}  # without {less}"


def check_images(base: Asked, images: Sequence[ImageRef]) -> None:
    """Raise BadOption if an image would be compared with itself: that could show no difference but chance."""
    if not (alike := _twice(images)):
        return
    image, hint = images[alike[0]], "Name another image."
    if base.workload:
        again = f"    ngcdl compare {image} --train {base.workload.name} --vary seed=0,1"
        hint = f"{hint} How far its runs differ by chance:\n{again}"
    raise BadOption(f"{image} would be compared with itself: two of the images are this one.", hint)


def _twice(values: Sequence[object]) -> tuple[int, int] | None:
    """Return where the first value is that occurs again, and where that is; None if all differ."""
    places = range(len(values))
    return next(((a, b) for a in places for b in places[a + 1 :] if values[a] == values[b]), None)


def with_chosen_tag(variant: Variant, image: ImageRef | None) -> Variant:
    """Return `variant`, with the tag of the chosen `image` added to its name if no tag was typed."""
    asked = variant.asked.image
    if not (asked and image and meant.is_open(asked)):
        return variant
    return replace(variant, name=f"{variant.name}:{image.tag}" if image.tag else variant.name)


def scaling_of(vary: str, typed: str | None, *, is_command: bool = False) -> str | None:
    """Return the scaling of a comparison that varies nodes or GPUs; None if `vary` is something else. Raise
    BadOption."""
    if typed not in (None, STRONG, WEAK):
        raise BadOption(f"--scaling {typed}: must be {STRONG} or {WEAK}.")
    if typed and is_command:
        raise BadOption(f"--scaling {typed}: only a bundled training has that.", "Leave it out.")
    if is_command and vary in UNITS:
        return OWN
    if vary in UNITS:
        return typed or STRONG
    if typed:
        raise BadOption(f"--scaling {typed}: only for --vary {' and --vary '.join(UNITS)}.", _ON_NODES)
    return None


def _scaled(arm: str, asked: Asked, is_weak: bool) -> Asked:
    """Return `asked` with the batch of all its replicas together. Raise BadOption if the training can have only one
    replica."""
    work = asked.workload
    assert work is not None  # the caller checked
    if not trainings.has_replicas(work):
        raise BadOption(f"--vary {arm}: {work.name} can run only as one replica.", "    ngcdl workloads")
    each = asked.gpus.count or len(asked.gpus.devices) or 1
    if is_weak and asked.gpus.kind == "all":
        hint = f"    ngcdl compare --train {work.name} --scaling weak --vary gpus=1,2"
        raise BadOption(f"--vary {arm}: --scaling weak needs a number of cards.", hint)
    if not is_weak:
        return asked
    validation.check_batch(work, GpuRequest())  # as typed, for one replica
    return replace(asked, workload=replace(work, batch=work.batch * asked.nodes * each))


def _with(base: Asked, name: str, value: str, images: Sequence[ImageRef], registry: str) -> Asked:
    """Return `base` with `value` for what is varied, `name`. Raise UsageError."""
    if name in AXES:
        return replace(base, workload=_on_axis(base.workload, name, value))
    if name == "gpus":
        return replace(base, gpus=GpuRequest.parse(value))
    if name == "nodes":
        return replace(base, placement=_on_nodes(base, value))
    if name == "image":
        return replace(base, image=meant.typed(value, registry))
    return replace(base, image=_of_framework(value, images))


def _on_nodes(base: Asked, value: str) -> Placement:
    if base.placement is None:
        clusters = [name for name, one in KINDS.items() if one.is_cluster]
        raise BadOption(f"--vary nodes: needs --engine {' or '.join(clusters)}.", _ON_NODES)
    if base.placement.nodes != Placement().nodes:
        raise BadOption("--nodes is what --vary varies.", "Leave --nodes out.")
    try:
        placement = replace(base.placement, nodes=_number(value))
    except ValueError as error:
        raise BadOption(f"--vary nodes={value}: {error}.") from error
    placement.check(base.engine)
    return placement


def _devices(base: Asked, values: Sequence[str]) -> list[Variant]:
    """Return the arms CPU and GPU, the CPU first: same request, image and mounts; only the training's device differs.

    A command of the user's own gets no GPU in the CPU arm. In the GPU arm it gets the GPUs that were requested; by
    default all, on a cluster one."""
    if set(values) != {"cpu", "gpu"}:
        raise BadOption("--vary device=cpu,gpu: takes exactly these two.")
    if base.device:
        raise BadOption(
            f"--device {base.device}: this compares the CPU with the GPU.", "Leave it out, or --vary something else."
        )
    if base.gpus.kind == "none":
        alone = "    ngcdl compare ... --vary threads=1,2" if base.workload else ON_CPU_ALONE
        raise BadOption("--gpus none leaves nothing to compare the CPU with.", alone)
    if base.workload is None:
        usual = "1" if kind_of(base.engine).is_cluster else "all"
        cards = base.gpus if base.gpus.demanded else GpuRequest.parse(usual)
        given = {"cpu": GpuRequest("none"), "gpu": cards}
        return [Variant(name, replace(base, gpus=gpus), name) for name, gpus in given.items()]
    return [Variant(value, replace(base, device=value), value) for value in ("cpu", "gpu")]


def _on_axis(base: Workload | None, name: str, value: str) -> Workload:
    assert base is not None  # arms() checked
    axis = AXES[name]
    plain = Workload("", batch=trainings.bundled(base.name).batch)
    if getattr(base, axis.field) != getattr(plain, axis.field):
        raise BadOption(f"{axis.option} is what --vary varies.", f"Leave {axis.option} out.")
    try:
        found = axis.read(value)
    except ValueError as error:
        raise BadOption(f"--vary {name}={value}: {error}.") from error
    return replace(base, **{axis.field: found})  # type: ignore[arg-type]  # the axis reads its field's type


def _of_framework(value: str, images: Sequence[ImageRef]) -> ImageRef:
    found = [image for image in images if image.framework == _SPOKEN.get(value, value)]
    if len(found) != 1:
        raise BadOption(
            f"--vary framework: {value} is in {len(found)} of the images named; it must be in exactly one.",
            _OF_FRAMEWORKS,
        )
    return found[0]


def _short(image: ImageRef, images: Sequence[ImageRef]) -> str:
    """Return a short name such as tensorflow:18.01-py2 if that is unambiguous, else the whole name."""
    release = f":{image.tag}" if image.tag else f"@{image.digest[:19]}" if image.digest else ""
    short = f"{image.framework}{release}"
    alike = [
        one for one in images if (one.framework, one.tag, one.digest) == (image.framework, image.tag, image.digest)
    ]
    return short if len(alike) == 1 else str(image)
