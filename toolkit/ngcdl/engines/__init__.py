"""Where a run happens. An engine turns a RunSpec into a Job; each is one entry in the lazy table below."""

from __future__ import annotations

from importlib import import_module

from ngcdl.engines.base import Engine
from ngcdl.errors import BadOption

# name -> module with `connect() -> Engine`; imported only when asked for, so that --help loads none of them.
ENGINES = {
    "docker": "ngcdl.engines.docker",
    "local": "ngcdl.engines.local",
    "kubernetes": "ngcdl.engines.kubernetes",
    "slurm": "ngcdl.engines.slurm",
}


def connect(name: str) -> Engine:
    """Give the engine called `name`, connected. Raises BadOption, or the engine's own error where it can't be had."""
    if name not in ENGINES:
        raise BadOption(f"--engine {name}: there is {', '.join(['auto', *ENGINES])}.")
    engine: Engine = import_module(ENGINES[name]).connect()
    return engine
