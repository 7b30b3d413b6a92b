"""Where a run happens: an engine turns a RunSpec into a Job. Each is a package here and a row of spec.KINDS."""

from __future__ import annotations

from importlib import import_module

from ngcdl.engines.base import Engine
from ngcdl.errors import BadOption
from ngcdl.spec import KINDS


def connect(name: str) -> Engine:
    """Connect to the engine `name` and return it. Raise BadOption, or the engine's own error if it is unavailable."""
    if name not in KINDS:
        raise BadOption(f"--engine {name}: the engines are {', '.join(['auto', *KINDS])}.")
    engine: Engine = import_module(f"{__name__}.{name}").connect()  # not imported above: --help loads no engine
    return engine
