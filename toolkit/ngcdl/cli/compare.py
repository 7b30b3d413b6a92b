"""`ngcdl compare`: what was typed becomes arms; then all rounds, and what came out."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ngcdl import compare as comparing
from ngcdl import console, plan, settings
from ngcdl.cli import kept as reconciled
from ngcdl.cli.run import no_open_record, reconcile_last
from ngcdl.cli.screen import Screen
from ngcdl.cli.typed import Typed, parsed
from ngcdl.compare import Comparing, Kept, Variant
from ngcdl.engines.base import Chunk
from ngcdl.errors import BadOption, signal_exit_code
from ngcdl.interrupt import Interrupted
from ngcdl.prepare import Asked
from ngcdl.report import compared
from ngcdl.report.comparison import Comparison
from ngcdl.spec import GpuRequest, ImageRef, Workload
from ngcdl.store import Store

REFUSED = 1
# What one run computes where no --steps were given: two minutes of a desktop's CPU at 250 GFLOP/s.
RUN_FLOPS = 30e12
STEPS_LEAST, STEPS_MOST = 31, 200
# A network so small that 200 steps are over before a clock has seen them gets as many as make this, up to 2,000.
MOMENT_FLOPS, STEPS_TINY = 1e12, 2000
# The trainer tells a figure every ten steps, and none of the first.
STEPS_FEWEST = 11


@dataclass(frozen=True)
class _Axis:
    """One thing of a workload that can be varied: its field, the option that sets it, and how a value is read."""

    field: str
    option: str
    read: Callable[[str], object]


def _number(text: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise ValueError("wanted whole numbers")
    return int(text)


def _one_of(**values: bool) -> Callable[[str], object]:
    def read(text: str) -> object:
        if text not in values:
            raise ValueError(f"there is {' and '.join(values)}")
        return values[text]

    return read


_AXES: Mapping[str, _Axis] = {
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
_OTHERS = ("gpus", "image", "framework", "device")
_FORM = f"wanted NAME=VALUE,VALUE with {', '.join((*_AXES, *_OTHERS[:-1]))} or {_OTHERS[-1]} for the name."
_EXAMPLE = "    ngcdl compare --train cifar10 --vary threads=1,2"


class _Hushed(Screen):
    """What the runs write is in their log.txt; here it would bury their results."""

    def chunk(self, chunk: Chunk) -> None:
        del chunk


def compare(typed: Typed, others: Sequence[str], vary: str | None, repeat: int) -> int:
    """Run the comparison that was typed, print it and give the exit code. `others` are further images."""
    if not typed.train:
        form = f"--train with {', '.join(plan.workloads())}"
        if vary is not None and vary.partition("=")[0] not in (*_AXES, *_OTHERS):
            form += f"; --vary {vary}: {_FORM.rstrip('.')}"
        raise BadOption(
            f"compare runs a bundled training: {form}.", _EXAMPLE if vary else "    ngcdl compare --train cifar10"
        )
    kept, number = carried_out(typed, others, Rounds(vary, repeat))
    code = _print(kept, Store(settings.load().runs), typed.json)
    return signal_exit_code(number) if number else code


@dataclass(frozen=True)
class Rounds:
    """What is varied, None: what the workload's file says, else CPU against GPU; and how often. When `until` (s since
    the epoch) has come, the run under way is stopped, and no other begins. `tells_gpu`: say at once that there is none.
    """

    vary: str | None
    repeat: int
    until: float | None = None
    tells_gpu: bool = True


def carried_out(typed: Typed, others: Sequence[str], rounds: Rounds) -> tuple[Kept, int | None]:
    """Run a comparison and give what is kept of it, and the signal that ended it. Raises NgcdlError before its runs."""
    repeat = rounds.repeat
    if repeat < 1:
        raise BadOption("--repeat is a whole number from 1 on.")
    config = settings.load()
    shelf = Store(config.runs)
    if typed.batch == "largest":
        raise BadOption("--batch largest: what is compared has the same batch.", "    ngcdl run ... --batch largest")
    known = plan.bundled(typed.train or "")
    if not known.parameters:
        raise BadOption(f"{known.name} is a check without a speed to compare.", f"    ngcdl run --train {known.name}")
    vary = rounds.vary or (None if others else known.vary)
    if typed.steps is None and typed.epochs is None and typed.seconds is None:
        typed = replace(typed, steps=steps_of(known, vary, typed.batch))
    elif typed.steps is not None and typed.steps < STEPS_FEWEST:
        raise BadOption(f"--steps {typed.steps}: less than {STEPS_FEWEST} give no figure to compare.", "Leave it out.")
    images = [ImageRef.parse(name, config.registry) for name in (typed.image, *others) if name]
    asked = replace(parsed(typed, config, shelf), command="compare")
    name, variants = arms(asked, vary, images, config.registry)
    for one in (variant.asked for variant in variants):
        plan.check_workload(one.workload or Workload(""))
        plan.check_place(one.workload or Workload(""), one.image, one.device or _device(one.gpus))
    reconcile_last(shelf)
    screen, number = _Hushed(output_to_stderr=True), None
    with screen:
        ready, remarks = comparing.settle(variants, config, shelf, screen)
        for remark in remarks if rounds.tells_gpu else ():
            screen.say(f"{remark}; the rest is")
        shown = tuple((variant.name, variant.device) for variant, _ in ready)
        kept = Kept(shelf.new_id("compare"), name, repeat, shown, time.time(), remarks=remarks)
        going = Comparing({variant.name: settled for variant, settled in ready}, kept, shelf, screen, rounds.until)
        often = f"{repeat} rounds" if repeat > 1 else "1 round"
        screen.say(f"{kept.id}: {often} of {', '.join(going.arms)}; watch one with: ngcdl logs -f last")
        try:
            with no_open_record(shelf):
                going.go()
        except (KeyboardInterrupt, Interrupted) as error:
            number = error.number if isinstance(error, Interrupted) else signal.SIGINT
            screen.say(f"stopped by {signal.Signals(number).name}; what is whole:")
    return going.kept, number


def _device(gpus: GpuRequest) -> str:
    return "cpu" if gpus.kind == "none" else "auto"


def steps_of(known: plan.Bundled, vary: str | None = None, batch: int | str | None = None) -> int:
    """Give as many steps as make RUN_FLOPS, in bounds: a big network's are few on a CPU, and enough for a median; those
    of a tiny one are many, until they take a moment. Of several batches the largest counts."""
    typed = str(batch or "")  # what is no number is refused later
    largest = max([int(typed) if typed.isdecimal() else known.batch, *batches_of(vary)])
    flops = max(known.flops_per_example * largest, 1)
    return int(max(min(max(RUN_FLOPS / flops, STEPS_LEAST), STEPS_MOST), min(MOMENT_FLOPS / flops, STEPS_TINY)))


def batches_of(vary: str | None) -> list[int]:
    """Give the batches that are varied; what is none is refused later."""
    name, _, values = (vary or "").partition("=")
    return [int(value) for value in values.split(",") if value.strip().isdecimal()] if name == "batch" else []


def show(name: str, as_json: bool) -> int:
    """Print a comparison from its records once more. Raises NoSuchComparison or RecordBroken."""
    shelf = Store(settings.load().runs)
    return _print(reconciled.comparison(shelf, name), shelf, as_json)


def _print(kept: Kept, shelf: Store, as_json: bool) -> int:
    found = comparing.compared(kept, shelf)
    if as_json:
        about = {"id": kept.id, "repeat": kept.repeat, "started": kept.started, "finished": kept.finished}
        trials = [vars(trial) for trial in kept.trials]
        console.result_json({**about, **found.as_json(), "trials": trials})
        return exit_code(found)
    for line in compared.lines(found, console.columns(sys.stdout)):
        console.result(console.wrapped(console.plain(line), sys.stdout))
    console.say(f"once more: ngcdl compare --show {kept.id}; as a page: ngcdl report {kept.id}")
    return exit_code(found)


def exit_code(found: Comparison) -> int:
    """Give 1 where an arm that was to be compared was refused altogether, else 0."""
    empty = [arm for arm in found.arms if not arm.counted]
    has_all = all(any(ratio.arm == arm.name for ratio in found.ratios) for arm in found.arms[1:])
    return REFUSED if empty or (found.refused and not has_all) else 0


# -- what is varied -------------------------------------------------------------------------------------------------


def arms(base: Asked, vary: str | None, images: Sequence[ImageRef], registry: str) -> tuple[str, list[Variant]]:
    """Give what is varied and the arms, the one that the others are measured by first. Raises BadOption."""
    if vary is None and len(images) > 1:
        return "image", [Variant(_short(image, images), replace(base, image=image)) for image in images]
    name, _, text = (vary or "device=cpu,gpu").partition("=")
    values = [value.strip() for value in text.split(",")]
    if "" in values:
        raise BadOption(f"--vary {vary}: {_FORM}", _EXAMPLE)
    if len(values) < 2 or len(set(values)) < len(values):
        raise BadOption(f"--vary {vary}: at least two values, each once.", _EXAMPLE)
    if len(images) > 1 and name != "framework":
        raise BadOption(f"--vary {name} takes one image.", "    ngcdl compare IMAGE --vary ...")
    if name == "device":
        return name, _devices(base, values)
    if name == "gpus" and "none" in values:
        raise BadOption(
            "--vary gpus compares cards; without one it is the CPU.", "    ngcdl compare --vary device=cpu,gpu"
        )
    return name, [
        Variant(f"{name}={value}", _with(base, name, value, images, registry), base.device) for value in values
    ]


def _with(base: Asked, name: str, value: str, images: Sequence[ImageRef], registry: str) -> Asked:
    """Give what is asked with the one thing that is varied. Raises UsageError."""
    if name in _AXES:
        return replace(base, workload=_on_axis(base.workload, name, value))
    if name == "gpus":
        return replace(base, gpus=GpuRequest.parse(value))
    if name == "image":
        return replace(base, image=ImageRef.parse(value, registry))
    if name == "framework":
        return replace(base, image=_of_framework(value, images))
    raise BadOption(f"--vary {name}: {_FORM}", _EXAMPLE)


def _devices(base: Asked, values: Sequence[str]) -> list[Variant]:
    """CPU and GPU, the CPU first: the same request, image and mounts; only what the training computes on differs."""
    if set(values) != {"cpu", "gpu"}:
        raise BadOption("--vary device=cpu,gpu: there are these two.")
    if base.device:
        raise BadOption(f"--device {base.device}: this compares the CPU with the GPU.", "Leave it out, or --vary more.")
    if base.gpus.kind == "none":
        raise BadOption("--gpus none leaves nothing to compare the CPU with.", _EXAMPLE)
    return [Variant(value, replace(base, device=value), value) for value in ("cpu", "gpu")]


def _on_axis(base: Workload | None, name: str, value: str) -> Workload:
    assert base is not None  # compare has a training
    axis = _AXES[name]
    plain = Workload("", batch=plan.bundled(base.name).batch)
    if getattr(base, axis.field) != getattr(plain, axis.field):
        raise BadOption(f"{axis.option} is what is varied.", f"Leave {axis.option} out.")
    try:
        found = axis.read(value)
    except ValueError as error:
        raise BadOption(f"--vary {name}={value}: {error}.") from error
    return replace(base, **{axis.field: found})  # type: ignore[arg-type]  # what the axis reads is of its field


def _of_framework(value: str, images: Sequence[ImageRef]) -> ImageRef:
    found = [image for image in images if image.framework == _SPOKEN.get(value, value)]
    if len(found) != 1:
        raise BadOption(
            f"--vary framework: {value} is in {len(found)} of the images that were named.",
            "    ngcdl compare TENSORFLOW-IMAGE PYTORCH-IMAGE --vary framework=tensorflow,pytorch --train cifar10",
        )
    return found[0]


def _short(image: ImageRef, images: Sequence[ImageRef]) -> str:
    """tensorflow:18.01-py2 where that says it, else the whole name."""
    short = f"{image.framework}{f':{image.tag}' if image.tag else f'@{str(image.digest)[:19]}'}"
    alike = [
        one for one in images if (one.framework, one.tag, one.digest) == (image.framework, image.tag, image.digest)
    ]
    return short if len(alike) == 1 else str(image)
