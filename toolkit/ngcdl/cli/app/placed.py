"""The options that place runs on a cluster, declared once for all commands that take them."""

from __future__ import annotations

from ngcdl.cli import options as it


class Placed:
    """Each sets the field of spec.Placement that has its name."""

    nodes: it.Nodes = 1
    partition: it.Partition = None
    time_limit: it.TimeLimit = None
    account: it.Account = None
    qos: it.Qos = None
    container: it.RunIn = None
    options: it.Sbatch = None
    namespace: it.Namespace = None
    data_pvc: it.DataPvc = None
    pull_secret: it.PullSecret = None
    patches: it.JobPatch = None
