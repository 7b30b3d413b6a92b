"""The options that several commands take, each defined once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

import typer

from ngcdl.cli import completed


def _engine(word: str) -> str:
    """Return the engine that the word means: its name, or a short name that people type."""
    from ngcdl.spec import KINDS  # not imported by --help

    return next((name for name, kind in KINDS.items() if kind.short == word), word)


def _packages(words: list[str] | None) -> list[str] | None:
    """Return the words that --pip takes, unless one is the option by which pip takes a file: the file is then taken for
    something else."""
    if {"-r", "--requirement"}.intersection(words or ()):
        from ngcdl.errors import BadOption

        raise BadOption("--pip -r: a file is named without -r.", "    ngcdl ...  # without -r --requirement")
    return words


def _completed(declared: Callable[..., Any], *words: str, **how: Any) -> Any:
    """Declare an option or an argument; Tab completes the values that its metavar names."""
    if "|" in how.get("metavar", ""):
        how = {"autocompletion": completed.one_of(how["metavar"])} | how
    return declared(*words, **how)


option, argument = partial(_completed, typer.Option), partial(_completed, typer.Argument)
# An option under one of the headings of --help.
training = partial(option, rich_help_panel="Training")
place = partial(option, rich_help_panel="Where it runs")
container = partial(option, rich_help_panel="Container")
cluster = partial(option, rich_help_panel="On Slurm or Kubernetes")
comparison = partial(option, rich_help_panel="Comparison")

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
JsonWatched = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout; with --watch, one line per reading.")
]
Detach = Annotated[bool, typer.Option("-d", "--detach", help="Print the run's id and leave it running.")]
Yes = Annotated[bool, typer.Option("-y", "--yes", help="Do not ask.")]

# -- a training -----------------------------------------------------------------------------------------------------
Train = Annotated[
    str | None,
    training(
        metavar="NAME",
        help="A bundled training: cifar10, or another that ngcdl workloads lists.",
        autocompletion=completed.trainings,
    ),
]
Steps = Annotated[int | None, training(metavar="N", help="Stop at this step; default: the training's own.")]
Fewer = Annotated[
    int | None,
    training(
        metavar="N", help="Stop at this step, 11 or later; default: 31 to 2,000, the fewer the larger the network."
    ),
]
Epochs = Annotated[
    int | None, training(metavar="N", help="Instead of --steps: pass through all examples this many times.")
]
Seconds = Annotated[
    float | None,
    training(metavar="SECONDS", help="Train this long; with --steps or --epochs, whichever comes first."),
]
Times = Annotated[
    int,
    training(
        metavar="N",
        help="For trainings that take seconds, such as cifar10-94: train this many times, each from scratch.",
    ),
]
Batch = Annotated[
    str | None,
    training(metavar="N|largest", help="Examples per step; default: the training's own. largest: what fits."),
]
FixedBatch = Annotated[
    str | None,
    training("--batch", metavar="N", help="Examples per step; default: the training's own."),
]
Seed = Annotated[int, training(metavar="N", help="Seed for weights, order and distortions.")]
Clip = Annotated[float | None, training(metavar="NORM", help="Clip the gradients to this global norm.")]
Threads = Annotated[int | None, training(metavar="N", help="CPU threads to compute with; default: all.")]
Data = Annotated[
    str,
    training(
        "--data",
        metavar="auto|synthetic|DIR",
        help="auto: CIFAR-10, cached or downloaded; synthetic: generated; or a folder.",
    ),
]
Feed = Annotated[
    str | None,
    training(
        metavar="ahead|plain|resident|constant|input",
        help="How batches are made: in advance (ahead, the default); when needed (plain); gathered on the device "
        "(resident); one, over and over (constant); or made without any training (input).",
    ),
]
Precision = Annotated[
    str,
    training(metavar="auto|float32|tf32|amp", help="Numeric precision. auto: tf32 if the card has it."),
]
Amp = Annotated[bool, training("--amp", help="Mixed precision; short for --precision amp.")]
Compile = Annotated[bool, training("--compile", help="Compile the step: torch.compile, or XLA.")]
Autotune = Annotated[
    bool,
    training("--autotune", help="Try threads, layout and feed for at most a minute, and use what is fastest here."),
]
ChannelsLast = Annotated[
    bool | None,
    training("--channels-last/--channels-first", help="Memory layout of images."),
]
Teacher = Annotated[
    str | None,
    training(
        metavar="together|before|ahead|kept|none",
        help="For trainings with a teacher, such as distill: where and when it computes; default: ahead.",
    ),
]
Device = Annotated[
    str | None,
    place(
        metavar="gpu|cpu",
        help="With --train: compute on the GPU or on the CPU. For a command use --gpus none.",
    ),
]

# -- where it runs --------------------------------------------------------------------------------------------------
Gpus = Annotated[
    str,
    place(
        metavar="auto|none|all|N|0,2|UUID",
        help="auto: for a command all cards, for a training one, free or shared; without a card the CPU. N: that many "
        "free cards; 0,: card 0.",
    ),
]
EngineName = Annotated[
    str,
    place(
        "--engine",
        metavar="auto|docker|local|slurm|kubernetes",
        callback=_engine,
        help="auto: docker if an image is named; a training without one: docker if it has GPUs to give, else this "
        "host; a command without one: this host (local).",
    ),
]
SampleEvery = Annotated[
    float,
    place(
        "--sample-every",
        metavar="SECONDS",
        help="How often CPU, memory and GPUs are read: 0.1 for a training of seconds, 30 for one of weeks.",
    ),
]
Volumes = Annotated[
    list[str] | None,
    container(
        "-v",
        "--volume",
        metavar="HOST:CONTAINER[:ro]",
        help="Mount a folder, file or volume (a new one is root's). Repeatable.",
    ),
]
Variables = Annotated[
    list[str] | None,
    container(
        "-e",
        "--env",
        metavar="NAME[=VALUE]",
        help="Set a variable for the run; NAME alone passes your own value on. Repeatable.",
    ),
]
VariableFiles = Annotated[
    list[str] | None,
    container(
        "--env-file",
        metavar="FILE",
        help="Set the variables in a file of lines NAME=VALUE, as docker run does; -e overrides it. Repeatable.",
    ),
]
Packages = Annotated[
    list[str] | None,
    container(
        "--pip",
        metavar="PACKAGE|FILE",
        callback=_packages,
        help="Add a Python package, or what a requirements file lists; installed once for each image. Repeatable.",
    ),
]
ShmSize = Annotated[str, container(metavar="SIZE", help="Size of /dev/shm: 8g; a number alone is bytes.")]
Limits = Annotated[
    list[str] | None,
    container(
        "--ulimit",
        metavar="NAME=N",
        help="Override a limit (defaults: memlock=-1, stack=67108864); memlock=host leaves it unset. Repeatable.",
    ),
]
Cpus = Annotated[
    str | None,
    container(metavar="N", help="CPUs that the container may use, on each node: 8, or 0.5 (Slurm: whole numbers)."),
]
Memory = Annotated[str | None, container(metavar="SIZE", help="Memory that the container may use, on each node: 32g.")]
Workdir = Annotated[str | None, container("-w", "--workdir", metavar="DIR", help="Working directory in the container.")]
AsRoot = Annotated[bool, container("--root", help="Run as the image's own user, usually root.")]
Pull = Annotated[str, container("--pull", metavar="missing|always", help="When to pull.")]
Force = Annotated[bool, container("--force", help="Go on even if the image is judged unable to run here.")]

# -- on a cluster ----------------------------------------------------------------------------------------------------
Nodes = Annotated[int, cluster(metavar="N", help="Number of machines, each with --gpus N (Slurm, Kubernetes).")]
Partition = Annotated[str | None, cluster(metavar="NAME", help="Partition (Slurm).")]
TimeLimit = Annotated[
    str | None,
    cluster("--time", metavar="TIME", help="Time limit: 30 (minutes), 1:00:00, or 2-12 (2 days, 12 hours) (Slurm)."),
]
Account = Annotated[str | None, cluster(metavar="NAME", help="Account to charge (Slurm).")]
Qos = Annotated[str | None, cluster(metavar="NAME", help="Quality of service (Slurm).")]
RunIn = Annotated[
    str | None,
    cluster(
        "--container",
        metavar="pyxis|docker|podman|apptainer|singularity",
        help="What runs images on the nodes (Slurm).",
    ),
]
Sbatch = Annotated[
    list[str] | None,
    cluster("--sbatch", metavar="WORD", help="One more option for sbatch: --sbatch=--exclusive. Repeatable."),
]
Namespace = Annotated[str | None, cluster(metavar="NAME", help="Namespace (Kubernetes).")]
DataPvc = Annotated[
    str | None,
    cluster(metavar="CLAIM", help="Volume claim that holds the data (Kubernetes)."),
]
JobPatch = Annotated[
    list[str] | None,
    cluster(
        "--job-patch",
        metavar="FILE",
        help="YAML or JSON to merge into the Job: tolerations, queues, ... (Kubernetes). Repeatable.",
    ),
]
PullSecret = Annotated[str | None, cluster(metavar="NAME", help="Secret to pull the image with (Kubernetes).")]

# -- arguments ------------------------------------------------------------------------------------------------------
run = partial(typer.Argument, autocompletion=completed.runs)
run_or_comparison = partial(typer.Argument, autocompletion=completed.runs_and_comparisons)
image = partial(typer.Argument, autocompletion=completed.images)
RUN_HELP = "last, last-1, an id, its beginning or end, or a run's --name."
RunName = Annotated[str, run(metavar="RUN", help=RUN_HELP)]
ImageName = Annotated[
    str,
    image(metavar="IMAGE", help="tensorflow:24.05-tf2-py3, nvcr.io/nvidia/cuda:...; pytorch: the newest known to run."),
]

# -- another machine ------------------------------------------------------------------------------------------------
HostTyped = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="FACTS",
        help="For another machine: driver=535.104.05,gpu=T4; also cc, brand, arch, avx, free, engine.",
    ),
]
CardTyped = Annotated[
    list[str] | None,
    typer.Option("--gpu", metavar="FACTS", help="One of its cards: T4, or cc=8.0,brand=tesla. Repeatable."),
]
