"""The local engine: this host's own Python with TensorFlow, no container.

engine      the Python that has TensorFlow, found or installed once, and a training that it runs
job         that training as a process of this host: just started, or found again
"""

from __future__ import annotations

from ngcdl.engines.local.engine import READY, LocalEngine, connect, lock_name, lock_path
from ngcdl.engines.local.job import FoundJob, LocalJob

__all__ = ["READY", "FoundJob", "LocalEngine", "LocalJob", "connect", "lock_name", "lock_path"]
