"""The engine Slurm: a run is a batch job, written to be read and kept, and handed in with Slurm's own programs.

script      the batch script that an Order becomes (pure); runners: how each of its tasks runs the image
commands    sbatch, squeue, scontrol, sacct, scancel, sinfo: their text in, values out
engine      what launch stands on: submit and find        job: one that was handed in, as its folder and Slurm tell
"""

from __future__ import annotations

from ngcdl import settings
from ngcdl.engines.slurm.engine import SlurmEngine


def connect() -> SlurmEngine:
    """Raises SlurmAbsent and SlurmLost."""
    return SlurmEngine(settings.load().runs)
