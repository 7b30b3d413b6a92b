"""CDI descriptions: do they still match the driver, its devices and its cards?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from ngcdl.doctor.chain import Finding, Link, Step, broken, ok, warning
from ngcdl.doctor.packages import CDI_GUIDE, describe_gpus
from ngcdl.doctor.sight import CdiSpec, Sight, Trouble
from ngcdl.telemetry.card import Probe

NAME = "cdi"


def judge(sight: Sight) -> Finding | None:
    engine = sight.engine
    if isinstance(engine, Trouble) or not engine.specs or not sight.has_gpu:
        return None
    stale = {spec.path: "; ".join(why) for spec in engine.specs if (why := tuple(_stale(spec, sight)))}
    if not stale:
        where = ", ".join(str(spec.path) for spec in engine.specs)
        return ok(NAME, f"{where} matches the driver" if sight.cards_answer else where)
    is_used = not isinstance(engine.way, Trouble) and engine.way.name == "cdi"
    cause = (
        "It was made for an older driver or for other cards"
        if is_used
        else "Runs here use the runtime nvidia, but docker --gpus tries CDI first from Docker 29.2 on"
    )
    say = broken if is_used else warning
    found = "; ".join(f"{path}: {why}" for path, why in stale.items())
    return say(NAME, found, cause, *_anew(stale), source=CDI_GUIDE)


def _stale(spec: CdiSpec, sight: Sight) -> Iterator[str]:
    """Yield a reason for each thing in the description that is no longer true."""
    loaded = sight.kernel.module
    probe = sight.gpus
    if loaded is None and isinstance(probe, Probe) and probe.driver:
        loaded = probe.driver.version
    if loaded is not None and spec.drivers and loaded not in spec.drivers:
        yield f"it is for driver {', '.join(sorted(spec.drivers))}, but {loaded} is loaded"
    if spec.missing:
        yield f"it names {', '.join(sorted(spec.missing))}, which {'is' if len(spec.missing) == 1 else 'are'} not there"
    if not isinstance(probe, Probe) or not probe.cards or any(card.uuid is None for card in probe.cards):
        return  # the link cards reports a card that does not answer
    uuids = {card.uuid for card in probe.cards}
    if gone := sorted(name for name in spec.devices if name.startswith("GPU-") and name not in uuids):
        yield f"it names {', '.join(gone)}, but no card has that UUID"
    described_mig = any(name.startswith("MIG-") or ":" in name for name in spec.devices)
    if described_mig and not any(card.mig for card in probe.cards):
        yield "it describes MIG devices, but MIG is off"
    if not described_mig and any(card.mig for card in probe.cards):
        yield "MIG is on, but it describes no MIG device"


def _anew(stale: Iterable[Path]) -> tuple[Step, ...]:
    """Return a step for each; files below /run belong to the service, which regenerates them when restarted."""
    commands = (
        "sudo systemctl restart nvidia-cdi-refresh"
        if str(path).startswith(("/run/", "/var/run/"))
        else describe_gpus(str(path))
        for path in stale
    )
    return tuple(Step(command) for command in dict.fromkeys(commands))


LINKS = (Link(120, NAME, judge),)
