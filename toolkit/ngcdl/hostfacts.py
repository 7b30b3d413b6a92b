"""What this host and its engine are, as far as an image's verdict depends on it."""

from __future__ import annotations

import platform
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ngcdl.errors import EngineError
from ngcdl.preflight.facts import BRANDS, Gpu, HostFacts
from ngcdl.preflight.names import brand_of

if TYPE_CHECKING:
    from ngcdl.engines.base import Engine
    from ngcdl.telemetry.card import Card, Probe

_CPUINFO = Path("/proc/cpuinfo")


def gather(engine: Engine | None, probe: Probe | None = None, cpuinfo: Path = _CPUINFO) -> HostFacts:
    """Give the facts of the machine that runs what `engine` starts; of this one without an engine.

    `probe` is what the driver said, if it was asked already. An engine that does not answer leaves its fields unknown;
    one on another machine, whether it answers or not, leaves that one's GPUs unknown. Raises BadOption for a
    NGCDL_GPU_WAY that can't be meant.
    """
    try:
        of_engine = _of_engine(engine) if engine else HostFacts(_architecture())
    except EngineError as error:
        of_engine = HostFacts(_architecture(), elsewhere=_silent(error) if engine and not engine.shares_files else None)
    if of_engine.elsewhere:
        return of_engine
    return _with_cards(replace(of_engine, avx=_has_avx(cpuinfo)), probe or _probe())


def without_engine(error: EngineError) -> HostFacts:
    """Give the facts of this machine, whose engine said `error`; none, where the engine is another machine's."""
    from ngcdl.engines.docker.engine import address, is_socket

    return gather(None) if is_socket(address()) else HostFacts(_architecture(), elsewhere=_silent(error))


def _silent(error: EngineError) -> str:
    return f"{error.message.rstrip('.')}, and it is another machine's, so its GPUs are not judged"


def _of_engine(engine: Engine) -> HostFacts:
    """Raises EngineError."""
    from ngcdl.engines.docker.engine import DockerEngine
    from ngcdl.engines.docker.host import EngineFacts, engine_facts

    facts = engine_facts(engine) if isinstance(engine, DockerEngine) else EngineFacts()
    return HostFacts(
        architecture=facts.architecture or _architecture(),
        free_bytes=facts.free_bytes,
        engine_version=engine.version,
        gpu_way=engine.gpu_way().name,
        elsewhere=None if engine.is_here else _elsewhere(facts.name, facts.is_desktop),
    )


def _elsewhere(name: str | None, is_desktop: bool) -> str:
    whose = "Docker Desktop's virtual machine" if is_desktop else "another machine's"
    return f"the engine is {whose}{f' ({name})' if name else ''}, so its GPUs are not judged"


def _architecture() -> str:
    from ngcdl.engines.docker.host import architecture

    return architecture(platform.machine().lower()) or "amd64"


def _probe() -> Probe:
    from ngcdl.telemetry import gpu

    return gpu.probe()


def _with_cards(host: HostFacts, probe: Probe) -> HostFacts:
    return replace(
        host,
        driver=probe.driver.version if probe.driver else None,
        gpus=tuple(_gpu(card) for card in probe.cards),
        gpu_trouble=probe.error.message if probe.error else None,
    )


def _brand(card: Card) -> str | None:
    """Say it in NVML's words; by the card's name where its number is newer than the table."""
    known = BRANDS.get(card.brand) if card.brand is not None else None
    return known or (brand_of(card.name) if card.name else None)


def _gpu(card: Card) -> Gpu:
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
    """Look among the flags that Linux names for x86; other processors have no such line, and none of this."""
    try:
        text = cpuinfo.read_text(errors="replace")
    except OSError:
        return None
    flags = re.search(r"^flags\s*:(.*)$", text, re.MULTILINE)
    return "avx" in flags[1].split() if flags else None
