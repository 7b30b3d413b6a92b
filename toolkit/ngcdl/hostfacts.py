"""The facts about this host and its engine that an image's verdict depends on, and those that a run's record has."""

from __future__ import annotations

import platform
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ngcdl.errors import EngineError, LibraryMissing
from ngcdl.preflight.facts import BRANDS, Gpu, HostFacts
from ngcdl.preflight.names import brand_of
from ngcdl.record import Machine

if TYPE_CHECKING:
    from ngcdl.engines.base import Engine
    from ngcdl.telemetry.card import Card, Probe

_CPUINFO = Path("/proc/cpuinfo")
CONTAINER_MARKS = ("/.dockerenv", "/run/.containerenv")  # Docker and Podman put them into their containers


def gather(engine: Engine | None, probe: Probe | None = None, cpuinfo: Path = _CPUINFO) -> HostFacts:
    """Return the facts about the machine that runs what `engine` starts; about this one without an engine.

    `probe` is the driver's answer, if the driver was queried already. If the engine does not answer, its fields are
    unknown. If the engine is on another machine, answering or not, that machine's GPUs are unknown. Raise BadOption for
    an invalid NGCDL_GPU_WAY.
    """
    from ngcdl.telemetry import driver

    try:
        of_engine = _of_engine(engine) if engine else HostFacts(architecture())
    except EngineError as error:
        of_engine = HostFacts(architecture(), elsewhere=_silent(error) if engine and not engine.shares_files else None)
    if of_engine.elsewhere:
        return of_engine
    if probe is None:
        from ngcdl.telemetry import gpu as nvml

        probe = nvml.probe()
    if is_unseen_jetson(probe):
        return replace(of_engine, elsewhere="this Jetson's GPU can't be seen without NVML, so it is not judged")
    return replace(
        of_engine,
        avx=_has_avx(cpuinfo),
        driver=probe.driver.version if probe.driver else None,
        gpus=tuple(gpu(card) for card in probe.usable),
        gpu_trouble=_trouble(probe),
        is_wsl=driver.DXG.exists(),
    )


def has_our_cards(engine: Engine) -> bool:
    """Return whether the engine's containers get this host's cards: it runs here or, under WSL, it is Docker Desktop,
    whose containers have the same cards and the same driver, which is Windows' own. Raise EngineError."""
    from ngcdl.telemetry import driver

    return engine.is_here or (engine.shares_files and driver.DXG.exists() and engine.facts().is_desktop)


def is_unseen_jetson(probe: Probe) -> bool:
    """Return whether `probe` shows no card because this is a Jetson without NVML, which has a GPU all the same."""
    from ngcdl.telemetry import driver

    return isinstance(probe.error, LibraryMissing) and driver.is_jetson()


def _trouble(probe: Probe) -> str | None:
    if probe.error:
        return probe.error.message
    return probe.why_none if probe.cards and not probe.usable else None


def without_engine(error: EngineError) -> HostFacts:
    """Return the facts about this machine, whose engine raised `error`; if that engine's address is on another machine,
    only this machine's architecture."""
    from ngcdl.engines.docker.engine import address, is_socket

    return gather(None) if is_socket(address()) else HostFacts(architecture(), elsewhere=_silent(error))


def _silent(error: EngineError) -> str:
    return f"{error.message.rstrip('.')}, and it is on another machine, so its GPUs are not judged"


def machine(engine: Engine, probe: Probe) -> Machine:
    """Return the machine that runs what `engine` starts, for a run's record; if that is another machine, only what its
    engine reports about it. `probe` is the answer of this machine's driver. Raise EngineError."""
    from ngcdl.telemetry import host

    is_known = probe.absent or probe.error is None
    here = host.machine(probe.driver.version if probe.driver else None, probe.cards if is_known else None)
    if engine.is_here:
        return here
    facts = engine.facts()
    told = Machine(facts.name, cores=facts.cores, memory_bytes=facts.memory_bytes, kernel=facts.kernel)
    # Docker Desktop's engine under WSL, and the host's engine as seen from a dev container, report this machine under
    # another host name; all else is equal.
    shares_kernel = facts.is_desktop or any(Path(mark).exists() for mark in CONTAINER_MARKS)
    is_same = shares_kernel and told == Machine(facts.name, None, here.cores, here.memory_bytes, here.kernel)
    return here if is_same else told


def _of_engine(engine: Engine) -> HostFacts:
    """Return what the engine reports. Raise EngineError."""
    facts = engine.facts()
    return HostFacts(
        architecture=facts.architecture or architecture(),
        free_bytes=facts.free_bytes,
        engine_version=engine.version,
        gpu_way=engine.gpu_way().name,
        elsewhere=None if has_our_cards(engine) else _elsewhere(facts.name, facts.is_desktop),
    )


def _elsewhere(name: str | None, is_desktop: bool) -> str:
    whose = "in Docker Desktop's virtual machine" if is_desktop else "on another machine"
    return f"the engine is {whose}{f' ({name})' if name else ''}, so its GPUs are not judged"


def architecture() -> str:
    """Return this machine's processor architecture by the name that images use: amd64, arm64."""
    from ngcdl.engines import values

    return values.architecture(platform.machine()) or "amd64"


def _brand(card: Card) -> str | None:
    """Return the brand that NVML reports for the card; derive it from the card's name if BRANDS lacks NVML's number."""
    known = BRANDS.get(card.brand) if card.brand is not None else None
    return known or (brand_of(card.name) if card.name else None)


def gpu(card: Card) -> Gpu:
    """Return the card as verdicts see it."""
    return Gpu(
        capability=card.compute_capability,
        name=card.name,
        brand=_brand(card),
        index=card.index,
        uuid=card.uuid,
        memory_bytes=card.memory_total_bytes,
        mig=card.mig,
    )


def _has_avx(cpuinfo: Path) -> bool | None:
    try:
        flags = cpu_flags(cpuinfo.read_text(errors="replace"))
    except OSError:
        return None
    return None if flags is None else "avx" in flags


def cpu_flags(cpuinfo: str) -> frozenset[str] | None:
    """Return the x86 flags in the text of /proc/cpuinfo; None if it has none: other processors have no AVX either."""
    found = re.search(r"^flags\s*:(.*)$", cpuinfo, re.MULTILINE)
    return frozenset(found[1].split()) if found else None
