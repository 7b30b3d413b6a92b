"""The options that several commands take, each written once."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

# An option under one of the headings of --help.
training = partial(typer.Option, rich_help_panel="Training")
place = partial(typer.Option, rich_help_panel="Where it runs")
container = partial(typer.Option, rich_help_panel="Container")
cluster = partial(typer.Option, rich_help_panel="On Slurm or Kubernetes")
comparison = partial(typer.Option, rich_help_panel="Comparison")

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]

# -- a training -----------------------------------------------------------------------------------------------------
Train = Annotated[
    str | None,
    training(metavar="NAME", help="A bundled training: cifar10, or another of ngcdl workloads."),
]
Steps = Annotated[int | None, training(help="Train up to this step; the workload's own number.")]
Fewer = Annotated[int | None, training(help="Train up to this step; 200, fewer of a big network.")]
Epochs = Annotated[int | None, training(help="Instead of --steps: so many times all examples.")]
Seconds = Annotated[
    float | None,
    training(help="Train that long; with --steps or --epochs, what comes first."),
]
Times = Annotated[int, training(help="Of cifar10-94: train so often, each time from nothing.")]
Batch = Annotated[
    str | None,
    training(metavar="N|largest", help="Examples a step; the workload's own number. largest: what fits."),
]
FixedBatch = Annotated[
    str | None,
    training("--batch", metavar="N", help="Examples a step; the workload's own number."),
]
Seed = Annotated[int, training(help="Of weights, order and distortions.")]
Clip = Annotated[float | None, training(metavar="NORM", help="Scale the gradients down to this common norm.")]
Threads = Annotated[int | None, training(help="Processor threads that compute; as many as there are.")]
Data = Annotated[
    str,
    training("--data", metavar="auto|synthetic|DIR", help="CIFAR-10: cached or downloaded, or a folder."),
]
Feed = Annotated[
    str | None,
    training(
        metavar="ahead|plain|resident|constant|input",
        help="Batches are made beforehand (ahead, as without it); when needed (plain); gathered on the device "
        "(resident); one again and again (constant); or made alone, and nothing is trained (input).",
    ),
]
Precision = Annotated[
    str,
    training(metavar="auto|float32|tf32|amp", help="What is computed in. auto: tf32 where the card has it."),
]
Amp = Annotated[bool, training("--amp", help="Mixed precision: --precision amp.")]
Compile = Annotated[bool, training("--compile", help="Compile the step: torch.compile, or XLA.")]
Autotune = Annotated[
    bool,
    training("--autotune", help="Try threads, layout and feed for a minute at most, and take what is fastest here."),
]
ChannelsLast = Annotated[
    bool | None,
    training("--channels-last/--channels-first", help="How pictures lie in memory."),
]
Teacher = Annotated[
    str | None,
    training(metavar="together|before|ahead|kept|none", help="Of distill: where and when its teacher computes."),
]
Device = Annotated[
    str | None,
    place(metavar="gpu|cpu", help="What a training computes on, if not by --gpus."),
]

# -- where it runs --------------------------------------------------------------------------------------------------
Gpus = Annotated[
    str,
    place(metavar="auto|none|all|N|0,2|UUID", help="N: that many free ones. 0,: the card 0."),
]
EngineName = Annotated[
    str,
    place("--engine", metavar="auto|docker|local|slurm|kubernetes", help="Where it runs."),
]
Volumes = Annotated[
    list[str] | None,
    container("-v", "--volume", metavar="HOST:CONTAINER[:ro]", help="Mount."),
]
Variables = Annotated[
    list[str] | None,
    container("-e", "--env", metavar="NAME[=VALUE]", help="Set a variable."),
]
ShmSize = Annotated[str, container(metavar="SIZE", help="Of /dev/shm.")]
Limits = Annotated[
    list[str] | None,
    container("--ulimit", metavar="NAME=N", help="Instead of memlock=-1, stack=67108864."),
]
AsRoot = Annotated[bool, container("--root", help="Run as the image's own user, mostly root.")]
Pull = Annotated[str, container("--pull", metavar="missing|always", help="When to pull.")]
Force = Annotated[bool, container("--force", help="Also an image that can't run here.")]

# -- on a cluster ----------------------------------------------------------------------------------------------------
Nodes = Annotated[int, cluster(help="Machines, each with --gpus N; with --engine slurm or kubernetes.")]
Partition = Annotated[str | None, cluster(metavar="NAME", help="Slurm's partition.")]
TimeLimit = Annotated[
    str | None,
    cluster("--time", metavar="TIME", help="At most; 30, 1:00:00 or 2-12 (Slurm)."),
]
Account = Annotated[str | None, cluster(metavar="NAME", help="Who is charged (Slurm).")]
Qos = Annotated[str | None, cluster(metavar="NAME", help="Slurm's quality of service.")]
RunIn = Annotated[
    str | None,
    cluster("--container", metavar="pyxis|docker|podman|apptainer", help="What runs images on Slurm's nodes."),
]
Sbatch = Annotated[
    list[str] | None,
    cluster("--sbatch", metavar="WORD", help="One more word for sbatch: --sbatch=--exclusive."),
]
Namespace = Annotated[str | None, cluster(metavar="NAME", help="Kubernetes' namespace.")]
DataPvc = Annotated[
    str | None,
    cluster(metavar="CLAIM", help="A volume claim that has the data (Kubernetes)."),
]
PullSecret = Annotated[str | None, cluster(metavar="NAME", help="The secret to pull with (Kubernetes).")]

# -- what is named --------------------------------------------------------------------------------------------------
RunName = Annotated[str, typer.Argument(metavar="RUN", help="last, last-1, an id, or the beginning or end of one.")]
ImageName = Annotated[str, typer.Argument(metavar="IMAGE", help="tensorflow:18.01-py2, nvcr.io/nvidia/pytorch:...")]

# -- another machine than this one ----------------------------------------------------------------------------------
HostTyped = Annotated[
    str | None,
    typer.Option(
        "--host",
        metavar="FACTS",
        help="Another machine: driver=535.104.05,gpu=T4; also cc, brand, arch, avx, free, engine.",
    ),
]
CardTyped = Annotated[
    list[str] | None,
    typer.Option("--gpu", metavar="FACTS", help="One of its cards: T4, or cc=8.0,brand=tesla. Repeatable."),
]
