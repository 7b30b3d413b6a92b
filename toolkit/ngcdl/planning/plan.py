"""Turns what was typed into a RunSpec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from ngcdl.planning.asked import Asked
from ngcdl.spec import GpuRequest, ImageRef, Mount, RunSpec, Workload, inside
from ngcdl.trainings import bundled, containers_folder, replicas

_AT_ONCE = ("PYTHONUNBUFFERED", "1")


def of(
    asked: Asked,
    image: ImageRef | None,
    gpus: GpuRequest,
    device: str,
    data: Path | None,
    folder_of: Callable[[str], Path],
    choices: Path | None = None,
) -> RunSpec:
    """Plan what was asked for, with its image and cards, but without what its engine and `asked.extra` add. `device` is
    where a training computes unless that was typed, `folder_of` a run's folder; `data` and `choices` are as below."""
    if asked.workload:
        workload = replace(asked.workload, device=asked.device or device)
        resume = folder_of(workload.resume) if workload.resume else None
        return training(image, workload, gpus, data, resume, choices)
    assert asked.own is not None  # Asked has either a workload or its own spec
    return replace(asked.own, image=image, gpus=gpus)


def training(
    image: ImageRef | None,
    workload: Workload,
    gpus: GpuRequest,
    data: Path | None,
    resume: Path | None,
    choices: Path | None = None,
) -> RunSpec:
    """Plan a bundled training, in `image` or, if it is None, with this host's own Python.

    `data` is a verified folder of CIFAR-10 or of pictures, None for the synthetic set; it is ignored if the workload
    makes up its own data. `resume` is the folder of the run to continue. `choices` is a folder that outlives the run
    and remembers what --autotune chose.
    The command runs through the image's own ENTRYPOINT, which enables NVIDIA's compatibility libraries.
    """
    contained = image is not None
    data = data if bundled(workload.name).data_folder else None
    words = ["python", "-m", "trainer", workload.name, "--out", inside.RUN]
    words += ["--device", workload.device]
    words += ["--steps", str(workload.steps)] if workload.steps is not None else []
    words += ["--batch", "largest" if workload.largest_batch else str(workload.batch), "--seed", str(workload.seed)]
    words += ["--threads", str(workload.threads)] if workload.threads else []
    words += _computed(workload)
    words += ["--replicas", str(many)] if (many := replicas(workload, gpus)) > 1 else []
    words += ["--data", (inside.DATA if contained else str(data)) if data else "synthetic"]
    words += ["--resume", inside.RESUME if contained else str(resume)] if resume else []
    words += [] if workload.evaluate else ["--no-eval"]
    words += ["--choices", inside.CHOICES if contained else str(choices)] if choices else []
    containers = containers_folder()
    mounts = [Mount(str(containers / "trainer"), inside.TRAINER)] if contained else []
    mounts += [Mount(str(data), inside.DATA)] if contained and data else []
    mounts += [Mount(str(resume), inside.RESUME)] if contained and resume else []
    mounts += [Mount(str(choices), inside.CHOICES, writable=True)] if contained and choices else []
    return RunSpec(
        image=image,
        command=tuple(words),
        gpus=gpus,
        mounts=tuple(mounts),
        environment=(_AT_ONCE, ("PYTHONDONTWRITEBYTECODE", "1")),
        workdir=inside.ROOT if contained else str(containers),
        workload=workload,
    )


def _computed(workload: Workload) -> list[str]:
    """Return the trainer's options for computing, feeding and duration that differ from its defaults."""
    plain = Workload(workload.name)
    is_fed = workload.feed is not None and (workload.autotune or workload.feed != plain.feed)  # autotune keeps --feed
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


def command(
    image: ImageRef | None, words: tuple[str, ...], gpus: GpuRequest, terminal: bool, piped: bool, is_left: bool = False
) -> RunSpec:
    """Plan a user's own command, in `image` or, if it is None, on this host. If `words` is empty, the image's default
    command runs: a shell.

    `terminal`: stdin and stdout are a terminal; `piped`: stdin is read, but is not a terminal; `is_left`: only its log
    will show what it prints.
    """
    interactive = terminal or piped
    # Where nothing is a terminal, Python holds back 8 KB of what a script prints, and loses them if a signal ends it:
    # https://docs.python.org/3/using/cmdline.html#envvar-PYTHONUNBUFFERED
    at_once = not terminal and (image is not None or is_left)
    return RunSpec(
        image=image, command=words, gpus=gpus, tty=terminal, stdin=interactive, environment=(_AT_ONCE,) * at_once
    )


def with_folder_mounted(spec: RunSpec, folder: Path) -> RunSpec:
    """Return `spec` with `folder` mounted at inside.WORK as its working directory."""
    mount = Mount(str(folder), inside.WORK, writable=True)
    return replace(spec, mounts=(*spec.mounts, mount), workdir=spec.workdir or inside.WORK)


def with_extra(spec: RunSpec, extra: RunSpec | None) -> RunSpec:
    """Return `spec` with what the options of a run add to it."""
    if extra is None:
        return spec
    return replace(
        spec,
        mounts=spec.mounts + extra.mounts,
        environment=tuple((dict(spec.environment) | dict(extra.environment)).items()),
        packages=extra.packages or spec.packages,
        ports=extra.ports,
        shm_bytes=extra.shm_bytes,
        ulimits=extra.ulimits,
        cpu_limit=extra.cpu_limit,
        memory_bytes=extra.memory_bytes,
        workdir=extra.workdir or spec.workdir,
        sample_seconds=extra.sample_seconds,
    )
