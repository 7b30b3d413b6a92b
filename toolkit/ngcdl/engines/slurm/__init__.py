"""The Slurm engine: a run is a batch job, written to be read and kept, and submitted with Slurm's own programs.

script      the batch script that an Order becomes (pure); runners: how each of its tasks runs the image
commands    sbatch, squeue, scontrol, sacct, scancel, sinfo: parsed from text into values
engine      what launch builds on: submit and find        job: a submitted job, as its folder and Slurm report it
"""

from __future__ import annotations

from ngcdl import settings
from ngcdl.engines.slurm.engine import SlurmEngine


def connect() -> SlurmEngine:
    """Return the engine. Raise SlurmAbsent or SlurmLost."""
    return SlurmEngine(settings.load().runs)
