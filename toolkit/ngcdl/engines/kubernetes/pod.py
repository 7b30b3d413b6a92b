"""The pod of a job: the image and what is brought into it, its GPUs, its volumes, its place among the others. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ngcdl.engines.kubernetes.bundle import SCRIPT
from ngcdl.engines.kubernetes.limits import labels, name, workdir
from ngcdl.engines.values import Order
from ngcdl.spec import RunSpec, inside, is_secret

GPU = "nvidia.com/gpu"  # https://github.com/NVIDIA/k8s-device-plugin
CONTAINER = "run"
HOST = "NGCDL_HOST"  # the node's name
MASTER_PORT = 29500
GRACE_SECONDS = 120  # a training finishes its step, saves a checkpoint and prints its record
BROUGHT = "/ngcdl-brought"
KEPT = "/ngcdl-claim"  # where the claim is mounted that keeps the run's folder
RUNS = "ngcdl-runs"  # the folder on the claim in which each run has a folder of its own


def pod(order: Order, runtime: str | None) -> dict[str, Any]:
    spec, place = order.spec, order.spec.placed
    made: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        # A Windows node can pull no image of Linux: https://kubernetes.io/docs/concepts/windows/user-guide/
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "securityContext": _user(spec),
        "containers": [_container(order)],
        "volumes": _volumes(order),
    }
    if place.pull_secret:
        made["imagePullSecrets"] = [{"name": place.pull_secret}]
    if runtime:
        made["runtimeClassName"] = runtime
    if spec.gpus.per_node:
        made["tolerations"] = [{"key": GPU, "operator": "Exists", "effect": "NoSchedule"}]
    if place.nodes > 1:  # --nodes 2 means two machines, not two pods on one
        made["subdomain"] = name(order.run_id, place.nodes)
        apart = {"labelSelector": {"matchLabels": labels(order.run_id)}, "topologyKey": "kubernetes.io/hostname"}
        made["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    if place.avoid:
        made.setdefault("affinity", {})["nodeAffinity"] = _without(place.avoid)
    return made


def _without(avoid: Sequence[str]) -> dict[str, Any]:
    """Accept any node without these labels, each KEY=VALUE."""
    values: dict[str, list[str]] = {}
    for label in avoid:
        key, _, value = label.partition("=")
        values.setdefault(key, []).append(value)
    rules = [{"key": key, "operator": "NotIn", "values": those} for key, those in values.items()]
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": rules}]}}


def _user(spec: RunSpec) -> dict[str, Any]:
    context: dict[str, Any] = {"seccompProfile": {"type": "RuntimeDefault"}}
    if not spec.user:
        return context
    user, _, group = spec.user.partition(":")
    # fsGroup gives the claim's files to the group; OnRootMismatch: only if the claim's root is not the group's yet, and
    # not all files at every start
    return {
        **context,
        "runAsNonRoot": user != "0",
        "runAsUser": int(user),
        "runAsGroup": int(group),
        "fsGroup": int(group),
        "fsGroupChangePolicy": "OnRootMismatch",
    }


def _container(order: Order) -> dict[str, Any]:
    spec = order.spec
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": order.target,
        # args, not command: the image's own ENTRYPOINT enables NVIDIA's compatibility libraries
        "args": ["sh", f"{BROUGHT}/{SCRIPT}", *_words(spec)],
        **({"workingDir": where} if (where := workdir(spec)) else {}),
        "env": _environment(order),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            **({"capabilities": {"drop": ["ALL"]}} if spec.user else {}),
        },
        "volumeMounts": _volume_mounts(order),
    }
    if resources := _resources(spec):
        container["resources"] = resources
    return container


def _resources(spec: RunSpec) -> dict[str, Any]:
    """Return requests that equal the limits; GPUs, which can't be shared, have a limit alone."""
    asked = {"cpu": spec.cpu_limit, "memory": spec.memory_bytes}
    own = {what: str(amount) for what, amount in asked.items() if amount is not None}
    limits = {**({GPU: str(count)} if (count := spec.gpus.per_node) else {}), **own}
    return {**({"limits": limits} if limits else {}), **({"requests": own} if own else {})}


