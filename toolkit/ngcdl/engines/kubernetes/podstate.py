"""What a pod's status and the events about it say: did its container begin, how did it end, what is missing. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from ngcdl.engines.kubernetes.pod import CONTAINER, GPU
from ngcdl.engines.values import Exit
from ngcdl.errors import EngineError, ImageNotPulled, PodFailed
from ngcdl.frozen import dataclass

Json = Mapping[str, Any]
_INDEX = "batch.kubernetes.io/job-completion-index"
# What the kubelet puts before a reason that it has given before: said once, the reason is enough.
_SAID_BEFORE = re.compile(r'\(combined from similar events\): |Back-off pulling image "[^"]*": (?:ErrImagePull: )?')
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
TIMED_OUT = re.compile(r"time(?:d )?-?out|deadline exceeded", re.IGNORECASE)
# containerd's and Docker's words for a container that could not be started: why is in the message, and in no log.
_UNSTARTED = ("StartError", "ContainerCannotRun")
_PREPARED = (None, "ContainerCreating", "PodInitializing")  # the pod's node pulls the image or mounts volumes
LATE_SECONDS = 30  # for a node to report that a pod has ended; clocks differ
SLOW_SECONDS = 30  # a node that has the image needs less to start a pod
# What of a message is not the registry's answer: quoted names, and the status of a call on the node (Unknown, NotFound,
# PermissionDenied, ...): https://grpc.io/docs/guides/status-codes/
_CODE_OR_NAME = re.compile(r'code = \w+|"[^"]*"')


@dataclass(frozen=True)
class Pod:
    """`began`: its container runs or has ended, so there may be output. `last_words`: why its container never started,
    which no log says.

    `trouble` is an error that waiting can't mend, `stumble` a failed start that Kubernetes retries. `is_slow`: its node
    has been preparing the pod for long; the events about the pod may say why."""

    name: str
    index: int
    made: str
    began: bool
    ended: Exit | None
    last_words: bytes
    trouble: EngineError | None
    stumble: EngineError | None
    is_slow: bool
    waits_for: str | None

    @classmethod
    def read(cls, pod: Json, now: float, events: Sequence[Json] = ()) -> Pod:
        meta, status = pod["metadata"], pod.get("status", {})
        ours = [one for one in status.get("containerStatuses", []) if one.get("name") == CONTAINER]  # not a mesh's
        state: Json = ours[0].get("state", {}) if ours else {}
        waiting, ended = state.get("waiting", {}), _ended(state.get("terminated"), status)
        began, unstarted = "running" in state or "terminated" in state, _unstarted(state.get("terminated", {}))
        is_slow = not began and not ended and waiting.get("reason") in _PREPARED and _is_slow(status, now)
        waits_for = _waits_for(status, waiting) or (_prepared(pod, events) if is_slow else None)
        return cls(
            name=meta["name"],
            index=int(meta.get("annotations", {}).get(_INDEX, 0)),
            made=str(meta.get("creationTimestamp", "")),
            began=began,
            ended=ended,
            last_words=f"{unstarted}\n".encode() if unstarted else b"",
            trouble=_unpullable(pod, waiting) or _start_failed(pod, waiting, for_good=True),
            stumble=_start_failed(pod, waiting, for_good=False),
            is_slow=is_slow,
            waits_for=waits_for if ended else _lost(pod, now) or waits_for,
        )


def _is_slow(status: Json, now: float) -> bool:
    placed = condition(status, "PodScheduled", "True")
    since = seconds(placed.get("lastTransitionTime")) if placed else None
    return since is not None and now - since > SLOW_SECONDS


def _prepared(pod: Json, events: Sequence[Json]) -> str:
    """Say what the pod's node is doing, with the newest event about the pod."""
    name, node = pod["metadata"]["name"], pod["spec"].get("nodeName", "a node")
    told = [one for one in events if one.get("type") == "Warning" or one.get("reason") == "Pulling"]
    last = newest([one for one in told if one.get("involvedObject", {}).get("name") == name])
    yet = f"{node} has not started the pod {name} yet"
    if not last:
        return f"{yet}. To see why:\n    kubectl describe pod {name}"
    return f"{yet}: {_SAID_BEFORE.sub('', str(last.get('message')))}"


def newest(events: Sequence[Json]) -> Json | None:
    """Return the last event by time; one without a time counts as new."""
    return sorted(events, key=lambda one: happened(one) or float("inf"))[-1] if events else None


