"""A job's state, read from the objects that Kubernetes keeps: the Job, its pods and the events about them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from ngcdl.engines.base import Exit
from ngcdl.engines.kubernetes.messages import QUOTA
from ngcdl.engines.kubernetes.pod import CONTAINER, GPU
from ngcdl.errors import ClusterRefused, EngineError, ImageNotPulled, PodFailed

Json = Mapping[str, Any]
_INDEX = "batch.kubernetes.io/job-completion-index"
_NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")
# A registry's final answers; what a node retries is none of these.
_FOR_GOOD = re.compile(
    r"unauthorized|denied|forbidden|not found|\bstatus(?: code)?:? 40[134]\b|(?:manifest|name|repository) unknown|"
    r"unknown authority|no match for platform|invalid reference",
    re.IGNORECASE,
)
_NO_START = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
# Something named does not exist or is not allowed: a start that fails for any other reason mostly succeeds later.
_NEVER_STARTS = re.compile(
    r'(?:secret|configmap) "[^"]*" not found|couldn\'t find key|non-?root|no command specified|'
    r'exec: "[^"]*": (?:stat \S+: )?(?:executable file not found|no such file|permission denied)',
    re.IGNORECASE,
)
_TIMED_OUT = re.compile(r"time(?:d )?-?out|deadline exceeded", re.IGNORECASE)
# Why a Job's controller, which tries again, could create no pod for now
_CREATED_LATER = re.compile(
    rf"exceeded quota|internal error|etcdserver|connection refused|{_TIMED_OUT.pattern}", re.IGNORECASE
)
LATE_SECONDS = 30  # for a node to report that a pod has ended; clocks differ
# Unknown, NotFound, PermissionDenied, ... belong to a call on the node: https://grpc.io/docs/guides/status-codes/
_CODE_OR_NAME = re.compile(r'code = \w+|"[^"]*"')


@dataclass(frozen=True)
class Pod:
    """`began`: it has written output, or may have.

    `trouble` is what waiting cannot mend, `stumble` a failed start that is retried."""

    name: str
    index: int
    made: str
    began: bool
    ended: Exit | None
    trouble: EngineError | None
    stumble: EngineError | None
    waits_for: str | None

    @classmethod
    def read(cls, pod: Json, now: float) -> Pod:
        meta, status = pod["metadata"], pod.get("status", {})
        ours = [one for one in status.get("containerStatuses", []) if one.get("name") == CONTAINER]  # not a mesh's
        state: Json = ours[0].get("state", {}) if ours else {}
        waiting, ended = state.get("waiting", {}), _ended(state.get("terminated"), status)
        return cls(
            name=meta["name"],
            index=int(meta.get("annotations", {}).get(_INDEX, 0)),
            made=str(meta.get("creationTimestamp", "")),
            began="running" in state or "terminated" in state,
            ended=ended,
            trouble=_unpullable(pod, waiting) or _start_failed(pod, waiting, for_good=True),
            stumble=_start_failed(pod, waiting, for_good=False),
            waits_for=_waits_for(status, waiting) if ended else _lost(pod, now) or _waits_for(status, waiting),
        )


@dataclass(frozen=True)
class State:
    """`job` is None if there is none. `pods` has the newest first."""

    job: Json | None
    pods: tuple[Pod, ...] = ()
    refused: str | None = None  # why the Job could not make the pods that it lacks

    @classmethod
    def read(cls, items: Sequence[Json], events: Sequence[Json] = (), now: float = 0.0) -> State:
        jobs = [item for item in items if item.get("kind") == "Job"]
        pods = sorted(
            (Pod.read(item, now) for item in items if item.get("kind") == "Pod"),
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
        """Has a node no pod, or only a failed one? The events about the Job may say why."""
        if self.job is None or self._condition is not None:
            return False
        fine = {pod.index for pod in self.pods if pod.ended is None or pod.ended.code == 0}
        return len(fine) < int(self.job.get("spec", {}).get("completions", 1))

    @property
    def is_over(self) -> bool:
        return (self.job is None and not self.pods) or self._condition is not None

    @property
    def _condition(self) -> Json | None:
        conditions = (self.job or {}).get("status", {}).get("conditions", [])
        over = [one for one in conditions if one.get("type") in ("Complete", "Failed") and one.get("status") == "True"]
        return over[0] if over else None

    @property
    def exit(self) -> Exit | None:
        """Return how it ended, None while it runs: 0, or the code of the lowest node with a pod that failed."""
        over = self._condition
        if over is None:
            return Exit(None, reason="its Job is gone from the cluster") if self.is_over else None
        if over["type"] == "Complete":
            return Exit(0, False, None, _seconds(over.get("lastTransitionTime")))
        ends = [pod.ended for pod in sorted(self.pods, key=lambda pod: pod.index) if pod.ended and pod.ended.code != 0]
        end = ends[0] if ends else Exit(None)
        reason = end.reason or f"{over.get('reason')}: {over.get('message')}"
        return Exit(end.code, end.oom_killed, reason, end.finished or _seconds(over.get("lastTransitionTime")))

    @property
    def trouble(self) -> EngineError | None:
        """Return what waiting cannot mend, None if nothing."""
        if self.refused and not self.pods and not _CREATED_LATER.search(self.refused):
            return ClusterRefused(self.refused)
        return next((pod.trouble for pod in self.pods if pod.trouble and self.of(pod.index) is pod), None)

    @property
    def stumble(self) -> EngineError | None:
        """Return what waiting may mend, None if nothing; the caller decides how long to wait."""
        return next((pod.stumble for pod in self.pods if pod.stumble and self.of(pod.index) is pod), None)

    @property
    def waits_for(self) -> str | None:
        """Say what it waits for, in Kubernetes' words and with what may help; None if it does not wait."""
        if self.refused:
            return f"{self.refused}\n{QUOTA}" if "exceeded quota" in self.refused else self.refused
        return next((pod.waits_for for pod in self.pods if pod.waits_for), None)


