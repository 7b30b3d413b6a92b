"""A real Slurm on this machine: munged, slurmctld and a slurmd for each node, with ports, spool and state of its own.

All nodes are this host under other names; a GPU is a harmless character device, which Slurm counts, hands out and names
in CUDA_VISIBLE_DEVICES as it does a card. With accounting there are slurmdbd and MariaDB, too; with pyxis a plugin of
ours that takes NVIDIA pyxis' options, writes down what each task got, and runs the task on the host (pyxis.c).
Nothing is installed: the programs are Debian's, unpacked into the cache. NGCDL_LAB_SLURM=24.11 takes those of Debian
13, with that one's C library (and installs patchelf); else it is Debian 12's 22.05.
"""

from lab_parts.slurm.cluster import Cluster

__all__ = ["Cluster"]
