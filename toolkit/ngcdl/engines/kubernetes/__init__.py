"""Kubernetes through kubectl: what is sent is pure (manifest, pod, limits), replies are parsed (state, pod_output)."""

from ngcdl.engines.kubernetes.engine import KubernetesEngine, connect

__all__ = ["KubernetesEngine", "connect"]
