"""The Slurm engine: a run is a batch job, written to be read and kept, and submitted with Slurm's own programs.

script      the batch script that an Order becomes; runners: how each of its tasks runs the image
bash        job.sh, the script with gaps, and the parts of its tasks: task.sh, child.sh or client.sh, ...
commands    sbatch, squeue, scontrol, sacct, scancel, sinfo: parsed from text into values    jobstate: what these mean
engine      what launch builds on: submit and find        job: a submitted job, as its folder and Slurm report it
"""

from __future__ import annotations

from ngcdl import settings
from ngcdl.engines.slurm.engine import SlurmEngine


def connect() -> SlurmEngine:
    """Return the engine. Raise SlurmAbsent or SlurmLost."""
    return SlurmEngine(settings.load().runs)
