"""The local engine: this host's own programs, no container.

engine      a command of the user's own, or a training with the Python that has TensorFlow, found or installed once
program     where a command's program is, and how it is started: with pipes, or by leader with a terminal of its own
job         the process of either: just started, or found again
family      all processes of a run: how they are found, asked to end, and killed
"""

from __future__ import annotations

from ngcdl.engines.local.engine import READY, LocalEngine, connect, lock_name, lock_path
from ngcdl.engines.local.job import FoundJob, LocalJob

__all__ = ["READY", "FoundJob", "LocalEngine", "LocalJob", "connect", "lock_name", "lock_path"]
