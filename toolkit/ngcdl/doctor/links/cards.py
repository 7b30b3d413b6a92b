"""The cards: are any lost or faulty, or older than what NVIDIA's images are made for?"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from ngcdl import hostfacts
from ngcdl.catalog.rows import comparable, known
from ngcdl.doctor.chain import Finding, Link, Step, broken, not_seen, ok, unchecked, warning
from ngcdl.doctor.links.driver import undriven
from ngcdl.doctor.sight import Kernel, Sight, Trouble
from ngcdl.engines.values import architecture
from ngcdl.preflight.facts import HostFacts
from ngcdl.spec import NVCR, ImageRef
from ngcdl.telemetry.card import PROHIBITED, Card, Probe, is_prohibited

NAME = "cards"
_MATRIX = "https://docs.nvidia.com/deeplearning/frameworks/support-matrix/index.html"
_NODE = re.compile(r"/dev/nvidia\d+")


def judge(sight: Sight) -> Finding | None:
    if not sight.has_gpu:
        return None
    if isinstance(sight.gpus, Trouble):
        return not_seen(NAME, sight.gpus, "driver")
    if not (cards := sight.cards):
        return unchecked(NAME, "needs driver")
    sick = [card for card in cards if card.error]
    if sick:
        return _sick(sick, len(cards))
    found, missing = _listed(cards), _missing(sight.kernel, len(cards))
    withheld = min(missing, _withheld(sight.kernel))
    if withheld:
        keeps = f"its control group withholds {'it' if withheld == 1 else 'them'}"
        found += f"; {withheld} more not given to this job ({keeps})"
    if missing > withheld:
        found += f"; the PCI bus has {missing - withheld} more"
        cause = "The driver does not drive them: they are too old for it, faulty, or claimed by another driver"
        cause += undriven(sight.kernel)
        return warning(NAME, found, cause, Step("lspci -nnk -d 10de:", by_hand=True))
    if barred := [card for card in cards if is_prohibited(card)]:
        return _barred(barred, found)
    return _floors(found, sight, sight.gpus)


def _missing(kernel: Kernel, shown: int) -> int:
    """Count the cards on the bus that the driver does not show; 0 in a container, which may be given fewer cards."""
    return 0 if kernel.in_container else max(0, len(kernel.pci or ()) - shown)


def _withheld(kernel: Kernel) -> int:
    """Count the driven cards whose device nodes are missing here, or may not be opened by this process.

    Slurm limits a job to its own cards this way: ConstrainDevices in https://slurm.schedmd.com/cgroup.conf.html. If
    this process may open a driven card that the driver does not show, that card is faulty and not counted.
    """
    own = sum(node.can_open for node in kernel.nodes if _NODE.fullmatch(node.path))
    return max(0, len(kernel.driven) - own)


def _sick(sick: Sequence[Card], count: int) -> Finding:
    names = "; ".join(f"GPU {card.index}: {card.error}" for card in sick)
    dead = [card for card in sick if card.uuid is None or "lost" in (card.error or "")]
    steps = [Step("sudo dmesg | grep -i xid", by_hand=True)]
    # Without -i it resets all cards, and no program may be using them: https://docs.nvidia.com/deploy/nvidia-smi/
    resets = [card.index for card in sick if "reset" in (card.error or "") and card.index is not None]
    steps = [*(Step(f"sudo nvidia-smi --gpu-reset -i {index}", by_hand=True) for index in resets), *steps]
    if dead:
        cause = f"{len(dead)} of {count} cards do not answer. If this recurs after a reboot, check power and heat"
        return broken(NAME, names, cause, *steps, Step("sudo reboot", by_hand=True))
    return warning(NAME, names, "The driver does not report everything about these cards", *steps)


def _barred(barred: Sequence[Card], found: str) -> Finding:
    which = " and ".join(f"GPU {card.index}" for card in barred)
    cause = (
        f"No program may compute on {which}: the compute mode is {PROHIBITED}, on purpose perhaps (a display's card)"
    )
    steps = [Step(f"sudo nvidia-smi -i {card.index} -c 0", by_hand=True) for card in barred if card.index is not None]
    return warning(NAME, found, cause, *steps)


def _floors(found: str, sight: Sight, probe: Probe) -> Finding:
    """Compare the cards with what the newest images need, and name the newest images that run on older cards."""
    from ngcdl.catalog import releases

    since = {one.min_capability: one.release for one in releases.releases() if one.min_capability}  # the oldest of each
    floor = max(since, key=comparable)
    old = [card for card in probe.cards if (own := known(card.compute_capability)) and own < comparable(floor)]
    if not old:
        return ok(NAME, found)
    which = " and ".join(f"GPU {card.index} ({card.compute_capability})" for card in old)
    cause = (
        f"Images from {since[floor]} on need compute capability {floor}, so they don't run on {which}. "
        f"{_left_for(old, sight, probe)}"
    )
    return warning(NAME, found, cause, Step("ngcdl images", by_hand=True), source=_MATRIX)


def _left_for(old: Sequence[Card], sight: Sight, probe: Probe) -> str:
    """Name the newest tag of each framework that runs on the oldest of these cards, according to the catalogue."""
    from ngcdl.catalog import releases
    from ngcdl.preflight.meant import newest

    card = min(old, key=lambda one: comparable(one.compute_capability or "0"))
    machine = architecture(sight.kernel.machine) or "amd64"
    host = HostFacts(machine, probe.driver.version if probe.driver else None, (hostfacts.gpu(card),))
    frameworks = [ImageRef(NVCR, f"nvidia/{name}") for name in releases.frameworks()]
    found = [f"{one.framework}:{one.tag}" for each in frameworks if (one := newest(each, host))]
    if not found:
        return "No image in ngcdl's catalogue does"
    return f"The newest that {'do' if len(found) > 1 else 'does'}, says ngcdl's catalogue: {' and '.join(found)}"


def _listed(cards: Sequence[Card]) -> str:
    names = Counter(
        f"{card.name or 'a card without a name'} ({card.compute_capability or 'capability unknown'})" for card in cards
    )
    return ", ".join(f"{count} × {name}" if count > 1 else name for name, count in names.items())


LINKS = (Link(20, NAME, judge),)
