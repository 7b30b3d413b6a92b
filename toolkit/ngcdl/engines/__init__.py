"""Where a run happens: an engine turns a RunSpec into a Job. Each is a package here and a row of spec.KINDS."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from ngcdl import waiting
from ngcdl.engines.base import Engine
from ngcdl.engines.values import EngineFacts, Held, LayerStore, Order, ShowPull
from ngcdl.errors import BadOption
from ngcdl.spec import KINDS, USUAL, ImageRef, Placement, kind_of

_begun: dict[str, waiting.Later[Engine]] = {}


def connect(name: str) -> Engine:
    """Connect to the engine `name` and return it. Raise BadOption, or the engine's own error if it is unavailable."""
    if begun := _begun.pop(name, None):
        return begun.result()
    return _connected(name)


def _connected(name: str) -> Engine:
    if name not in KINDS:
        raise BadOption(f"--engine {name}: the engines are {', '.join(['auto', *KINDS])}.")
    engine: Engine = import_module(f"{__name__}.{name}").connect()  # not imported above: --help loads no engine
    return engine


def begin_to_connect() -> None:
    """Load the usual engine, then connect to it in a thread, and ask what it is; the next `connect` returns what came
    of it. Meanwhile there is other work: Docker takes up to 50 ms for its answers."""
    import_module(f"{__name__}.{USUAL}").load()

    def begin() -> Engine:
        engine = _connected(USUAL)
        _ = engine.version  # an engine that never says it would be waited for twice otherwise
        return engine

    _begun[USUAL] = waiting.Later(begin)


def await_begun() -> None:
    """Wait for the threads of `begin_to_connect`: a process is forked only without any other thread."""
    for one in _begun.values():
        one.wait()


# -- methods that several engines share -----------------------------------------------------------------------------


class OfKind:
    """Defaults for an Engine: what its Kind says, no facts, no placement, nothing to wait for."""

    name: str
    waits_for: str | None = None

    @property
    def has_containers(self) -> bool:
        return kind_of(self.name).has_containers

    @property
    def is_cluster(self) -> bool:
        return kind_of(self.name).is_cluster

    @property
    def shares_files(self) -> bool:
        return kind_of(self.name).shares_files

    def facts(self) -> EngineFacts:
        return EngineFacts()

    def placed(self, placement: Placement | None) -> Placement | None:
        del placement
        return None

    def fits(self, order: Order) -> str | None:
        del order
        return None


class NoImages:
    """The image methods of an Engine that keeps no images on this host: it is never asked to pull one."""

    name: str

    def has(self, image: ImageRef) -> Held | None:
        del image
        return None

    def config(self, image: ImageRef) -> Mapping[str, Any] | None:
        del image
        return None

    def pull(self, image: ImageRef, show: ShowPull, auth: Mapping[str, str] | None = None) -> str:
        del show, auth
        raise BadOption(f"The engine {self.name} does not pull to this host.", f"    ngcdl pull {image}")

    def layer_store(self) -> LayerStore:
        return LayerStore(f"the engine {self.name} keeps no images on this host")

    def untag(self, image: ImageRef) -> None:
        del image

    def target(self, image: ImageRef, digest: str) -> str:
        return image.pinned(digest)