def _refused(events: Sequence[Json], pods: Sequence[Pod]) -> str | None:
    """Return the last refusal to create a pod, unless the newest pod was created after it."""
    newest = pods[0].made if pods else ""
    found = [
        str(event.get("message"))
        for event in events
        if event.get("reason") == "FailedCreate" and str(event.get("lastTimestamp") or newest) >= newest
    ]
    return found[-1] if found else None


def _lost(pod: Json, now: float) -> str | None:
    """Say that a pod's node did not end it in time: Kubernetes waits for that node, however long, and does not replace
    the pod. Deleting it by force is not enough: a Job with a podFailurePolicy wants to see it failed.

    https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown"""
    meta, node = pod["metadata"], pod["spec"].get("nodeName")
    until = _seconds(meta.get("deletionTimestamp"))  # the time to end in, grace included
    if until is None or now < until + LATE_SECONDS:
        return None
    return (
        f"the pod {meta['name']} should have ended at {meta['deletionTimestamp']}: its node {node} does not answer. "
        "Kubernetes waits for it, unless an administrator says that the machine is off:\n"
        f"    kubectl taint nodes {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    )


def _ended(terminated: Json | None, status: Json) -> Exit | None:
    if terminated is None:
        if status.get("phase") != "Failed":
            return None
        return Exit(None, reason=_evicted(status))  # the node is gone, and the container with it
    killed = terminated.get("reason") == "OOMKilled"
    reason = "out of memory: the kernel killed it" if killed else _evicted(status)
    return Exit(terminated.get("exitCode"), killed, reason, _seconds(terminated.get("finishedAt")))


def _evicted(status: Json) -> str | None:
    return ": ".join(str(status[key]) for key in ("reason", "message") if status.get(key)) or None


def _unpullable(pod: Json, waiting: Json) -> EngineError | None:
    if waiting.get("reason") not in _NO_IMAGE:
        return None
    message = _message(waiting)
    image = next(one["image"] for one in pod["spec"]["containers"] if one["name"] == CONTAINER)
    said = _CODE_OR_NAME.sub("", message).replace(image, "")
    if _TIMED_OUT.search(said) or not _FOR_GOOD.search(said):
        return None
    secrets = [one["name"] for one in pod["spec"].get("imagePullSecrets", [])]
    return ImageNotPulled(message, image, secrets[0] if secrets else None)


def _start_failed(pod: Json, waiting: Json, for_good: bool) -> EngineError | None:
    if waiting.get("reason") not in _NO_START:
        return None
    message = _message(waiting)
    is_for_good = bool(_NEVER_STARTS.search(message)) and not _TIMED_OUT.search(message)
    return PodFailed(message, pod["metadata"]["name"]) if is_for_good == for_good else None


def _message(waiting: Json) -> str:
    return str(waiting.get("message") or waiting.get("reason"))


def _waits_for(status: Json, waiting: Json) -> str | None:
    if waiting.get("reason") in _NO_IMAGE:
        return f"the image could not be pulled yet: {_message(waiting)}"
    if waiting.get("reason") in _NO_START:
        return f"the container could not be started yet: {_message(waiting)}"
    for condition in status.get("conditions", []):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            said = str(condition.get("message") or condition.get("reason"))
            return "\n".join([said, *_remedies(said)])
    return None


def _remedies(said: str) -> Iterator[str]:
    if f"Insufficient {GPU}" in said:
        yield "It starts when GPUs become free. How many each node has:"
        yield "    kubectl get nodes -o custom-columns=NAME:.metadata.name,GPUS:.status.allocatable.nvidia\\.com/gpu"
        yield "If no node has that many, request fewer on more nodes: --nodes 2 --gpus 4"
    if "persistentvolumeclaim" in said and "not found" in said:
        yield "List the claims:"
        yield "    kubectl get pvc"
    if "untolerated taint" in said:
        yield "Some nodes are reserved for others (taints): kubectl describe nodes"
    if "anti-affinity" in said:
        yield "--nodes needs that many machines: fewer nodes, each with more GPUs, may fit."


def _seconds(stamp: object) -> float | None:
    """Read an RFC 3339 time of the API."""
    try:
        return datetime.fromisoformat(str(stamp)).timestamp()
    except ValueError:
        return None
