"""The options that several commands take, each written once."""

from __future__ import annotations

from typing import Annotated

import typer

# The headings of --help.
TRAINING, PLACE, CONTAINER, CLUSTER = "Training", "Where it runs", "Container", "On Slurm or Kubernetes"
COMPARISON = "Comparison"

Json = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]

# -- a training -----------------------------------------------------------------------------------------------------
Train = Annotated[
    str | None,
    typer.Option(
        metavar="NAME", help="A bundled training: cifar10, or another of ngcdl workloads.", rich_help_panel=TRAINING
    ),
]
Steps = Annotated[
    int | None, typer.Option(help="Train up to this step; the workload's own number.", rich_help_panel=TRAINING)
]
Fewer = Annotated[
    int | None, typer.Option(help="Train up to this step; 200, fewer of a big network.", rich_help_panel=TRAINING)
]
Epochs = Annotated[
    int | None, typer.Option(help="Instead of --steps: so many times all examples.", rich_help_panel=TRAINING)
]
Seconds = Annotated[
    float | None,
    typer.Option(help="Train that long; with --steps or --epochs, what comes first.", rich_help_panel=TRAINING),
]
Batch = Annotated[
    str | None,
    typer.Option(
        metavar="N|largest",
        help="Examples a step; the workload's own number. largest: what fits.",
        rich_help_panel=TRAINING,
    ),
]
FixedBatch = Annotated[
    str | None,
    typer.Option("--batch", metavar="N", help="Examples a step; the workload's own number.", rich_help_panel=TRAINING),
]
Seed = Annotated[int, typer.Option(help="Of weights, order and distortions.", rich_help_panel=TRAINING)]
Threads = Annotated[
    int | None, typer.Option(help="Processor threads that compute; as many as there are.", rich_help_panel=TRAINING)
]
Data = Annotated[
    str,
    typer.Option(
        "--data",
        metavar="auto|synthetic|DIR",
        help="CIFAR-10: cached or downloaded, or a folder.",
        rich_help_panel=TRAINING,
    ),
]
Feed = Annotated[
    str,
    typer.Option(
        metavar="ahead|plain|resident|constant|input",
        help="Batches are made beforehand; when needed (plain); gathered on the device (resident); one again and again "
        "(constant); or made alone, and nothing is trained (input).",
        rich_help_panel=TRAINING,
    ),
]
Precision = Annotated[
    str,
    typer.Option(
        metavar="auto|float32|tf32|amp",
        help="What is computed in. auto: tf32 where the card has it.",
        rich_help_panel=TRAINING,
    ),
]
Amp = Annotated[bool, typer.Option("--amp", help="Mixed precision: --precision amp.", rich_help_panel=TRAINING)]
Compile = Annotated[
    bool, typer.Option("--compile", help="Compile the step: torch.compile, or XLA.", rich_help_panel=TRAINING)
]
ChannelsLast = Annotated[
    bool | None,
    typer.Option("--channels-last/--channels-first", help="How pictures lie in memory.", rich_help_panel=TRAINING),
]
Teacher = Annotated[
    str | None,
    typer.Option(
        metavar="together|before|ahead|kept|none",
        help="Of distill: where and when its teacher computes.",
        rich_help_panel=TRAINING,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(metavar="gpu|cpu", help="What a training computes on, if not by --gpus.", rich_help_panel=PLACE),
]

# -- where it runs --------------------------------------------------------------------------------------------------
Gpus = Annotated[
    str,
    typer.Option(
        metavar="auto|none|all|N|0,2|UUID", help="N: that many free ones. 0,: the card 0.", rich_help_panel=PLACE
    ),
]
EngineName = Annotated[
    str,
    typer.Option(
        "--engine", metavar="auto|docker|local|slurm|kubernetes", help="Where it runs.", rich_help_panel=PLACE
    ),
]
Volumes = Annotated[
    list[str] | None,
    typer.Option("-v", "--volume", metavar="HOST:CONTAINER[:ro]", help="Mount.", rich_help_panel=CONTAINER),
]
Variables = Annotated[
    list[str] | None,
    typer.Option("-e", "--env", metavar="NAME[=VALUE]", help="Set a variable.", rich_help_panel=CONTAINER),
]
ShmSize = Annotated[str, typer.Option(metavar="SIZE", help="Of /dev/shm.", rich_help_panel=CONTAINER)]
Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--ulimit", metavar="NAME=N", help="Instead of memlock=-1, stack=67108864.", rich_help_panel=CONTAINER
    ),
]
AsRoot = Annotated[
    bool, typer.Option("--root", help="Run as the image's own user, mostly root.", rich_help_panel=CONTAINER)
]
Pull = Annotated[str, typer.Option("--pull", metavar="missing|always", help="When to pull.", rich_help_panel=CONTAINER)]
Force = Annotated[bool, typer.Option("--force", help="Also an image that can't run here.", rich_help_panel=CONTAINER)]

# -- on a cluster ----------------------------------------------------------------------------------------------------
Nodes = Annotated[
    int, typer.Option(help="Machines, each with --gpus N; with --engine slurm or kubernetes.", rich_help_panel=CLUSTER)
]
Partition = Annotated[str | None, typer.Option(metavar="NAME", help="Slurm's partition.", rich_help_panel=CLUSTER)]
TimeLimit = Annotated[
    str | None,
    typer.Option("--time", metavar="TIME", help="At most; 30, 1:00:00 or 2-12 (Slurm).", rich_help_panel=CLUSTER),
]
Account = Annotated[str | None, typer.Option(metavar="NAME", help="Who is charged (Slurm).", rich_help_panel=CLUSTER)]
Qos = Annotated[str | None, typer.Option(metavar="NAME", help="Slurm's quality of service.", rich_help_panel=CLUSTER)]
RunIn = Annotated[
    str | None,
    typer.Option(
        "--container",
        metavar="pyxis|docker|podman|apptainer",
        help="What runs images on Slurm's nodes.",
        rich_help_panel=CLUSTER,
    ),
]
Sbatch = Annotated[
    list[str] | None,
    typer.Option(
        "--sbatch", metavar="WORD", help="One more word for sbatch: --sbatch=--exclusive.", rich_help_panel=CLUSTER
    ),
]
Namespace = Annotated[str | None, typer.Option(metavar="NAME", help="Kubernetes' namespace.", rich_help_panel=CLUSTER)]
DataPvc = Annotated[
    str | None,
    typer.Option(metavar="CLAIM", help="A volume claim that has the data (Kubernetes).", rich_help_panel=CLUSTER),
]
PullSecret = Annotated[
    str | None, typer.Option(metavar="NAME", help="The secret to pull with (Kubernetes).", rich_help_panel=CLUSTER)
]

# -- what is named --------------------------------------------------------------------------------------------------
RunName = Annotated[str, typer.Argument(metavar="RUN", help="last, last-1, an id, or the beginning or end of one.")]
ImageName = Annotated[str, typer.Argument(metavar="IMAGE", help="tensorflow:18.01-py2, nvcr.io/nvidia/pytorch:...")]

# -- another machine than this one ----------------------------------------------------------------------------------
HostTyped = Annotated[
    str | None,
    typer.Option("--host", metavar="FACTS", help="Another machine: driver=535.104.05,cc=7.5,brand=tesla,arch=amd64."),
]
CardTyped = Annotated[
    list[str] | None, typer.Option("--gpu", metavar="FACTS", help="One of its cards: cc=8.0,brand=tesla. Repeatable.")
]
