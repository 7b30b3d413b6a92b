"""sbatch's options: what they are called, which have the same meaning, and with which a job can't be followed. Pure.

https://slurm.schedmd.com/sbatch.html
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ngcdl.errors import BadOption

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
    **{"A": "account", "C": "constraint", "G": "gpus", "J": "job-name", "c": "cpus-per-task", "e": "error"},
    **{"i": "input", "k": "no-kill", "m": "distribution", "o": "output", "p": "partition", "q": "qos"},
    **{"O": "overcommit", "S": "core-spec"},
}
# A value that sbatch would split, or cut short, in a script; one with quotes of its own was written for a script.
_SPLIT = re.compile(r"""(--[\w-]+=)((?!.*\s-)[^"'\\]*[\s#][^"'\\]*)""")
# Options that ask for GPUs by number, and the numbers in their values: a100:4, 4 or, for one, a100; for --gres
# gpu:a100:4, gpu:4 or, for one, gpu:a100 or gpu
_GPUS = re.compile(r"(?:--(gres|gpus(?:-per-(?:node|task))?)(?:=| +)|-(G)[= ]*)(.+)")
_GRES = re.compile(r"(?:^|,)gpu(?::(?!\d+(?:$|[,(]))[^:,()]+)?(?::(\d+))?(?=$|[,(])")
_OPTION = re.compile(r"--([\w-]+)|-(\w)")
_UNFOLLOWED = {
    "array": "ngcdl follows one job, and all jobs of an array would share a run's folder",
    "output": "ngcdl reads the output from the run's folder",
    "error": "ngcdl reads errors, too, from the output in the run's folder",
    "wait": "sbatch would return only when the job has ended, and ngcdl follows the job from its start",
    "wrap": "the job is ngcdl's own script",
    "test-only": "nothing would be submitted",
}
_SHORT = {"a": "array", "o": "output", "e": "error", "W": "wait"}


def alike(word: str) -> tuple[str, ...]:
    """Return the names, as sbatch's variables have them, of what means the same as an option or excludes it."""
    found = _OPTION.match(word)
    if not found:
        return ()
    name = found[1] or found[2]
    name = _NAMED.get(name, name)
    return next((alike for alike in _ALIKE if name in alike), (name,))


def quoted(word: str) -> str:
    """Return an option as a script must have it for sbatch to take it as from a shell: --comment="my run #2"."""
    return _SPLIT.sub(r'\1"\2"', word) if _SPLIT.fullmatch(word) else word


def asks_for_gpus(word: str) -> bool:
    """Whether an option may ask for GPUs: each of these can ask for other things, too."""
    return "gres" in alike(word) or word.startswith(("--tres-per-task", "--gpus-per-socket"))


def gpus_per_node(words: Sequence[str], nodes: int) -> tuple[int, str] | None:
    """Return how many GPUs of each node the options ask for, and which one does; None if they don't say."""
    typed = [found for word in words if (found := _GPUS.fullmatch(word))]
    if not typed:
        return None
    last = typed[-1]
    name = last[1] or last[2]
    asked = last[3] if name == "gres" else re.sub(r"(^|,)", r"\1gpu:", last[3])
    count = sum(int(number or 1) for number in _GRES.findall(asked))
    each = count / nodes if name in ("gpus", "G") else count
    return (int(each), last[0]) if count and each == int(each) else None


def check_followed(words: Iterable[str]) -> None:
    """Raise BadOption for an option with which ngcdl could not follow the job."""
    for word in words:
        if not (found := _OPTION.match(word)):
            continue
        name = found[1] or _SHORT.get(found[2], "")
        # sbatch takes the beginning of a name, too; one letter of these is always ambiguous
        for option, why in _UNFOLLOWED.items():
            if len(name) > 1 and option.startswith(name):
                raise BadOption(
                    f"--sbatch={word}: {why}.",
                    "Leave it out, or add it to a script of your own:\n    ngcdl export slurm RUN >job.sh",
                )
