"""The objects that an order becomes: a ConfigMap, a headless Service, an Indexed Job. Pure.

https://kubernetes.io/docs/concepts/workloads/controllers/job/ (Indexed, podFailurePolicy; Kubernetes 1.29 and later).
"""

from __future__ import annotations

import base64
import json
from typing import Any

from ngcdl.engines.base import Order
from ngcdl.engines.kubernetes.asked import TRAINER, check, is_secret, labels, name, placed
from ngcdl.engines.kubernetes.bundle import KEY, SCRIPT, packed, script
from ngcdl.engines.kubernetes.pod import CONTAINER, MASTER_PORT, pod


def objects(order: Order) -> list[dict[str, Any]]:
    """Give what is created, but for the values of secrets. Raises BadOption."""
    check(order.spec)
    found = [_config_map(order)]
    if placed(order.spec).nodes > 1:
        found.append(_service(order))
    return [*found, _job(order)]


def secret(order: Order) -> dict[str, Any] | None:
    """Give the Secret with the variables that look like one; None where there is none. Never printed, never stored."""
    hidden = {key: value for key, value in order.spec.environment if is_secret(key, value)}
    if not hidden:
        return None
    return {"apiVersion": "v1", "kind": "Secret", "metadata": _metadata(order), "stringData": hidden}


def pull_secret(called: str, host: str, username: str, password: str) -> dict[str, Any]:
    """Give the Secret by which nodes pull from `host`: send it, never show or keep it.

    https://kubernetes.io/docs/tasks/configure-pod-container/pull-image-private-registry/"""
    auth = base64.b64encode(f"{username}:{password}".encode()).decode()
    config = json.dumps({"auths": {host: {"username": username, "password": password, "auth": auth}}})
    about = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": called},
        "type": "kubernetes.io/dockerconfigjson",
    }
    return {**about, "stringData": {".dockerconfigjson": config}}


def _metadata(order: Order) -> dict[str, Any]:
    place = placed(order.spec)
    where = {"namespace": place.namespace} if place.namespace else {}
    return {"name": name(order.run_id, place.nodes), **where, "labels": labels(order.run_id)}


def _beside_no_mesh(order: Order) -> dict[str, Any]:
    """Name the pods, and keep a service mesh's proxy out: it goes on when the training has ended, and so does the Job.

    https://istio.io/latest/docs/reference/config/labels/ (older ones look at the annotation),
    https://linkerd.io/2/features/proxy-injection/"""
    istio = {"sidecar.istio.io/inject": "false"}
    return {"labels": labels(order.run_id) | istio, "annotations": istio | {"linkerd.io/inject": "disabled"}}


def _config_map(order: Order) -> dict[str, Any]:
    found = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": _metadata(order), "data": {SCRIPT: script()}}
    trainer = [mount for mount in order.spec.mounts if mount.container == TRAINER]
    return {**found, "binaryData": {KEY: packed(trainer[0].host)}} if trainer else found


def _service(order: Order) -> dict[str, Any]:
    """A name for each pod, before it is ready: they look for each other to become it."""
    spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels(order.run_id)}
    ports = [{"name": "master", "port": MASTER_PORT}]
    return {"apiVersion": "v1", "kind": "Service", "metadata": _metadata(order), "spec": {**spec, "ports": ports}}


def _job(order: Order) -> dict[str, Any]:
    nodes = placed(order.spec).nodes
    spec = {
        "completionMode": "Indexed",
        "completions": nodes,
        "parallelism": nodes,
        # One that fails takes the others along, and each of them counts. Alone it failed of itself: no second try.
        "backoffLimit": 3 * nodes if nodes > 1 else 0,
        "podFailurePolicy": {
            "rules": [
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                # argv was not understood, or there is no such program: it never will be otherwise
                {
                    "action": "FailJob",
                    "onExitCodes": {"containerName": CONTAINER, "operator": "In", "values": [2, 126, 127]},
                },
            ]
        },
        "template": {"metadata": _beside_no_mesh(order), "spec": pod(order)},
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": _metadata(order), "spec": spec}
