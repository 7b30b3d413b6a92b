"""What goes along to sbatch of the variables of who hands a job in: it reads options there, and the job has them. Pure.

A variable of sbatch's counts before the script, which has what was typed: https://slurm.schedmd.com/sbatch.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

KEYS = ("NGC_API_KEY", "NGC_CLI_API_KEY")
# In a shell of salloc's, or a desktop on a node, these are of the job around it, and srun in the new one would read
# them as options (SLURM_CPU_BIND, SLURM_MEM_PER_NODE, SLURM_GPUS).
_ANOTHER_JOB_S = re.compile(r"(SLURMD?|PMI2?|PMIX)_")
_THE_CLUSTER_S = re.compile(r"SLURM_(CONF|CONF_SERVER|CLUSTERS|JWT|SACK_\w+)")  # which one it is, and how one gets in
# Options that say the same in different words, or exclude each other.
_ALIKE = (
    ("gres", "gpus", "gpus-per-node", "gpus-per-task"),
    ("cpus-per-task", "cpus-per-gpu"),
    ("mem-per-node", "mem-per-cpu", "mem-per-gpu"),
    ("requeue", "no-requeue"),
)
# What sbatch calls an option where the variable's name is not that of the long one.
_NAMED = {
    **{"t": "timelimit", "time": "timelimit", "mem": "mem-per-node", "a": "array-inx", "array": "array-inx"},
    **{"A": "account", "C": "constraint", "G": "gpus", "J": "job-name", "e": "error", "i": "input", "k": "no-kill"},
    **{"m": "distribution", "o": "output", "p": "partition", "q": "qos", "O": "overcommit", "S": "core-spec"},
}


def of(script: str, environment: Mapping[str, str]) -> dict[str, str]:
    """Leave out NGC's keys, what is of a job around this one, and what the script's own options would lose against."""
    typed = set(_options(script))
    return {
        name: value
        for name, value in environment.items()
        if name not in KEYS and name not in typed and (_THE_CLUSTER_S.fullmatch(name) or not _ANOTHER_JOB_S.match(name))
    }


def _options(script: str) -> Iterator[str]:
    """Name the variables that say what an option of the script says."""
    for word in re.findall(r"^#SBATCH (?:--([\w-]+)|-(\w))", script, re.MULTILINE):
        option = _NAMED.get("".join(word), "".join(word))
        for one in next((alike for alike in _ALIKE if option in alike), (option,)):
            yield f"SBATCH_{one.replace('-', '_').upper()}"
