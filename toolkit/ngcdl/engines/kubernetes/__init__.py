"""Kubernetes through kubectl: what is sent is pure (manifest, pod, limits) until kubectl merges a user's patches in;
replies are parsed (state, pod_output)."""

from ngcdl.engines.kubernetes.engine import KubernetesEngine, connect

__all__ = ["KubernetesEngine", "connect"]
