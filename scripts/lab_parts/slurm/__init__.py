"""A real Slurm on this machine: munged, slurmctld and one slurmd per node, with their own ports, spool and state.

All nodes are this host under other names; each has one GPU, a harmless character device that Slurm counts, allocates
and lists in CUDA_VISIBLE_DEVICES like a card. A plugin of ours accepts NVIDIA pyxis' options, records what each task
got, and runs the task on the host (pyxis.c). With accounting there are slurmdbd and MariaDB, too. Nothing is
installed: the programs are Debian's, unpacked into the cache. NGCDL_LAB_SLURM=24.11 uses those of Debian 13, with its
C library (and installs patchelf); the default is Debian 12's 22.05.
"""

from lab_parts.slurm.cluster import Cluster

__all__ = ["Cluster"]
