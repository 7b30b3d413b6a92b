"""The configuration of Slurm's daemons: slurm.conf and the files beside it."""

from __future__ import annotations

import os
import pwd
import socket
from collections.abc import Mapping
from pathlib import Path

from lab_parts.where import write_whole

CARD = "/dev/null"  # Slurm sets CUDA_VISIBLE_DEVICES only for character devices; all nodes may have the same one
# Timeouts are short, so that a lost node is noticed within 13 s. No limit is raised: that may not be allowed.
CONF = """ClusterName=lab
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={dir}/munge.sock
PluginDir={plugins}
PlugStackConfig={dir}/plugstack.conf
SlurmctldPort={port}
SlurmctldPidFile={dir}/slurmctld.pid
SlurmctldLogFile={dir}/logs/slurmctld.txt
SlurmdPidFile={dir}/slurmd-%n.pid
SlurmdLogFile={dir}/logs/slurmd-%n.txt
SlurmdSpoolDir={dir}/spool/%n
StateSaveLocation={dir}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=2,bf_interval=2,sched_min_interval=100000
ReturnToService=2
SlurmdTimeout=4
SlurmctldTimeout=10
MessageTimeout=5
TCPTimeout=1
InactiveLimit=0
KillWait=2
MinJobAge=3600
CompleteWait=0
JobRequeue=1
PropagateResourceLimits=NONE
GresTypes=gpu
JobCompType=jobcomp/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/{accounting}
"""
CONF_ACCOUNTING = """AccountingStorageHost=127.0.0.1
AccountingStoragePort={port}
AccountingStorageTRES=gres/gpu
AccountingStoragePass={dir}/munge.sock
"""
NODE = """NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={cpus} RealMemory={megabytes} \
Gres=gpu:{kind}:1 State=UNKNOWN
"""
PARTITION = "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO\n"
DBD_CONF = """AuthType=auth/munge
AuthInfo=socket={dir}/munge.sock
PluginDir={plugins}
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={port}
SlurmUser={user}
PidFile={dir}/slurmdbd.pid
LogFile={dir}/logs/slurmdbd.txt
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={sql_port}
StorageUser=slurm
StoragePass={password}
StorageLoc=slurm_lab
"""


class Conf:
    """The files of one cluster, in `folder`, for nodes on this host with ports that are free.

    `types`: node -> type name of its GPU. `plugins`: where Slurm's own plugins are.
    """

    def __init__(self, folder: Path, types: Mapping[str, str], plugins: str, has_accounting: bool) -> None:
        self.folder, self._types, self._has_accounting = folder, types, has_accounting
        self.user = pwd.getpwuid(os.geteuid()).pw_name
        self._host = socket.gethostname().partition(".")[0]
        self._port, self._db_port, self.sql_port, *self._node_ports = _free_ports(3 + len(types))
        self._facts = {"dir": folder, "host": self._host, "user": self.user, "plugins": plugins}

    def write(self, is_newer: bool, plugin: str) -> None:
        """Write all files but slurmdbd's; `plugin` is a line of plugstack.conf."""
        kind = "slurmdbd" if self._has_accounting else "none"
        text = CONF.format(**self._facts, port=self._port, accounting=kind)
        if self._has_accounting:
            text += CONF_ACCOUNTING.format(dir=self.folder, port=self._db_port)
        write_whole(self.folder / "slurm.conf", text + self._nodes() + PARTITION)
        cards = [f"NodeName={name} Name=gpu Type={kind} File={CARD}\n" for name, kind in self._types.items()]
        write_whole(self.folder / "gres.conf", "".join(["AutoDetect=off\n", *cards]))
        write_whole(self.folder / "cgroup.conf", "CgroupPlugin=disabled\n" if is_newer else "")
        write_whole(self.folder / "plugstack.conf", plugin)

    def write_accounting(self, password: str) -> None:
        text = DBD_CONF.format(**self._facts, port=self._db_port, sql_port=self.sql_port, password=password)
        write_whole(self.folder / "slurmdbd.conf", text, 0o600)

    def _nodes(self) -> str:
        megabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
        about = {"host": self._host, "cpus": os.cpu_count(), "megabytes": int(megabytes * 0.4)}
        nodes = zip(self._types.items(), self._node_ports, strict=True)
        return "".join(NODE.format(**about, name=name, kind=kind, port=port) for (name, kind), port in nodes)


def _free_ports(count: int) -> list[int]:
    """Return free ports; another process may still take one before we do."""
    with_sockets = [socket.socket() for _ in range(count)]
    try:
        for one in with_sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in with_sockets]
    finally:
        for one in with_sockets:
            one.close()
