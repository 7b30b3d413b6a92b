"""Kubernetes, reached through kubectl, fails or refuses."""

from __future__ import annotations

from ngcdl.errors.engine import EngineError, EngineLost


class ClusterError(EngineError):
    """Kubernetes, or kubectl, which talks to it."""


class KubectlMissing(ClusterError):
    def __init__(self, program: str, why: str) -> None:
        super().__init__(
            f"{program} can't be run: {why}.",
            "Install it, and set it up for your cluster: https://kubernetes.io/docs/tasks/tools/\n    kubectl get pods",
        )


class ClusterUnreachable(ClusterError):
    def __init__(self, said: str) -> None:
        super().__init__(
            f"No Kubernetes cluster answers: {said}",
            "Which clusters kubectl knows, which one is chosen, and whether it answers:\n"
            "    kubectl config get-contexts\n    kubectl config use-context NAME\n    kubectl get pods",
        )


class ClusterForbidden(ClusterError):
    def __init__(self, said: str) -> None:
        super().__init__(
            f"Kubernetes said: {said}",
            "Who you are there, and what you may do:\n    kubectl auth whoami\n    kubectl auth can-i --list\n"
            "ngcdl needs jobs (create, get, list, delete), configmaps and services (create, list, delete), pods (get, "
            "list, delete) and pods/log (get); secrets (create, list, delete) for variables that look like secrets; "
            "events (list) to give reasons, nodes (list) to judge the image, and runtimeclasses (list) to name "
            "NVIDIA's. ngcdl login --kubernetes needs secrets (get, create, update).",
        )


class ClusterHangs(ClusterError):
    def __init__(self, what: str, seconds: float | None) -> None:
        when = f" within {seconds:g} s" if seconds is not None else " in time"
        super().__init__(f"Kubernetes gave no answer{when} when kubectl tried to {what}.", "    kubectl get pods")


class ClusterRefused(ClusterError):
    def __init__(self, said: str, hint: str = "") -> None:
        super().__init__(f"Kubernetes said: {said}", hint)


class ImageNotPulled(ClusterError):
    def __init__(self, said: str, image: str, pull_secret: str | None) -> None:
        named = f"the secret {pull_secret} exists and its key may pull this image" if pull_secret else None
        super().__init__(
            f"A node can't pull {image}: {said}",
            f"Check that {named or 'the tag is right'}:\n    kubectl describe secret {pull_secret}"
            if named
            else "Does the repository have that tag? If it needs a key, make a pull secret of yours and name it:\n"
            "    ngcdl login --kubernetes ngc\n    ngcdl run ... --pull-secret ngc",
        )


class TrainerTooLarge(ClusterError):
    def __init__(self, path: object, largest: str) -> None:
        super().__init__(
            f"A pod gets the trainer in a ConfigMap, which holds 1 MiB; packed, {path} is larger.",
            "Every Python file in it is packed, even a virtual environment's: move what is not part of the trainer "
            f"elsewhere. The largest of them:\n    {largest}",
        )


class PodFailed(ClusterError):
    def __init__(self, said: str, pod: str) -> None:
        super().__init__(f"A pod can't start: {said}", f"    kubectl describe pod {pod}")


class ClusterLost(EngineLost):
    """Contact with the cluster is lost. The job goes on without ngcdl, whose next command looks for it again."""

    def __init__(self, doing: str, *, said: str = "") -> None:
        """`said`: the last answer or error before contact was lost."""
        EngineError.__init__(
            self,
            f"The Kubernetes cluster went away while ngcdl {doing}{': ' if said else ''}{said}",
            "It may go on there:\n    ngcdl show last",
        )
        self.doing = doing
