"""Slurm's own programs, called only here, each with a time limit: arguments out, text in.

Text only: --json output differs between releases, and scontrol 22.05 has none. squeue and scontrol forget a job some
minutes after it ends, and sacct knows nothing without slurmdbd: None means that none of them knows.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ngcdl.engines.slurm import variables
from ngcdl.engines.slurm.jobstate import GOING, REASONS, Reason, State, meaning
from ngcdl.errors import (
    JobOfOthers,
    NotPlaceable,
    SlurmAbsent,
    SlurmLost,
    SlurmRefused,
    UnknownAccount,
    UnknownPartition,
)
from ngcdl.spec import is_secret

SECONDS = 30.0
SUBMIT_SECONDS = 120.0  # a busy controller keeps sbatch waiting
# The user's defaults for these programs: they would filter what ngcdl and the job's script ask for (SQUEUE_PARTITION).
_THE_USER_S = re.compile(r"(SQUEUE|SCANCEL|SINFO|SACCT)_")
_GONE = re.compile(r"Invalid job id|already complet")
# What Slurm says of a step in which the kernel killed for memory. The job's state is that of the script, which ends by
# itself, and says nothing of it.
# https://github.com/SchedMD/slurm/blob/slurm-24-11-5-1/src/slurmctld/job_mgr.c (_job_complete)
_STEP_OOM = re.compile(r"\d+:125")
_UNPARTED = re.compile(r"(?<=\w) (?=Batch job submission failed)")  # sbatch's first line from its second
_NOWHERE = re.compile(r"not available|[Nn]ode count|nvalid generic resource|CPU count|more processors|[Mm]emory spec")
# A node's GPUs as sinfo and scontrol describe them, as (type, count): gpu:8, gpu:a100:4(S:0-1),gpu:v100:2, (null).
GPUS = re.compile(r"(?:^|,)gpu(?::([^:,()]+))?:(\d+)")


def never_starts(state: State) -> NotPlaceable:
    """Return the error of a job that can never start: Slurm's words, what they mean, and what to ask for instead."""
    reason = state.reason or state.state
    found = meaning(reason) or Reason("")
    return NotPlaceable(f"{state.state} ({reason})", partitions(), found.meaning, found.instead)


def output_of(*words: str, seconds: float = SECONDS) -> str:
    """Run a program and return what it prints. Raise SlurmAbsent, SlurmLost, or SlurmRefused with its own words."""
    return _run(words, seconds, os.environ)


def _run(words: tuple[str, ...], seconds: float, environment: Mapping[str, str], given: str = "") -> str:
    kept = {name: value for name, value in environment.items() if not _THE_USER_S.match(name)}
    try:
        done = subprocess.run(
            words, input=given, capture_output=True, text=True, timeout=seconds, errors="replace",
            check=False, env={**kept, "SLURM_TIME_FORMAT": "standard", "LC_ALL": "C.UTF-8"},
        )  # fmt: skip
    except (FileNotFoundError, PermissionError) as error:
        raise SlurmAbsent(words[0]) from error
    except subprocess.TimeoutExpired as error:
        raise SlurmLost(words[0], f"nothing within {seconds:g} s") from error
    if done.returncode == 0:
        return done.stdout.strip()
    text = " ".join(line.partition("error: ")[2] or line for line in (done.stderr or done.stdout).split("\n")).strip()
    text = _UNPARTED.sub("; ", text)
    if re.search(r"Unable to contact|communication|Connection refused|timed out|Zero Bytes", text, re.IGNORECASE):
        raise SlurmLost(words[0], text)
    raise SlurmRefused(text or f"{words[0]} exited with {done.returncode}")


def submit(script: Path, environment: Mapping[str, str], after: Sequence[str] = ()) -> str:
    """Submit a script and return the job's id. The job starts once the jobs `after` have ended, however they ended.

    The job gets the variables of `environment` that look like secrets, and those of this process that `variables`
    selects; the others are in the script. Raise NotPlaceable, UnknownPartition, UnknownAccount or SlurmRefused."""
    secrets = {name: value for name, value in environment.items() if is_secret(name, value)}
    given = variables.for_sbatch(os.fsdecode(script.read_bytes()), os.environ) | secrets
    waits = [f"--dependency=afterany:{':'.join(after)}"] if after else []
    text = _sbatch("--parsable", *waits, f"--chdir={script.parent}", str(script), environment=given)
    ids = re.findall(r"^(\d+)(?:;.*)?$", text, re.MULTILINE)  # beside whatever a site's own sbatch prints
    if not ids:
        raise SlurmRefused(f"sbatch named no job: {text[:200]!r}")
    return str(ids[-1])


def check(script: str) -> None:
    """Ask whether Slurm would accept a script, and submit nothing. Raise as `submit` does."""
    _sbatch("--test-only", environment=variables.for_sbatch(script, os.environ), given=script)


def _sbatch(*words: str, environment: Mapping[str, str], given: str = "") -> str:
    try:
        return _run(("sbatch", *words), SUBMIT_SECONDS, environment, given)
    except SlurmRefused as error:
        said = error.said
        if re.search(r"nvalid partition|not permitted to use this partition", said):
            raise UnknownPartition(said, partitions()) from error
        if re.search(r"[Ii]nvalid (account|qos)|accounting/QOS policy", said):
            raise UnknownAccount(said) from error
        if re.search(r"[Tt]ime limit", said):
            hint = f"What each partition allows:\n{partitions()}\n    ngcdl run ... --time 1:00:00 --partition NAME"
            raise SlurmRefused(said, hint) from error
        if _NOWHERE.search(said):
            advice = REASONS["MaxMemPerLimit"].instead if "emory spec" in said else ""
            raise NotPlaceable(said, partitions(), advice=advice) from error
        raise


