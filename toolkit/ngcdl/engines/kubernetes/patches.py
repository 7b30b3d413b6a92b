"""A user's own patches (--job-patch), which kubectl merges into the Job: what a site needs and no option says.

Strategic merge patches, as of `kubectl patch`: https://kubernetes.io/docs/tasks/manage-kubernetes-objects/update-api-object-kubectl-patch/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ngcdl.engines.kubernetes.kubectl import Kubectl
from ngcdl.engines.kubernetes.limits import labels
from ngcdl.engines.kubernetes.pod import CONTAINER, GPU
from ngcdl.errors import BadOption, EngineError, KubectlMissing
from ngcdl.spec import is_secret

Json = Mapping[str, Any]
_POD = ("spec", "template", "spec")
_RUN = (*_POD, "containers", CONTAINER)
# By these ngcdl finds a run, follows it and records it: its own options say the rest of them.
_OURS = (
    ("apiVersion",),
    ("kind",),
    ("metadata", "name"),
    ("metadata", "namespace"),
    *(("metadata", "labels", key) for key in labels("")),
    ("spec", "completions"),
    ("spec", "parallelism"),
    ("spec", "completionMode"),
    ("spec", "ttlSecondsAfterFinished"),  # the record would go with the pods
    *(("spec", "template", "metadata", "labels", key) for key in labels("")),
    (*_RUN, "image"),
    (*_RUN, "command"),
    (*_RUN, "args"),
)


def patched(kubectl: Kubectl, job: Json, patches: Sequence[str]) -> dict[str, Any]:
    """Return the Job with the patches in it, one after the other. Raise BadOption, or KubectlMissing."""
    made = dict(job)
    for patch in patches:
        try:
            merged = kubectl.merged(made, patch)
        except KubectlMissing:
            raise
        except EngineError as error:
            said = error.message.removeprefix("Kubernetes said: ")
            raise BadOption(
                f"--job-patch: kubectl can't merge it into the Job: {said}",
                "A patch has the fields of a Job, in YAML or JSON:\n    kubectl explain job.spec.template.spec",
            ) from error
        made = _in_order(merged, made)
    _check(job, made)
    ours, theirs = _at(job, (*_POD, "tolerations")), _at(made, (*_POD, "tolerations"))
    if isinstance(ours, list) and isinstance(theirs, list):  # kubectl does not merge these lists
        theirs += [one for one in ours if one not in theirs]
    return made


def sample(gpus: int) -> dict[str, Any]:
    """Return as much of a Job as shows early what patches say."""
    resources = {"limits": {GPU: str(gpus)}} if gpus else {}
    container = {"name": CONTAINER, "image": "image", "args": [], "resources": resources}
    template = {"metadata": {"labels": labels("")}, "spec": {"containers": [container]}}
    about = {"name": "job", "namespace": "default", "labels": labels("")}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": {"template": template}}


def chooses_gpus(job: Json) -> bool:
    """Whether the pods request other GPUs than whole ones, such as MIG devices."""
    return GPU not in (_at(job, (*_RUN, "resources", "limits")) or {})


def node_labels(job: Json) -> dict[str, str]:
    """Return the labels that a node must have."""
    found = _at(job, (*_POD, "nodeSelector"))
    return dict(found) if isinstance(found, Mapping) else {}


def _check(before: Json, made: Json) -> None:
    for path in _OURS:
        if _at(made, path) != _at(before, path):
            raise BadOption(
                f"--job-patch: it changes {'.'.join(path)}, by which ngcdl starts, finds or follows the run.",
                "Leave it out of the patch.",
            )
    for kind in ("containers", "initContainers"):
        for name in _secrets(_at(made, (*_POD, kind))):
            raise BadOption(
                f"--job-patch: the value of {name} looks like a secret, and would be written into the manifest.",
                f"As a variable of its own it is kept in the run's own Secret:\n    ngcdl run ... -e {name}",
            )


def _secrets(containers: Any) -> Iterator[str]:
    """Yield the names of variables whose values look like secrets."""
    for container in _items(containers):
        for one in _items(container.get("env")):
            name = str(one.get("name"))
            if "value" in one and is_secret(name, str(one["value"])):  # not by valueFrom, as ngcdl's own
                yield name


def _items(found: Any) -> list[Json]:
    return [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []


def _at(thing: Any, path: Sequence[str]) -> Any:
    """Return what is at `path`, which names an item of a list by its name; None if there is nothing."""
    for key in path:
        if isinstance(thing, list):
            thing = next((one for one in thing if isinstance(one, Mapping) and one.get("name") == key), None)
        else:
            thing = thing.get(key) if isinstance(thing, Mapping) else None
    return thing


def _in_order(made: Any, like: Any) -> Any:
    """Return `made` with the keys in the order of `like`, for people to read: kubectl sorts them."""
    if isinstance(made, Mapping) and isinstance(like, Mapping):
        keys = [*(key for key in like if key in made), *(key for key in made if key not in like)]
        return {key: _in_order(made[key], like.get(key)) for key in keys}
    if isinstance(made, list) and isinstance(like, list):
        named = {one.get("name", number): one for number, one in enumerate(like) if isinstance(one, Mapping)}
        return [
            _in_order(one, named.get(one.get("name", number)) if isinstance(one, Mapping) else None)
            for number, one in enumerate(made)
        ]
    return made