def happened(event: Json) -> float | None:
    """Return when an event was last seen: the API has two kinds of them, each with a field of its own."""
    return seconds(event.get("lastTimestamp") or event.get("eventTime"))


def condition(status: Json, kind: str, value: str) -> Json | None:
    found = (one for one in status.get("conditions", []) if (one.get("type"), one.get("status")) == (kind, value))
    return next(found, None)


def _lost(pod: Json, now: float) -> str | None:
    """Say that a pod's node did not end it in time: Kubernetes waits for that node, however long, and does not replace
    the pod. Deleting it by force is not enough: a Job with a podFailurePolicy wants to see it failed.

    https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/#non-graceful-node-shutdown"""
    meta, node = pod["metadata"], pod["spec"].get("nodeName")
    until = seconds(meta.get("deletionTimestamp"))  # when the pod must have ended, grace period included
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
    reason = "out of memory: the kernel killed it" if killed else _unstarted(terminated) or _evicted(status)
    return Exit(terminated.get("exitCode"), killed, reason, seconds(terminated.get("finishedAt")))


def _unstarted(terminated: Json) -> str | None:
    return terminated.get("message") if terminated.get("reason") in _UNSTARTED else None


def _evicted(status: Json) -> str | None:
    return ": ".join(str(status[key]) for key in ("reason", "message") if status.get(key)) or None


def _unpullable(pod: Json, waiting: Json) -> EngineError | None:
    if waiting.get("reason") not in _NO_IMAGE:
        return None
    message = _message(waiting)
    image = next(one["image"] for one in pod["spec"]["containers"] if one["name"] == CONTAINER)
    said = _CODE_OR_NAME.sub("", message).replace(image, "")
    if TIMED_OUT.search(said) or not _FOR_GOOD.search(said):
        return None
    secrets = [one["name"] for one in pod["spec"].get("imagePullSecrets", [])]
    return ImageNotPulled(message, image, secrets[0] if secrets else None)


def _start_failed(pod: Json, waiting: Json, for_good: bool) -> EngineError | None:
    if waiting.get("reason") not in _NO_START:
        return None
    message = _message(waiting)
    is_for_good = bool(_NEVER_STARTS.search(message)) and not TIMED_OUT.search(message)
    return PodFailed(message, pod["metadata"]["name"]) if is_for_good == for_good else None


def _message(waiting: Json) -> str:
    return _SAID_BEFORE.sub("", str(waiting.get("message") or waiting.get("reason")))


def _waits_for(status: Json, waiting: Json) -> str | None:
    if waiting.get("reason") in _NO_IMAGE:
        return f"the image could not be pulled yet: {_message(waiting)}"
    if waiting.get("reason") in _NO_START:
        return f"the container could not be started yet: {_message(waiting)}"
    if unplaced := condition(status, "PodScheduled", "False"):
        said = str(unplaced.get("message") or unplaced.get("reason"))
        return "\n".join([said, *_remedies(said)])
    return None


def _remedies(said: str) -> Iterator[str]:
    if f"Insufficient {GPU}" in said:
        yield "It starts when GPUs become free. How many each node has:"
        columns = r"custom-columns=NAME:.metadata.name,GPUS:.status.allocatable.nvidia\.com/gpu"
        yield f"    kubectl get nodes -o '{columns}'"  # quoted, as a shell would take the backslash away
        yield "If no node has that many, request fewer on more nodes: --nodes 2, and half of --gpus"
    if "cannot allocate all claims" in said:  # GPUs by DRA
        yield "It starts when GPUs become free. Which there are:"
        yield "    kubectl get resourceslices"
    if "Insufficient cpu" in said or "Insufficient memory" in said:
        yield "It starts when that becomes free. If no node has as much, request less: --cpus, --memory"
    if "persistentvolumeclaim" in said and "not found" in said:
        yield "List the claims:"
        yield "    kubectl get pvc"
    if "untolerated taint" in said:
        yield "Some nodes are reserved (taints: kubectl describe nodes). If they are for you, name a file with the"
        yield "toleration: --job-patch FILE"
    if "anti-affinity" in said:
        yield "--nodes needs that many machines: fewer nodes, each with more GPUs, may fit."


def seconds(stamp: object) -> float | None:
    """Read an RFC 3339 time of the API."""
    try:
        return datetime.fromisoformat(str(stamp)).timestamp()
    except ValueError:
        return None
