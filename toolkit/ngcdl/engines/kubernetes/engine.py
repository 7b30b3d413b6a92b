"""The Kubernetes engine: a run becomes an Indexed Job; its folder here is updated from the pods' logs."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ngcdl import settings
from ngcdl.engines import NoImages, OfKind, yaml
from ngcdl.engines.base import Job
from ngcdl.engines.kubernetes import nodes, patches
from ngcdl.engines.kubernetes.bundle import KEY
from ngcdl.engines.kubernetes.job import KubernetesJob
from ngcdl.engines.kubernetes.kubectl import Kubectl
from ngcdl.engines.kubernetes.limits import name, without_callers_folder
from ngcdl.engines.kubernetes.manifest import objects, pull_secret, secret
from ngcdl.engines.values import GpuWay, Node, Order, ShowPull, Started
from ngcdl.errors import (
    BadOption,
    ClusterError,
    ClusterHangs,
    ClusterLost,
    ClusterRefused,
    ClusterUnreachable,
    KubectlMissing,
    StateNotWritable,
)
from ngcdl.folder import LOG, MANIFEST
from ngcdl.spec import Placement, RunSpec
from ngcdl.spec.inside import WORK

_NOBODY = "1000:1000"
# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")
_LEFT_OUT = f"""\
# Left out {{folder!r}}, its working directory at {WORK}: a pod sees no folder of another machine.
# To mount a claim instead: ngcdl run ... --engine kubernetes -v CLAIM:{WORK} -- COMMAND
"""


class KubernetesEngine(OfKind, NoImages):
    name = "kubernetes"
    is_here = False

    def __init__(self, kubectl: Kubectl, runs: Path) -> None:
        self._as_given, self._runs = kubectl, runs

    @cached_property
    def _kubectl(self) -> Kubectl:
        return self._as_given.pinned()

    @cached_property
    def _seen(self) -> nodes.Seen:
        """What the cluster shows of its nodes, queried once: for judging the nodes, then for writing the manifest. That
        can be written without kubectl, too."""
        try:
            return nodes.seen(self._kubectl)
        except KubectlMissing as error:
            return nodes.Seen((), False, error)

    @property
    def version(self) -> str:
        said = self._kubectl.json("version")
        return str(said.get("serverVersion", {}).get("gitVersion", "unknown"))

    @property
    def identity(self) -> str | None:
        return self._kubectl.context

    def gpu_way(self) -> GpuWay:
        return GpuWay("device-plugin", "each pod requests them")

    def placed(self, placement: Placement | None) -> Placement | None:
        place = placement or Placement()
        if place.patches:
            patches.patched(self._kubectl, patches.sample(1), place.patches)  # raises while nothing has begun
        if place.namespace:
            return place
        with contextlib.suppress(ClusterError):  # a manifest can be written without a cluster
            own = self._kubectl.text("config", "view", "--minify", "-o", "jsonpath={..namespace}").strip()
            return replace(place, namespace=own or "default")
        return place

    def nodes(self, placement: Placement, gpus: int) -> tuple[Node, ...]:
        return self._able(placement, gpus) or ()

    def _able(self, placement: Placement, gpus: int) -> tuple[Node, ...] | None:
        """Return the nodes that could take a pod; None if a patch has it request GPUs that nodes are not asked for."""
        if not placement.patches:
            return nodes.with_gpus(self._seen, gpus)
        job = patches.patched(self._kubectl, patches.sample(gpus), placement.patches)
        if gpus and patches.chooses_gpus(job):
            return None
        return nodes.with_gpus(self._seen, gpus, patches.node_labels(job))

    def kept_off(self, placement: Placement, bad: Sequence[Node], good: Sequence[Node]) -> Placement | None:
        return replace(placement, avoid=nodes.labels_of(bad, good))

    def caller(self) -> str | None:
        """Return the caller's uid:gid, which may own files on a shared claim; for root another one, as strict
        namespaces forbid root."""
        return f"{os.getuid()}:{os.getgid()}" if os.getuid() else _NOBODY

    def without_image(self, own: RunSpec | None, has_gpu: bool, show: ShowPull | None) -> str:
        del own, has_gpu, show
        raise ClusterRefused("a pod runs an image, and none was named.", "    ngcdl run IMAGE --engine kubernetes ...")

    def request(self, order: Order) -> dict[str, Any]:
        """Return the manifest, without secrets: the Secret for variables that look like one is created separately."""
        spec, folder = without_callers_folder(order.spec)
        note = _LEFT_OUT.format(folder=folder) if folder else ""
        text = yaml.documents(self._objects(replace(order, spec=spec)))
        return {"submit": ["kubectl", "create", "-f", MANIFEST], "script": note + text}

    def command_line(self, order: Order) -> str:
        """Return the manifest for people to read, without the packed trainer."""
        text = yaml.documents(self._objects(order))
        return re.sub(
            rf"^(  {KEY}: )\S+$", r"\1(the packed trainer; ngcdl export k8s has it)", text, flags=re.MULTILINE
        )

    def fits(self, order: Order) -> str | None:
        """Return at most a caution: a cluster may grow, and not everybody may list its nodes."""
        wanted, each = order.spec.placed.nodes, order.spec.gpus.per_node
        try:
            able = self._able(order.spec.placed, each)
        except ClusterError:
            return None
        there = len({node.name for node in able or ()})
        if able is None or there >= wanted:
            return None
        with_gpus = f" with {each} GPU{'' if each == 1 else 's'}" if each else ""
        # From Kubernetes 1.36 on a DRA driver may serve these requests, and then no node has a count of its GPUs:
        # https://www.kubernetes.dev/resources/keps/5004/
        by_dra = " or hands GPUs out by DRA (kubectl get deviceclasses)" if each and not there else ""
        return f"of {wanted} nodes{with_gpus} the cluster has {there}; unless it grows{by_dra}, the run can't begin."

    def start(self, order: Order) -> Job:
        place = order.spec.placed
        kubectl = replace(self._kubectl, namespace=place.namespace)
        job = KubernetesJob(kubectl, name(order.run_id, place.nodes), order.run_id, order.folder)
        items = self._objects(order)
        path = order.folder / MANIFEST
        with StateNotWritable.at(path):
            path.write_text(yaml.documents(items), encoding="utf-8")
            (order.folder / LOG).touch()  # `ngcdl logs -f` may begin before the first pod does
        hidden = secret(order)
        given = {"apiVersion": "v1", "kind": "List", "items": [*([hidden] if hidden else []), *items]}
        try:
            kubectl.text("create", "-f", "-", given=given)
        except ClusterError as error:
            try:
                job.remove()  # what was created before the refusal
            except ClusterError:
                if isinstance(error, ClusterHangs | ClusterUnreachable):  # the Job may exist
                    raise ClusterLost("was creating the Job", said=error.message) from error
            raise
        accepted = f"Kubernetes accepted it as the Job {job.identity.partition(':')[2]}"
        job.started = Started(news=(accepted,), keeps_log=True)
        return job

    def keep_pull_secret(self, called: str, namespace: str | None, host: str, username: str, password: str) -> str:
        """Create the pull secret `called`, or replace the key in an existing one, and return its namespace.

        If that fails, an existing Secret is unchanged. Raise ClusterError, and BadOption if the name is invalid or
        belongs to a Secret of another type."""
        check_secret_name(called)
        place = self.placed(Placement(namespace=namespace)) or Placement()
        where = place.namespace or "default"
        kubectl = replace(self._kubectl, namespace=place.namespace)
        made = pull_secret(called, host, username, password)
        kind = kubectl.text("get", "secret", called, "--ignore-not-found", "-o", "jsonpath={.type}").strip()
        if kind not in ("", made["type"]):
            raise BadOption(
                f"--kubernetes {called}: a Secret {called} already exists in {where}, of the type {kind}; it is left "
                "unchanged.",
                "Choose another name, or another --namespace.",
            )
        # not `apply`, which would also keep the key in an annotation
        kubectl.text("replace" if kind else "create", "-f", "-", given=made)
        return where

    def _objects(self, order: Order) -> list[dict[str, Any]]:
        runtime = nodes.RUNTIME if order.spec.gpus.per_node and self._seen.has_runtime else None
        made = objects(order, runtime)
        if own := order.spec.placed.patches:
            made = [patches.patched(self._kubectl, one, own) if one["kind"] == "Job" else one for one in made]
        return made

    def find(self, run_id: str) -> Job | None:
        folder = self._runs / run_id
        try:
            kept = (folder / MANIFEST).read_text(encoding="utf-8")
        except OSError:
            return None
        where = re.search(r"^  namespace: (\S+)$", kept, re.MULTILINE)
        namespace = where and (json.loads(where[1]) if where[1].startswith('"') else where[1])  # "2024-ml", "on"
        called = re.search(r"^kind: Job\nmetadata:\n  name: (\S+)$", kept, re.MULTILINE)
        if not called:
            return None
        kubectl = replace(self._kubectl, namespace=namespace)
        return KubernetesJob(kubectl, called[1], run_id, folder)


def check_secret_name(called: str) -> None:
    """Raise BadOption if no Kubernetes object can have that name, for example one that kubectl reads as an option."""
    if not _SUBDOMAIN.fullmatch(called):
        raise BadOption(
            f"--kubernetes {called[:60]}: a Secret's name has at most 253 lower-case letters, digits, - and ., and "
            "begins and ends with a letter or digit.",
            "    ngcdl login --kubernetes ngc",
        )


def connect() -> KubernetesEngine:
    return KubernetesEngine(Kubectl(), settings.load().runs)
