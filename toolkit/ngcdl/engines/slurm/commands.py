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
from ngcdl.errors import (
    JobOfOthers,
    NotPlaceable,
    SlurmAbsent,
    SlurmLost,
    SlurmRefused,
    UnknownAccount,
    UnknownPartition,
)
from ngcdl.frozen import dataclass
from ngcdl.spec import is_secret

SECONDS = 30.0
SUBMIT_SECONDS = 120.0  # a busy controller keeps sbatch waiting
# https://slurm.schedmd.com/job_state_codes.html
WAITING = ("PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "CONFIGURING", "RESV_DEL_HOLD",
           "EXPEDITING")  # fmt: skip
GOING = (*WAITING, "RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "COMPLETING", "RESIZING")
ENDED_BY_OTHERS = ("CANCELLED", "PREEMPTED", "TIMEOUT", "DEADLINE", "REVOKED")


@dataclass(frozen=True)
class Reason:
    """What a job waits for. `instead` is a request with which it might start, `how` the words before that in `text`."""

    meaning: str
    instead: str = ""
    how: str = ""

    @property
    def text(self) -> str:
        return f"{self.meaning}: {self.how}{self.instead}" if self.instead else self.meaning


# Who may release which: https://github.com/SchedMD/slurm/blob/master/src/slurmctld/job_mgr.c (_handle_requeue_limit,
# job_hold_requeue, _update_job)
_TOO_OFTEN = Reason("it failed to start too often, and is held; only an administrator can release it")
# By Slurm's word for it; for a job without a reason, by its state. https://slurm.schedmd.com/job_reason_codes.html
REASONS = {
    "CONFIGURING": Reason("its nodes are being started or made ready, which takes minutes in a cloud"),
    "Prolog": Reason("its nodes are being made ready (the site's prolog)"),
    "Reservation": Reason("its reservation has not begun, or has no free nodes"),
    "Resources": Reason("it waits for nodes to become free"),
    "Priority": Reason("other jobs are ahead of it"),
    "BeginTime": Reason("it was requeued, and Slurm holds it back for two minutes, or --begin names a later time"),
    "Dependency": Reason("it waits for another job"),
    "DependencyNeverSatisfied": Reason("a job that it depends on ended otherwise than it demands", "no --dependency"),
    "JobHeldUser": Reason("it is held; release it with: scontrol release {job}"),
    "JobHeldAdmin": Reason("an administrator holds it"),
    "launch failed requeued held": Reason("it failed to start and is held; release it with: scontrol release {job}"),
    "job requeued in held state": Reason("it was requeued and is held; release it with: scontrol release {job}"),
    "launch failure limit exceeded requeued held": _TOO_OFTEN,
    "JobHoldMaxRequeue": _TOO_OFTEN,
    "PartitionDown": Reason("its partition is down"),
    "PartitionInactive": Reason("its partition accepts no jobs"),
    "PartitionNodeLimit": Reason(
        "it needs more nodes than its partition allows", "fewer --nodes, or another --partition"
    ),
    "PartitionConfig": Reason(
        "its partition can never run it", "fewer --gpus, --nodes or --cpus, or another --partition"
    ),
    "PartitionTimeLimit": Reason(
        "it needs more time than its partition allows", "a shorter --time, or another --partition"
    ),
    "ReqNodeNotAvail": Reason("nodes that it needs are down, drained or reserved"),
    "QOSMaxJobsPerUserLimit": Reason("you already run as many jobs as your quality of service allows"),
    "InvalidAccount": Reason("its account is not valid", "another --account", "name "),
    "InvalidQOS": Reason("its quality of service is not valid", "another --qos", "name "),
    "AccountNotAllowed": Reason(
        "its partition does not admit its account", "another --account or --partition", "name "
    ),
    "QOSNotAllowed": Reason(
        "its account or partition does not admit its quality of service", "another --qos or --partition", "name "
    ),
    "MaxMemPerLimit": Reason("it needs more memory than its partition allows", "less --memory, or another --partition"),
    "BadConstraints": Reason("no node can run it as requested", "fewer --gpus or --cpus, or another --partition"),
}
_PER_JOB, _LESS = r"Max\w+Per(Job|Node)(Limit)?", "less (--gpus, --nodes, --cpus, --memory, --time), or another"
_GROUPS = {  # by the word's beginning
    f"Assoc{_PER_JOB}": Reason("it asks for more than your account allows a job", f"{_LESS} --account"),
    f"QOS{_PER_JOB}": Reason("it asks for more than your quality of service allows a job", f"{_LESS} --qos"),
    r"QOSMin\w+": Reason(
        "it asks for less than your quality of service demands", "more --gpus, --nodes or --cpus, or another --qos"
    ),
    "Assoc": Reason("your account has reached a limit", "another --account", "wait, or name "),
    "QOS": Reason("your quality of service has reached a limit", "another --qos", "wait, or name "),
    r"Max\w+PerAccount": Reason(
        "your account has reached a limit of its quality of service", "another --qos", "wait, or name "
    ),
    "Nodes required": Reason("nodes that it needs are down, drained or reserved"),
}
# With these it waits forever, unless an administrator changes a limit or repairs a node.
_NEVER = re.compile(
    r"PartitionConfig|PartitionNodeLimit|PartitionTimeLimit|BadConstraints|InvalidAccount|InvalidQOS|AccountNotAllowed"
    rf"|QOSNotAllowed|MaxMemPerLimit|DependencyNeverSatisfied|(Assoc|QOS){_PER_JOB}|QOSMin\w+"
)
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


@dataclass(frozen=True)
class State:
    """A job's state. `reason` is Slurm's word, None if it has none; `code` is the script's exit code, None if it is not
    reported; `signal` is the one that ended it, 0 for none. `is_oom`: Slurm saw the kernel kill a process for memory.
    `partitions`: those that may take it, A,B."""

    state: str
    reason: str | None = None
    code: int | None = None
    signal: int = 0
    is_oom: bool = False
    partitions: str = ""

    @property
    def goes_on(self) -> bool:
        return self.state in GOING

    @property
    def waits(self) -> bool:
        return self.state in WAITING


def why_waiting(state: State, job: str) -> str:
    """Say why a job has not started, in Slurm's words and in ours."""
    meant = _meant(state.reason or state.state)
    said = ": ".join(filter(None, (state.reason, meant.text.format(job=job) if meant else None)))
    return f"{state.state} ({said})" if said else state.state


def _meant(reason: str) -> Reason | None:
    known = REASONS.get(reason.partition(",")[0])
    return known or next((meant for begin, meant in _GROUPS.items() if re.match(begin, reason)), None)


def never_starts(state: State) -> NotPlaceable:
    """Return the error of a job that can never start: Slurm's words, what they mean, and what to ask for instead."""
    reason = state.reason or state.state
    meant = _meant(reason) or Reason("")
    return NotPlaceable(f"{state.state} ({reason})", partitions(), meant.meaning, meant.instead)


def is_never(state: State) -> bool:
    """Whether the job can never start as requested. A limit per job holds forever; other limits pass with waiting. Of
    several partitions, another one than the reason is about may take it."""
    return state.waits and "," not in state.partitions and bool(_NEVER.fullmatch(state.reason or ""))


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