def partitions() -> str:
    """Describe the partitions, a line each: nodes, what each has, and time limit; if Slurm does not say, say so."""
    try:
        lines = output_of("sinfo", "-h", "-o", "%P|%D|%c|%m|%G|%l").splitlines()
    except (SlurmAbsent, SlurmLost, SlurmRefused):
        return "    (sinfo does not say)"
    rows = [line.split("|") for line in lines if line.count("|") == 5]
    return "\n".join(
        f"    {name}: {nodes} nodes, {cpus} processors, {memory} MiB, GPUs {gres.replace('(null)', 'none')}, "
        + ("no time limit" if limit == "infinite" else f"at most {limit}")
        for name, nodes, cpus, memory, gres, limit in rows
    )


def gpus_of(gres: str) -> int:
    return sum(int(count) for _, count in GPUS.findall(gres))


def state(job: str) -> State | None:
    """Return a job's state, from squeue and scontrol, else from the accounting; None if none of them knows it.

    Raise SlurmLost, by "sacct" if only the accounting does not answer: the controller has then forgotten the job."""
    return _by_squeue(job) or _by_accounting(job)


def _told(*words: str) -> str:
    """Return what a program says about a job, "" if the job is forgotten. Raise SlurmLost for every other error: a
    restarting munged, or another release, says nothing about the job."""
    try:
        return output_of(*words)
    except SlurmRefused as error:
        if _GONE.search(error.said):
            return ""
        raise SlurmLost(words[0], error.said) from error


def _by_squeue(job: str) -> State | None:
    text = _told("squeue", "-h", "-t", "all", "-j", job, "-o", "%T|%r|%P")
    if not text:
        return None
    name, reason, partitions = f"{text.splitlines()[0]}||".split("|")[:3]
    code, number, derived = None, 0, None
    if name not in GOING:
        text = _told("scontrol", "show", "job", job, "-o", "-d")  # -d: with DerivedExitCode, the steps'
        found = re.search(r"\bExitCode=(\d+):(\d+)", text)
        code, number = (int(found[1]), int(found[2])) if found else (None, 0)
        derived = re.search(r"\bDerivedExitCode=(\S+)", text)
    is_oom = _is_oom(name, derived[1] if derived else "")
    return State(name, None if reason in ("", "None") else reason, code, number, is_oom, partitions)


def _is_oom(state: str, derived: str) -> bool:
    return state == "OUT_OF_MEMORY" or bool(_STEP_OOM.fullmatch(derived))


def _by_accounting(job: str) -> State | None:
    try:
        text = _accounted("-j", job, "-o", "State,ExitCode,DerivedExitCode")
    except (SlurmRefused, SlurmAbsent):
        return None  # no accounting here
    if not text:
        return None
    told, codes, derived = f"{text.splitlines()[-1]}||".split("|")[:3]
    name, (code, _, number) = told.split(" ")[0], codes.partition(":")
    known = int(code) if code.isdecimal() else None
    found = State(name, None, known, int(number or 0), _is_oom(name, derived))
    return None if found.goes_on else found  # the accounting never heard of its end: sacctmgr calls it a runaway job


def _accounted(*words: str) -> str:
    """Query the accounting of the cluster that the other programs address: only sacct ignores SLURM_CLUSTERS."""
    cluster = os.environ.get("SLURM_CLUSTERS")
    return output_of("sacct", "-X", "-n", "-P", *([f"--clusters={cluster}"] if cluster else []), *words)


def named(name: str) -> str | None:
    """Return the newest job of that name, None if Slurm has none any more. Raise SlurmLost."""
    ids = _told("squeue", "-h", "-t", "all", f"--name={name}", "-o", "%A").split()
    if not ids:
        try:
            ids = _accounted("-S", "now-30days", f"--name={name}", "-o", "JobID").split()
        except (SlurmRefused, SlurmAbsent):
            ids = []
    return max(ids, key=lambda one: int(one) if one.isdecimal() else 0) if ids else None


def cluster() -> str | None:
    """Return the cluster's name, as its controller reports it."""
    found = re.search(r"^ClusterName\s*=\s*(\S+)", output_of("scontrol", "show", "config"), re.MULTILINE)
    return found[1] if found else None


def has_pyxis() -> bool:
    return "--container-image" in output_of("srun", "--help")


def cancel(job: str, folder: Path, signal: str | None = None) -> None:
    """Cancel the job that works in `folder`, or send a signal to its tasks only. Do nothing if it has ended. Raise
    SlurmRefused, or JobOfOthers: a run can write any number into its record."""
    works_in = ""
    with contextlib.suppress(SlurmAbsent, SlurmLost):  # scancel will say so itself
        works_in = _told("squeue", "-h", "-t", "all", "-j", job, "-o", "%Z").strip()
    if works_in.startswith("/") and works_in != str(folder) and not _is_same(Path(works_in), folder):
        raise JobOfOthers(job, folder, works_in)
    try:
        output_of("scancel", *([f"--signal={signal}"] if signal else []), job)
    except SlurmRefused as error:
        if not _GONE.search(error.said):
            raise


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
