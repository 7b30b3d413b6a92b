"""The kinds of engines: what an engine's name alone implies, before one is connected and after a run is over."""

from __future__ import annotations

from ngcdl.frozen import dataclass


@dataclass(frozen=True)
class Kind:
    """What all engines of one name have in common. The defaults apply if something else started a run, such as Docker
    Compose.

    `has_containers`: it runs images; otherwise a run is a process of this host: a command, or its own Python.
    `is_cluster`: it puts runs on machines of its own choice. A run's record then has no owner: the run goes on without
    ngcdl, and nothing can be inspected, measured or fetched from here.
    `has_queue`: a run can wait there until others have ended.
    `has_whole_cpus`: it gives a run whole processors only.
    `shares_files`: a run sees folders of this host, and what it writes appears here at once.
    `takes`: the fields of Placement that mean something to it.
    `short`: an alternative name that people type.
    `choose`: if there are several, what to do to select the one with the identity {its}.
    `no_gpu`: what to type if a run was given a GPU there and sees none; empty: what the error says of Docker.
    """

    has_containers: bool = True
    is_cluster: bool = False
    has_queue: bool = False
    has_whole_cpus: bool = False
    shares_files: bool = True
    takes: tuple[str, ...] = ()
    short: str | None = None
    choose: str = "Choose {its}:"
    no_gpu: str = ""


# Each is a package of engines/.
KINDS = {
    "docker": Kind(choose="Choose the engine that it was started on (DOCKER_HOST, docker context):"),
    "local": Kind(has_containers=False, no_gpu="See what the driver reports:\n    ngcdl gpu"),
    "slurm": Kind(
        is_cluster=True,
        has_queue=True,
        has_whole_cpus=True,
        takes=(
            *("nodes", "partition", "account", "qos", "time_limit", "container", "cpus", "images", "options"),
            *("gpu_type", "avoid"),
        ),
        choose="Run this where sbatch talks to {its}:",
        no_gpu="See whether a run there gets one:\n    ngcdl run IMAGE --engine slurm --gpus 1 -- nvidia-smi -L",
    ),
    "kubernetes": Kind(
        is_cluster=True,
        shares_files=False,
        takes=("nodes", "namespace", "data_pvc", "pull_secret", "patches", "avoid"),
        short="k8s",
        choose="Choose it:\n    kubectl config use-context {its}",
        no_gpu="See what the nodes offer, whether there is a RuntimeClass nvidia, and whether a run there gets a GPU:\n"
        "    kubectl describe nodes\n    kubectl get runtimeclasses\n"
        "    ngcdl run IMAGE --engine kubernetes --gpus 1 -- nvidia-smi -L",
    ),
}
USUAL = "docker"  # what --engine auto means if an image was named


def kind_of(engine: str | None) -> Kind:
    """Return the kind of the engine of that name: for auto, None and any other name, a Kind with the defaults."""
    return KINDS.get(engine or "", Kind())
