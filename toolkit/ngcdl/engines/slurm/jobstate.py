"""A job's state in Slurm's words, what a job in the queue waits for, and whether waiting helps. Pure."""

from __future__ import annotations

import re

from ngcdl.frozen import dataclass

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
    meant = meaning(state.reason or state.state)
    said = ": ".join(filter(None, (state.reason, meant.text.format(job=job) if meant else None)))
    return f"{state.state} ({said})" if said else state.state


def is_never(state: State) -> bool:
    """Whether the job can never start as requested. A limit per job holds forever; other limits pass with waiting. Of
    several partitions, another one than the reason is about may take it."""
    return state.waits and "," not in state.partitions and bool(_NEVER.fullmatch(state.reason or ""))


def meaning(reason: str) -> Reason | None:
    """Return what Slurm's word for what a job waits for means; None if that is not known."""
    known = REASONS.get(reason.partition(",")[0])
    return known or next((meant for begin, meant in _GROUPS.items() if re.match(begin, reason)), None)
