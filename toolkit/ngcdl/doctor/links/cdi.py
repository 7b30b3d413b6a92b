"""CDI descriptions: whether they still fit the driver, its devices and its cards."""

from __future__ import annotations

from collections.abc import Iterator

from ngcdl.doctor.chain import Finding, Link, Step, broken, ok, warning
from ngcdl.doctor.sight import CdiSpec, Engine, Sight, Trouble
from ngcdl.telemetry.card import Probe

NAME = "cdi"
_URL = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/cdi-support.html"


def judge(sight: Sight) -> Finding | None:
    engine = sight.engine
    if isinstance(engine, Trouble) or not engine.specs or not sight.has_gpu:
        return None
    where = ", ".join(str(spec.path) for spec in engine.specs)
    stale = [why for spec in engine.specs for why in _stale(spec, sight)]
    if not stale:
        return ok(NAME, f"{where} fits the driver" if sight.cards_answer else where)
    is_used = not isinstance(engine.way, Trouble) and engine.way.name == "cdi"
    cause = (
        "It was made for an older driver or other cards"
        if is_used
        else "Runs here take the runtime nvidia, but docker --gpus takes CDI first from Docker 29.2 on"
    )
    say = broken if is_used else warning
    return say(NAME, f"{where}: {'; '.join(stale)}", cause, *_anew(engine), source=_URL)


def _stale(spec: CdiSpec, sight: Sight) -> Iterator[str]:
    """Give a reason for each thing in the description that is no longer so."""
    loaded = sight.kernel.module
    probe = sight.gpus
    if loaded is None and isinstance(probe, Probe) and probe.driver:
        loaded = probe.driver.version
    if loaded is not None and spec.drivers and loaded not in spec.drivers:
        yield f"it is for driver {', '.join(sorted(spec.drivers))}, and {loaded} is loaded"
    if spec.missing:
        yield f"it names {', '.join(sorted(spec.missing))}, which {'is' if len(spec.missing) == 1 else 'are'} not there"
    if not isinstance(probe, Probe) or not probe.cards or any(card.uuid is None for card in probe.cards):
        return  # a card that does not answer is the link cards' to tell
    uuids = {card.uuid for card in probe.cards}
    if gone := sorted(name for name in spec.devices if name.startswith("GPU-") and name not in uuids):
        yield f"it names {', '.join(gone)}, and no card is called so"
    described_mig = any(name.startswith("MIG-") or ":" in name for name in spec.devices)
    if described_mig and not any(card.mig for card in probe.cards):
        yield "it describes MIG devices, and MIG is off"
    if not described_mig and any(card.mig for card in probe.cards):
        yield "MIG is on, and it describes no MIG device"


def _anew(engine: Engine) -> tuple[Step, ...]:
    by_service = [spec for spec in engine.specs if str(spec.path).startswith(("/var/run/cdi", "/run/cdi"))]
    if by_service and len(by_service) == len(engine.specs):
        return (Step("sudo systemctl restart nvidia-cdi-refresh"),)
    path = next(str(spec.path) for spec in engine.specs if spec not in by_service)
    return (Step(f"sudo nvidia-ctk cdi generate --output={path}"),)


LINKS = (Link(120, NAME, judge),)
