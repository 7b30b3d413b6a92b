"""Which of the submitter's variables sbatch gets: it reads options from them, and the job inherits them. Pure.

sbatch's variables override the script, which holds the options that were typed: https://slurm.schedmd.com/sbatch.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ngcdl.settings import without_keys

# In an salloc shell, or a desktop on a node, these belong to the surrounding job, and srun in the new job would read
# them as options (SLURM_CPU_BIND, SLURM_MEM_PER_NODE, SLURM_GPUS).
_ANOTHER_JOB_S = re.compile(r"(SLURMD?|PMI2?|PMIX)_")
_THE_CLUSTER_S = re.compile(r"SLURM_(CONF|CONF_SERVER|CLUSTERS|JWT|SACK_\w+)")  # which one it is, and how to sign in
# Options with the same meaning, or that exclude each other.
_ALIKE = (
    ("gres", "gpus", "gpus-per-node", "gpus-per-task"),
    ("cpus-per-task", "cpus-per-gpu"),
    ("mem-per-node", "mem-per-cpu", "mem-per-gpu"),
    ("requeue", "no-requeue"),
)
# The names of sbatch's variables where they differ from the long option.
_NAMED = {
    **{"t": "timelimit", "time": "timelimit", "mem": "mem-per-node", "a": "array-inx", "array": "array-inx"},
    **{"A": "account", "C": "constraint", "G": "gpus", "J": "job-name", "e": "error", "i": "input", "k": "no-kill"},
    **{"m": "distribution", "o": "output", "p": "partition", "q": "qos", "O": "overcommit", "S": "core-spec"},
}


def for_sbatch(script: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Return `environment` without NGC's keys, a surrounding job's variables, and variables that would override options
    in the script."""
    typed = set(_options(script))
    return {
        name: value
        for name, value in without_keys(environment).items()
        if name not in typed and (_THE_CLUSTER_S.fullmatch(name) or not _ANOTHER_JOB_S.match(name))
    }


def _options(script: str) -> Iterator[str]:
    """Yield the names of the variables of sbatch that mean the same as an option in the script."""
    for word in re.findall(r"^#SBATCH (?:--([\w-]+)|-(\w))", script, re.MULTILINE):
        option = _NAMED.get("".join(word), "".join(word))
        for one in next((alike for alike in _ALIKE if option in alike), (option,)):
            yield f"SBATCH_{one.replace('-', '_').upper()}"
