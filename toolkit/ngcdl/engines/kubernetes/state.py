"""A job's state, read from the objects that Kubernetes keeps: the Job, its pods and the events about them. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from ngcdl.engines.kubernetes.messages import remedy
from ngcdl.engines.kubernetes.pod import CONTAINER, KEPT
from ngcdl.engines.kubernetes.podstate import TIMED_OUT, Json, Pod, condition, happened, newest, seconds
from ngcdl.engines.values import Exit
from ngcdl.errors import ClusterRefused, EngineError
from ngcdl.frozen import dataclass

# Reasons for which a Job's controller can create no pod now, but may later: it tries again
_CREATED_LATER = re.compile(
    rf"exceeded quota|internal error|etcdserver|connection refused|{TIMED_OUT.pattern}", re.IGNORECASE
)
# Where Kueue holds every Job, it starts none without this label:
# https://kueue.sigs.k8s.io/docs/tasks/manage/enforce_job_management/manage_jobs_without_queue_name/
_QUEUE = "kueue.x-k8s.io/queue-name"

# Reasons of a failed Job that say no more than the code of the pod that failed
_FOR_ITS_CODE = ("BackoffLimitExceeded", "PodFailurePolicy")


@dataclass(frozen=True)
class State:
    """`job` is None if the cluster has none. `pods` has the newest first."""

    job: Json | None
    pods: tuple[Pod, ...] = ()
    refused: str | None = None  # why the Job could not make the pods that it lacks

    @classmethod
    def read(cls, items: Sequence[Json], events: Sequence[Json] = (), now: float = 0.0) -> State:
        jobs = [item for item in items if item.get("kind") == "Job"]
        pods = sorted(
            (Pod.read(item, now, events) for item in items if item.get("kind") == "Pod"),
            key=lambda pod: pod.made,
            reverse=True,
        )
        state = cls(jobs[0] if jobs else None, tuple(pods))
        return replace(state, refused=_refused(events, pods)) if state.lacks_pods else state

    def of(self, index: int) -> Pod | None:
        """Return the newest pod of a node."""
        return next((pod for pod in self.pods if pod.index == index), None)

    @property
    def lacks_pods(self) -> bool:
        """Whether a node has no pod, or only a failed one: the events about the Job may say why."""
        if self.job is None or self._end is not None:
            return False
        fine = {pod.index for pod in self.pods if pod.ended is None or pod.ended.code == 0}
        return len(fine) < self._nodes

    @property
    def has_others(self) -> bool:
        return self._nodes > 1

    @property
    def _nodes(self) -> int:
        return int((self.job or {}).get("spec", {}).get("completions", 1))

    @property
    def unexplained(self) -> list[str]:
        """The names of the objects (the Job, a slow pod) whose events may say why the job does not go on."""
        slow = [pod.name for pod in self.pods if pod.is_slow]
        return [*([self.job["metadata"]["name"]] if self.job and self.lacks_pods else []), *slow[:1]]

    @property
    def is_over(self) -> bool:
        return (self.job is None and not self.pods) or self._end is not None

    @property
    def _end(self) -> Json | None:
        status = (self.job or {}).get("status", {})
        return condition(status, "Complete", "True") or condition(status, "Failed", "True")

    @property
    def exit(self) -> Exit | None:
        """How the job ended: with 0, or as the pod did that brought down the others; None while it runs."""
        over = self._end
        if over is None:
            return Exit(None, reason="its Job is gone from the cluster") if self.is_over else None
        if over["type"] == "Complete":
            return Exit(0, False, self._earlier, seconds(over.get("lastTransitionTime")))
        last = sorted((pod for pod in self.pods if self.of(pod.index) is pod), key=lambda pod: pod.index)
        end = min((pod.ended for pod in last if pod.ended and pod.ended.code != 0), key=_blame, default=Exit(None))
        is_said = end.code is not None and over.get("reason") in _FOR_ITS_CODE
        reason = end.reason or (None if is_said else f"{over.get('reason')}: {over.get('message')}")
        reason = "; ".join(filter(None, (reason, self._earlier))) or None
        return Exit(end.code, end.oom_killed, reason, end.finished or seconds(over.get("lastTransitionTime")))

    @property
    def _earlier(self) -> str | None:
        """Say which pods Kubernetes, or the kernel, ended before the last ones: their programs began again."""
        before = [pod.ended.reason for pod in self.pods if pod.ended and self.of(pod.index) is not pod]
        why = [reason for reason in before if reason]
        if not why:
            return None
        which = "one of its pods was" if len(why) == 1 else f"{len(why)} of its pods were"
        return f"{which} replaced: {why[0]}"

    def replaced(self, before: str, by: Pod) -> str:
        """Say that the pod `by` takes the place of the one named `before`, and why, with advice."""
        ended = next((pod.ended for pod in self.pods if pod.name == before), None)
        how = f"ended ({ended.reason or f'exit code {ended.code}'})" if ended else "is gone"
        return f"the pod {before} {how}; {by.name} takes its place\n{remedy(how)}".rstrip()

    @property
    def kept(self) -> str | None:
        """Where a claim keeps the run's folder, and how its record is read; None if no claim does."""
        pod = (self.job or {}).get("spec", {}).get("template", {}).get("spec", {})
        ours = [one for one in pod.get("containers", []) if one["name"] == CONTAINER]
        named = {one["name"]: str(one.get("value")) for container in ours for one in container.get("env", [])}
        if "NGCDL_KEPT" not in named:
            return None
        where = f"on the claim {named.get('NGCDL_CLAIM')}, in {named['NGCDL_KEPT'].removeprefix(f'{KEPT}/')}"
        return f"{where}; ngcdl show reads the *.jsonl of it once they are copied into the record's folder"

    @property
    def trouble(self) -> EngineError | None:
        """An error that waiting can't mend, None if there is none."""
        if self.refused and not self.pods and not _CREATED_LATER.search(self.refused):
            return ClusterRefused(self.refused, remedy(self.refused))
        return next((pod.trouble for pod in self.pods if pod.trouble and self.of(pod.index) is pod), None)

    @property
    def stumble(self) -> EngineError | None:
        """An error that waiting may mend, None if there is none; the caller decides how long to wait."""
        return next((pod.stumble for pod in self.pods if pod.stumble and self.of(pod.index) is pod), None)

    @property
    def waits_for(self) -> str | None:
        """What the job waits for, in Kubernetes' words and with advice; None if it does not wait."""
        if self.job and condition(self.job.get("status", {}), "Suspended", "True"):
            who = "by a queue such as Kueue, or by hand. Its events may say more"
            said = f"the Job is suspended, {who}:\n    kubectl describe job {self.job['metadata']['name']}"
            if _QUEUE in (self.job["metadata"].get("labels") or {}):
                return said
            return f"{said}\nIt names no queue of Kueue's (the label {_QUEUE}), which --job-patch FILE can add."
        if self.refused:
            return f"{self.refused}\n{remedy(self.refused)}".rstrip()
        return next((pod.waits_for for pod in self.pods if pod.waits_for), None)


def _blame(end: Exit) -> tuple[bool, bool, bool, float]:
    """Return a sort key that puts first the pod that brought down the others: one killed for memory, then one with
    another exit code than SIGTERM's, then the earliest to end."""
    return not end.oom_killed, end.code == 143, end.code is None, end.finished or float("inf")


def _refused(events: Sequence[Json], pods: Sequence[Pod]) -> str | None:
    """Return the last refusal to create a pod, unless the newest pod was created after it."""
    since = (seconds(pods[0].made) if pods else None) or 0.0
    last = newest([event for event in events if event.get("reason") == "FailedCreate"])
    return str(last.get("message")) if last and (happened(last) or since) >= since else None
