"""Which of the submitter's variables sbatch gets: it reads options from them, and the job inherits them. Pure.

sbatch's variables override the script, which holds the options that were typed: https://slurm.schedmd.com/sbatch.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ngcdl.engines.slurm import options
from ngcdl.settings import without_keys

# In an salloc shell, or a desktop on a node, these belong to the surrounding job, and srun in the new job would read
# them as options (SLURM_CPU_BIND, SLURM_MEM_PER_NODE, SLURM_GPUS).
_ANOTHER_JOB_S = re.compile(r"(SLURMD?|PMI2?|PMIX)_")
_THE_CLUSTER_S = re.compile(r"SLURM_(CONF|CONF_SERVER|CLUSTERS|JWT|SACK_\w+)")  # which one it is, and how to sign in
# With these sbatch would wait for the job's end, submit many jobs, or keep errors out of the run's log.
_UNFOLLOWED = frozenset({"SBATCH_WAIT", "SBATCH_ARRAY_INX", "SBATCH_ERROR"})


def for_sbatch(script: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` without NGC's keys, a surrounding job's variables, and variables that would override options
    in the script or with which ngcdl could not follow the job."""
    left_out = {*_options(script), *_UNFOLLOWED}
    return {
        name: value
        for name, value in without_keys(environment).items()
        if name not in left_out and (_THE_CLUSTER_S.fullmatch(name) or not _ANOTHER_JOB_S.match(name))
    }


def _options(script: str) -> Iterator[str]:
    """Yield the names of the variables of sbatch that mean the same as an option in the script."""
    for word in re.findall(r"^#SBATCH (-.*)", script, re.MULTILINE):
        for name in options.alike(word):
            yield f"SBATCH_{name.replace('-', '_').upper()}"
