"""Do NVIDIA's toolkit, runc or the Docker engine have versions with known security holes?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ngcdl.doctor.chain import Finding, Link, ok, unchecked, warning
from ngcdl.doctor.packages import own_engine, upgrade
from ngcdl.doctor.sight import Sight, Trouble
from ngcdl.engines.docker import podman

if TYPE_CHECKING:
    from ngcdl.catalog.holes import Hole

# component -> its package: NVIDIA's own, and those of Docker's own repository, where containerd.io includes runc
_PACKAGES = {"nvidia-container-toolkit": "nvidia-container-toolkit", "runc": "containerd.io", "docker": "docker-ce"}


def toolkit(sight: Sight) -> Finding | None:
    if sight.programs.toolkit is None:
        is_there = sight.programs.names & {"nvidia-ctk", "nvidia-container-cli"}
        return unchecked("toolkit", "it does not report its version") if is_there else None
    return _judged(sight, "toolkit", "nvidia-container-toolkit", sight.programs.toolkit)


def runc(sight: Sight) -> Finding | None:
    if isinstance(sight.engine, Trouble) or sight.engine.facts.runc_version is None:
        return None
    # Docker's own packages sometimes call runc 1.1.12 by the version 1.1.12-0-g51d5e94.
    return _judged(sight, "runc", "runc", re.sub(r"-0-g[0-9a-f]+$", "", sight.engine.facts.runc_version))


def docker(sight: Sight) -> Finding | None:
    if isinstance(sight.engine, Trouble) or (version := sight.engine.facts.version) is None:
        return None
    if podman.is_named(version):  # Podman has other holes
        return None
    closed = _BY_AUTHORIZATION if sight.engine.facts.authorization_plugins == () else frozenset()
    return _judged(sight, "docker", "docker", version, closed)


def _judged(sight: Sight, name: str, component: str, version: str, closed: frozenset[str] = frozenset()) -> Finding:
    """Judge a version. `closed`: holes of that version that this host's settings close."""
    from ngcdl.catalog import holes

    found = holes.known(component, version)
    if found is None:
        return unchecked(name, f"can't tell whether known security holes are closed in a distribution's own {version}")
    found = tuple(hole for hole in found if hole.cve not in closed)
    if not found:
        return ok(name, version)
    listed = ", ".join(_told(hole) for hole in found[:4]) + (", ..." if len(found) > 4 else "")
    worst = found[0]
    cause = f"Known security holes as of {worst.read}: {listed}. The worst: {worst.notes}"
    return warning(name, version, cause, *upgrade(sight.programs, _package(sight, component)), source=worst.source)


def _package(sight: Sight, component: str) -> str:
    own = own_engine(sight.programs, sight.kernel.distribution)
    return {"docker": own, "runc": "runc"}.get(component, _PACKAGES[component]) if own else _PACKAGES[component]


def _told(hole: Hole) -> str:
    return f"{hole.cve} (fixed in {' / '.join(hole.fixed_in)}{', from memory' if hole.recalled else ''})"


# These are open only if the engine uses an authorization plugin: see the rows' notes.
_BY_AUTHORIZATION = frozenset({"CVE-2026-34040"})

LINKS = (Link(140, "toolkit", toolkit), Link(142, "runc", runc), Link(144, "docker", docker))
