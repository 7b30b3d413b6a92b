"""Kubernetes by way of kubectl: what is sent is pure (manifest, pod, asked), what comes back is read (state, told)."""

from ngcdl.engines.kubernetes.engine import KubernetesEngine, connect

__all__ = ["KubernetesEngine", "connect"]
