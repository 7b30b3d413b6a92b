"""Docker from snap: what its confinement keeps from containers. Pure.

https://github.com/canonical/docker-snap#usage https://snapcraft.io/docs/home-interface
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

INSTALL = "https://docs.docker.com/engine/install/"
# ngcdl's own folders, where a snap may see them.
VISIBLE = "export XDG_STATE_HOME=$HOME/ngcdl-state XDG_CACHE_HOME=$HOME/ngcdl-cache"
SEES = "Docker from snap may see nothing but your home folder, and of that nothing that is hidden (.local, .cache)"


def out_of_sight(paths: Iterable[Path], home: Path) -> tuple[Path, ...]:
    """Return those of `paths` that the snap may not see. A container may then not start; or it starts, and what it
    writes there is lost: https://github.com/canonical/docker-snap/issues/189"""
    real = home.resolve()
    places = {path: path.resolve() for path in paths}
    return tuple(path for path, place in places.items() if not _is_seen(place, real))


def _is_seen(place: Path, home: Path) -> bool:
    if not place.is_relative_to(home):
        return False
    below = place.relative_to(home).parts
    return not (below and below[0].startswith("."))


def warning(hidden: Iterable[Path]) -> str:
    """Return what to say about the folders of a run that the snap may not see."""
    return (
        f"WARNING: {SEES}. So this run may not start, or lose what it writes: {', '.join(map(str, hidden))}. Docker's "
        f"own packages see all folders ({INSTALL}). To keep the snap, use other folders, for ngcdl's own by: {VISIBLE}"
    )
