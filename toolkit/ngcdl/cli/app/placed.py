"""The options that place runs on a cluster, declared once for all commands that take them."""

from __future__ import annotations

from ngcdl.cli.options import (
    Account,
    DataPvc,
    JobPatch,
    Namespace,
    Nodes,
    Partition,
    PullSecret,
    Qos,
    RunIn,
    Sbatch,
    TimeLimit,
)


class Placed:
    """Each sets the field of spec.Placement that has its name."""

    nodes: Nodes = 1
    partition: Partition = None
    time_limit: TimeLimit = None
    account: Account = None
    qos: Qos = None
    container: RunIn = None
    options: Sbatch = None
    namespace: Namespace = None
    data_pvc: DataPvc = None
    pull_secret: PullSecret = None
    patches: JobPatch = None
