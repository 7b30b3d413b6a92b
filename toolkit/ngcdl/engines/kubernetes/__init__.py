"""Kubernetes through kubectl: what is sent is pure (manifest, pod, asked), replies are parsed (state, told)."""

from ngcdl.engines.kubernetes.engine import KubernetesEngine, connect

__all__ = ["KubernetesEngine", "connect"]
