"""The objects that an order becomes: a ConfigMap, a headless Service, an Indexed Job. Pure.

https://kubernetes.io/docs/concepts/workloads/controllers/job/ (Indexed, podFailurePolicy; Kubernetes 1.29 and later).
"""

from __future__ import annotations

import base64
import json
from typing import Any

from ngcdl.engines.kubernetes.bundle import KEY, SCRIPT, packed, script
from ngcdl.engines.kubernetes.limits import check, labels, name
from ngcdl.engines.kubernetes.pod import CONTAINER, MASTER_PORT, pod
from ngcdl.engines.values import Order
from ngcdl.spec import inside, is_secret


def objects(order: Order, runtime: str | None = None) -> list[dict[str, Any]]:
    """Return the objects to create, except the Secret. `runtime`: the RuntimeClass of the pods, None for the nodes'
    default. Raise BadOption."""
    check(order.spec)
    services = [_service(order)] if order.spec.placed.nodes > 1 else []
    return [_config_map(order), *services, _job(order, runtime)]


def secret(order: Order) -> dict[str, Any] | None:
    """Return the Secret for the variables that look like secrets, None if there are none. Never print or store it."""
    hidden = {key: value for key, value in order.spec.environment if is_secret(key, value)}
    if not hidden:
        return None
    return {"apiVersion": "v1", "kind": "Secret", "metadata": _metadata(order), "stringData": hidden}


def pull_secret(called: str, host: str, username: str, password: str) -> dict[str, Any]:
    """Return the Secret with which nodes pull from `host`: send it, never show or keep it.

    https://kubernetes.io/docs/tasks/configure-pod-container/pull-image-private-registry/"""
    auth = base64.b64encode(f"{username}:{password}".encode()).decode()
    config = json.dumps({"auths": {host: {"username": username, "password": password, "auth": auth}}})
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": called},
        "type": "kubernetes.io/dockerconfigjson",
        "stringData": {".dockerconfigjson": config},
    }


def _metadata(order: Order) -> dict[str, Any]:
    place = order.spec.placed
    where = {"namespace": place.namespace} if place.namespace else {}
    return {"name": name(order.run_id, place.nodes), **where, "labels": labels(order.run_id)}


def _undisturbed(order: Order) -> dict[str, Any]:
    """Return the pods' labels, and what keeps others from them. A service mesh's proxy would outlive the training, so
    the Job would never complete, and one on the node would carry what NCCL sends; an autoscaler that empties a node
    would end the training, to begin it elsewhere.

    https://istio.io/latest/docs/reference/config/labels/ (older ones read the annotation),
    https://istio.io/latest/docs/ambient/usage/add-workloads/,
    https://linkerd.io/2/features/proxy-injection/, https://karpenter.sh/docs/reference/annotations/,
    https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md"""
    istio = {"sidecar.istio.io/inject": "false"}
    own = labels(order.run_id) | istio | {"istio.io/dataplane-mode": "none"}
    stays = {"karpenter.sh/do-not-disrupt": "true", "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    return {"labels": own, "annotations": istio | {"linkerd.io/inject": "disabled"} | stays}


def _config_map(order: Order) -> dict[str, Any]:
    found = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(order), "data": {SCRIPT: script()}}
    trainer = [mount for mount in order.spec.mounts if mount.container == inside.TRAINER]
    return {**found, "binaryData": {KEY: packed(trainer[0].host)}} if trainer else found


def _service(order: Order) -> dict[str, Any]:
    """Return the Service that gives each pod a name before it is ready: pods become ready by finding each other."""
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels(order.run_id)}
    ports = [{"name": "master", "port": MASTER_PORT}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(order), "spec": {**spec, "ports": ports}}


def _job(order: Order, runtime: str | None) -> dict[str, Any]:
    nodes = order.spec.placed.nodes
    rules: list[dict[str, Any]] = [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        # argv was not understood, or the program does not exist: retrying changes nothing
        {"action": "FailJob", "onExitCodes": _exited(2, 126, 127)},
    ]
    if nodes > 1 and order.spec.workload:  # the other nodes of a training end with the one that is told to
        rules.append({"action": "Ignore", "onExitCodes": _exited(143)})
    spec = {
        "completionMode": "Indexed",
        "completions": nodes,
        "parallelism": nodes,
        # A pod that fails brings down the others, and each counts as a failure. A single pod has failed on its own, so
        # it is not retried.
        "backoffLimit": 3 * nodes if nodes > 1 else 0,
        "podFailurePolicy": {"rules": rules},
        "template": {"metadata": _undisturbed(order), "spec": pod(order, runtime)},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(order), "spec": spec}


def _exited(*codes: int) -> dict[str, Any]:
    return {"containerName": CONTAINER, "operator": "In", "values": list(codes)}
