"""The Docker engine: the only package that imports `docker`.

Only the SDK's low-level API is used: `images.pull` hides failed pulls, `login` trusts old passwords, `auto_remove`
loses exit codes. https://docker-py.readthedocs.io/en/stable/api.html
"""

from __future__ import annotations

from ngcdl.engines.docker.engine import DockerEngine, connect, load

__all__ = ["DockerEngine", "connect", "load"]