def _words(spec: RunSpec) -> list[str]:
    words = [_literal(word) for word in spec.command]
    return [*words, "--samples", f"$({HOST})"] if spec.workload else words


def _literal(text: str) -> str:
    """Escape `text` so that Kubernetes expands no variables in it: $$ stands for $, and $(NAME) would be replaced.

    https://kubernetes.io/docs/reference/kubernetes-api/workload-resources/pod-v1/ (args, env.value)"""
    return text.replace("$", "$$")


def _environment(order: Order) -> list[dict[str, Any]]:
    spec, nodes = order.spec, order.spec.placed.nodes
    called = name(order.run_id, nodes)
    found: list[dict[str, Any]] = [{"name": HOST, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]
    plain = {"NGCDL_TRAINING": "yes"} if spec.workload else {"NGCDL_RUN": inside.RUN}
    if claim := spec.placed.data_pvc:
        plain |= {"NGCDL_CLAIM": claim, "NGCDL_KEPT": f"{KEPT}/{RUNS}/{order.run_id}"}
        if spec.workload and spec.workload.resume:
            plain["NGCDL_BEFORE"] = f"{KEPT}/{RUNS}/{spec.workload.resume}"
    plain |= {"HOME": inside.HOME, "USER": "ngcdl"} if spec.user else {}
    if not spec.gpus.per_node:  # NGC images set it to all, which is enough if nvidia is the node's default runtime
        plain["NVIDIA_VISIBLE_DEVICES"] = "void"
    if nodes > 1:
        plain |= {"NGCDL_NODES": str(nodes), "MASTER_ADDR": f"{called}-0.{called}", "MASTER_PORT": str(MASTER_PORT)}
        plain |= {"NCCL_DEBUG": "WARN"} if spec.gpus.per_node else {}
    asked = {key: value for key, value in spec.environment if not is_secret(key, value)}
    found += [{"name": key, "value": _literal(value)} for key, value in (plain | asked).items()]
    hidden = [key for key, value in spec.environment if is_secret(key, value)]
    return found + [
        {"name": key, "valueFrom": {"secretKeyRef": {"name": called, "key": key}}} for key in dict.fromkeys(hidden)
    ]


def _volumes(order: Order) -> list[dict[str, Any]]:
    spec = order.spec
    found: list[dict[str, Any]] = [
        {"name": "brought", "configMap": {"name": name(order.run_id, spec.placed.nodes)}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": str(spec.shm_bytes)}},
    ]
    return found + [
        {"name": volume, "persistentVolumeClaim": {"claimName": claim}} for claim, volume in _claims(spec).items()
    ]


def _volume_mounts(order: Order) -> list[dict[str, Any]]:
    spec = order.spec
    found: list[dict[str, Any]] = [
        {"name": "brought", "mountPath": BROUGHT, "readOnly": True},
        {"name": "scratch", "mountPath": inside.ROOT},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    claims, kept = _claims(spec), spec.placed.data_pvc
    if kept:
        found.append({"name": claims[kept], "mountPath": KEPT})  # pod.sh links the folders that are for this run
    return found + [
        {"name": claims[mount.host], "mountPath": mount.container, "readOnly": not mount.writable}
        for mount in spec.mounts
        if mount.is_volume
    ]


def _claims(spec: RunSpec) -> dict[str, str]:
    """Map each claim to the name of its one volume: two volumes of the same claim would keep a pod from starting, on
    some clusters forever: https://github.com/kubernetes/kubernetes/issues/82526"""
    named = [spec.placed.data_pvc, *(mount.host for mount in spec.mounts if mount.is_volume)]
    return {claim: f"claim-{number}" for number, claim in enumerate(dict.fromkeys(filter(None, named)))}
