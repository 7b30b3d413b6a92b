"""The commands that start runs: one, or several to compare; and the list of bundled trainings."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from ngcdl import console
from ngcdl.cli import completed, options
from ngcdl.cli.app.declared import takes
from ngcdl.cli.app.placed import Placed
from ngcdl.cli.app.root import MORE, RUN, app
from ngcdl.cli.options import Detach, Json

if TYPE_CHECKING:
    from ngcdl.cli.typed import Typed


_PROJECT = "What is not typed for a command or a shell comes from ngcdl.toml, in this folder or one above it.\n\n"


class Computed:
    """The options that say how a training computes."""

    seed: options.Seed = 0
    clip: options.Clip = None
    threads: options.Threads = None
    feed: options.Feed = None
    precision: options.Precision = "auto"
    amp: options.Amp = False
    compile: options.Compile = False
    channels_last: options.ChannelsLast = None


class Hosted:
    """The options that say where a run is, and what of its host it gets."""

    gpus: options.Gpus = "auto"
    device: options.Device = None
    engine: options.EngineName = "auto"
    placement: Placed
    volumes: options.Volumes = None
    environment: options.Variables = None
    env_files: options.VariableFiles = None
    packages: options.Packages = None
    sample_every: options.SampleEvery = 1.0


class RunOptions:
    """The options of `ngcdl run`, in the order of its --help."""

    image: Annotated[
        str | None,
        options.image(
            metavar="IMAGE",
            help="pytorch, tensorflow:24.05-tf2-py3, ...; without one, here and in ngcdl.toml, the command after -- "
            "runs on this host.",
        ),
    ] = None
    stray: Annotated[
        list[str] | None, typer.Argument(hidden=True, metavar="-- COMMAND", autocompletion=completed.tags)
    ] = None
    train: options.Train = None
    steps: options.Steps = None
    epochs: options.Epochs = None
    seconds: options.Seconds = None
    times: options.Times = 1
    batch: options.Batch = None
    computed: Computed
    autotune: options.Autotune = False
    teacher: options.Teacher = None
    data: options.Data = "auto"
    resume: Annotated[
        str | None,
        options.training(autocompletion=completed.runs, metavar="RUN", help="Continue from a run's last checkpoint."),
    ] = None
    trace: Annotated[
        int | None,
        options.training(metavar="N", help="Keep a timeline of the first N steps, for Chrome or Perfetto."),
    ] = None
    no_eval: Annotated[bool, options.training("--no-eval", help="Don't evaluate the trained network.")] = False
    hosted: Hosted
    wait: Annotated[
        bool,
        options.place(
            "--wait",
            help="Wait in line until its GPUs are free (a command must name them: --gpus 1); with --detach, in the "
            "background.",
        ),
    ] = False
    ports: Annotated[
        list[str] | None,
        options.container("-p", "--publish", metavar="[ADDRESS:][HOST:]CONTAINER", help="Publish a port. Repeatable."),
    ] = None
    shm_size: options.ShmSize = "1g"
    ulimits: options.Limits = None
    cpus: options.Cpus = None
    memory: options.Memory = None
    workdir: options.Workdir = None
    interactive: Annotated[
        bool,
        options.container("-i", "--interactive", help="Pass stdin on even if it is not a terminal."),
    ] = False
    tty: Annotated[bool, typer.Option("-t", "--tty", hidden=True)] = False
    rm: Annotated[bool, typer.Option("--rm", hidden=True)] = False
    root: options.AsRoot = False
    pull: options.Pull = "missing"
    force: options.Force = False
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="A word for the run's id, by which RUN finds it, too.")
    ] = None
    detach: Detach = False
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", help="Print what it would start, with reasons, and start nothing; the engine is still asked."
        ),
    ] = False
    json: Json = False


@app.command(
    rich_help_panel=RUN,
    epilog=_PROJECT + "\b\nExamples:\n  ngcdl run --train cifar10\n  ngcdl run pytorch\n"
    "  ngcdl run pytorch --train cifar10 --gpus all\n"
    "  ngcdl run pytorch -v /data:/data:ro -- python train.py --epochs 3\n"
    "  ngcdl run -- python3 train.py --epochs 3\n"
    "  ngcdl run pytorch:25.03-py3 --train cifar10 --engine slurm --nodes 2",
)
@takes(RunOptions)
def run(typed: Typed, tty: bool, rm: bool) -> int:
    """Run a training, a command or a shell, measured and recorded."""
    del rm  # typed out of habit: no container is left behind
    _begin_to_ask(typed, bool(typed.image))
    from ngcdl.cli import run as it
    from ngcdl.cli import terminal

    if tty and (typed.detach or not terminal.is_here()):  # else the run gets one, whether -t was typed or not
        why = "it is detached" if typed.detach else "stdin and stdout must both be one, in the foreground"
        console.say(f"-t: the run gets no terminal: {why}")
    if typed.interactive and typed.detach:
        from ngcdl.engines.local import program  # 7 ms that other runs do without

        if program.is_fed():
            console.say("-i: with --detach nothing from stdin reaches the run; if it reads stdin, it waits for ever")
    return it.run(typed)


def _begin_to_ask(typed: Typed, has_image: bool) -> None:
    """Ask the driver and the usual engine what will be needed, while the rest of ngcdl is loaded."""
    from ngcdl import engines
    from ngcdl.spec import USUAL, kind_of
    from ngcdl.telemetry import gpu

    if kind_of(typed.engine).is_cluster:
        return
    gpu.begin_to_probe()  # before there are threads
    if has_image and typed.engine in ("auto", USUAL):
        engines.begin_to_connect()


class CompareOptions:
    """The options of `ngcdl compare`, in the order of its --help."""

    images: Annotated[
        list[str] | None,
        options.image(metavar="[IMAGE...] [-- COMMAND]", help="Several images are compared with each other."),
    ] = None
    train: options.Train = None
    vary: Annotated[
        str | None,
        options.comparison(
            metavar="NAME=A,B",
            autocompletion=completed.variations,
            help="batch=8,64, threads=, seed=, feed=, precision=, teacher=, compile=off,on, channels=first,last, "
            "gpus=, nodes=, image=, framework= or device=cpu,gpu; default: the question that the training poses, else "
            "CPU against GPU.",
        ),
    ] = None
    scaling: Annotated[
        str | None,
        options.comparison(
            metavar="strong|weak", help="For --vary gpus or nodes: --batch is for all replicas together, or for each."
        ),
    ] = None
    repeat: Annotated[
        int | None,
        options.comparison(metavar="N", help="Number of rounds; default: 3. One alone gives no ratio."),
    ] = None
    show: Annotated[
        str | None,
        options.comparison(
            metavar="ID|NAME|last",
            help="Print an earlier comparison again, from its records.",
            autocompletion=completed.comparisons,
        ),
    ] = None
    steps: options.Fewer = None
    epochs: options.Epochs = None
    seconds: options.Seconds = None
    batch: options.FixedBatch = None
    computed: Computed
    teacher: options.Teacher = None
    data: options.Data = "auto"
    hosted: Hosted
    shm_size: options.ShmSize = "1g"
    ulimits: options.Limits = None
    cpus: options.Cpus = None
    memory: options.Memory = None
    workdir: options.Workdir = None
    root: options.AsRoot = False
    pull: options.Pull = "missing"
    force: options.Force = False
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="A word for the comparison's id, by which it is found, too.")
    ] = None
    detach: Annotated[
        bool, typer.Option("-d", "--detach", help="Hand all runs to Slurm and print the comparison's id.")
    ] = False
    json: Json = False


@app.command(
    rich_help_panel=RUN,
    epilog="Exit codes: 0 compared, or of a training only one side could be measured; 1 refused; 2 usage; 125 ngcdl or "
    "the engine failed, or there is no GPU to compare a command on.\n\n"
    + _PROJECT
    + "\b\nExamples:\n  ngcdl compare pytorch --train cifar10\n"
    "  ngcdl compare --train cifar10 --vary threads=1,2,4 --gpus none\n"
    "  ngcdl compare tensorflow pytorch --train cifar10\n"
    "  ngcdl compare pytorch -- python train.py --epochs 1\n"
    "  ngcdl compare IMAGE --train cifar10 --engine slurm --gpus 8 --vary nodes=1,2",
)
@takes(CompareOptions)
def compare(
    typed: Typed,
    images: list[str] | None,
    vary: str | None,
    scaling: str | None,
    repeat: int | None,
    show: str | None,
) -> int:
    """Run the same in turn on the CPU and the GPU, or vary one thing.

    The same: a bundled training, or a command of your own, in an image or on this host."""
    if not show:
        _begin_to_ask(typed, bool(images))
    from ngcdl.cli import compare as it

    if show:
        return it.show(show, typed.json)
    first, *others = images or [""]
    typed = replace(typed, image=first or None, no_eval=bool(typed.train))  # the comparison is of training speed
    return it.compare(typed, others, it.Rounds(vary, repeat, scaling=scaling))


@app.command(rich_help_panel=MORE)
def workloads(
    json: Json = False,
    costs: Annotated[bool, typer.Option("--costs", help="Show what each computes, instead of what it is for.")] = False,
) -> None:
    """List the bundled trainings: what each is for, or costs."""
    from ngcdl.cli.workloads import workloads

    workloads(json, costs)


@app.command(
    rich_help_panel=MORE,
    epilog="Exit codes: as for compare; 1 if one of the comparisons was refused.\n\n"
    "\b\nExamples:\n  ngcdl suite articles pytorch\n  ngcdl suite table7 --budget 60",
)
def suite(
    name: Annotated[
        str,
        options.argument(
            metavar="articles|table7", help="The questions of articles and forums, or Table 7 of Shi et al. 2016."
        ),
    ],
    image: Annotated[
        str | None,
        options.image(metavar="IMAGE", help="pytorch, tensorflow:24.05-tf2-py3, ...; without one as for run --train."),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="Stop after this long, even in the middle of a run.")
    ] = None,
    repeat: Annotated[int, typer.Option(metavar="N", help="Number of rounds of each comparison.")] = 3,
    steps: options.Fewer = None,
    data: options.Data = "auto",
    gpus: options.Gpus = "auto",
    engine: options.EngineName = "auto",
    json: Json = False,
) -> int:
    """Run published experiments as comparisons."""
    from ngcdl.cli.suite import suite
    from ngcdl.cli.typed import Typed, empty

    if image == "":
        raise empty("IMAGE: the name")
    typed = Typed(image=image, steps=steps, data=data, no_eval=True, gpus=gpus, engine=engine, json=json)
    return suite(name, typed, repeat, budget)
