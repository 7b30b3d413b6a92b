"""CDI descriptions: do they still match the driver, its devices and its cards?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import combinations
from pathlib import Path
from shlex import quote

from ngcdl.doctor import injected
from ngcdl.doctor.chain import Finding, Link, Step, broken, ok, warning
from ngcdl.doctor.packages import CDI_GUIDE, describe_gpus
from ngcdl.doctor.sight import UVM, CdiSpec, Sight, Trouble
from ngcdl.telemetry.card import Probe

NAME = "cdi"
# CDI_GUIDE: "Automatic CDI Specification Generation"
_SERVICE_SINCE, _RESTART = (1, 18), "sudo systemctl restart nvidia-cdi-refresh"
_CONFLICTS = "https://github.com/cncf-tags/container-device-interface/blob/main/pkg/cdi/cache.go"


def judge(sight: Sight) -> Finding | None:
    engine = sight.engine
    if isinstance(engine, Trouble) or not engine.specs or not sight.has_gpu:
        return None
    specs = [spec for place, spec in enumerate(engine.specs) if not _is_shadowed(spec, engine.specs[place + 1 :])]
    stale = {spec.path: "; ".join(why) for spec in specs if (why := tuple(_stale(spec, sight)))}
    config = sight.programs.toolkit_config
    is_used = injected.by_cdi(engine, sight) or (config is not None and config.mode == "cdi")
    say = broken if is_used else warning
    if doubled := [pair for pair in combinations(engine.specs, 2) if _conflict(*pair)]:
        return _doubled(say, doubled)
    if not stale:
        where = ", ".join(str(spec.path) for spec in engine.specs)
        return ok(NAME, f"{where} matches the driver" if sight.cards else where)
    cause = (
        "It was made for an older driver or for other cards, before all devices were there, or before a reboot"
        if is_used
        else "Runs here do not use it, but docker --gpus tries CDI first from Docker 29.2 on"
    )
    found = "; ".join(f"{path}: {why}" for path, why in stale.items())
    return say(NAME, found, cause, *anew(stale, sight), source=CDI_GUIDE)


def _is_shadowed(spec: CdiSpec, later: Iterable[CdiSpec]) -> bool:
    """Return whether each device is described in a later folder, too. The later description counts: _CONFLICTS."""
    others = (one.devices for one in later if one.path.parent != spec.path.parent)
    return bool(spec.devices) and spec.devices <= frozenset().union(*others)


def _conflict(one: CdiSpec, other: CdiSpec) -> frozenset[str]:
    """Return the devices that both of two files in one folder describe."""
    return one.devices & other.devices if one.path.parent == other.path.parent else frozenset()


def _doubled(say: Callable[..., Finding], pairs: Iterable[tuple[CdiSpec, CdiSpec]]) -> Finding:
    found, steps = [], []
    for one, other in pairs:
        found.append(f"{one.path} and {other.path} both describe {', '.join(sorted(_conflict(one, other)))}")
        steps.append(Step(f"sudo rm {quote(str(other.path))}    # or {quote(str(one.path))}", by_hand=True))
    cause = "CDI hands out no device that two files in one folder describe: 'unresolvable CDI devices'. Remove one"
    return say(NAME, "; ".join(found), cause, *steps, source=_CONFLICTS)


def _stale(spec: CdiSpec, sight: Sight) -> Iterator[str]:
    """Yield a sentence for each part of the description that is no longer true."""
    loaded = sight.kernel.module
    probe = sight.gpus
    if loaded is None and isinstance(probe, Probe) and probe.driver:
        loaded = probe.driver.version
    if loaded is not None and spec.drivers and loaded not in spec.drivers:
        yield f"it is for driver {', '.join(sorted(spec.drivers))}, but {loaded} is loaded"
    if spec.missing:
        yield f"it names {', '.join(sorted(spec.missing))}, which {'is' if len(spec.missing) == 1 else 'are'} not there"
    if spec.lacks_uvm and any(node.path == UVM for node in sight.kernel.nodes):
        yield f"it lacks {UVM}, without which CUDA fails"
    if spec.renumbered:
        # The toolkit writes numbers from 1.19.0 on, and unified memory's changes with each load of its module:
        # https://github.com/NVIDIA/nvidia-container-toolkit/blob/v1.19.0/internal/edits/device.go and .../issues/1934
        yield f"it has an outdated device number for {', '.join(sorted(spec.renumbered))}"
    if not isinstance(probe, Probe) or not probe.cards or any(card.uuid is None for card in probe.cards):
        return  # the link cards reports a card that does not answer
    uuids = {card.uuid for card in probe.cards}
    if gone := sorted(name for name in spec.devices if name.startswith("GPU-") and name not in uuids):
        yield f"it names {', '.join(gone)}, but no card has that UUID"
    described_mig = any(name.startswith("MIG-") or ":" in name for name in spec.devices)
    if described_mig and not any(card.mig for card in probe.cards):
        yield "it describes MIG devices, but MIG is off"
    if not described_mig and any(card.mig and card.mig_devices for card in probe.cards):
        yield "there are MIG devices, but it describes none"


def anew(stale: Iterable[Path], sight: Sight) -> tuple[Step, ...]:
    """Return the steps that regenerate these descriptions."""
    commands = (_RESTART if _is_service_s(path, sight) else describe_gpus(str(path)) for path in stale)
    return tuple(Step(command) for command in dict.fromkeys(commands))


def _is_service_s(path: Path, sight: Sight) -> bool:
    """Return whether a service of the toolkit writes this file: from 1.18 on, with systemd, and no other file."""
    programs = sight.programs
    has_service = injected.at_least(programs.toolkit, _SERVICE_SINCE) is not False and "systemctl" in programs.names
    return has_service and str(path) in ("/run/cdi/nvidia.yaml", "/var/run/cdi/nvidia.yaml")


LINKS = (Link(120, NAME, judge),)
