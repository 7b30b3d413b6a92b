"""What the preflight says of a run's image before it is pulled: for this host's cards, or for a cluster's nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ngcdl import choice
from ngcdl.asked import Asked, Show
from ngcdl.engines.base import Cluster, Engine
from ngcdl.errors import NgcdlError
from ngcdl.settings import Settings
from ngcdl.spec import ImageRef, Placement
from ngcdl.telemetry.card import Probe

if TYPE_CHECKING:
    from ngcdl.imagefacts import Found
    from ngcdl.preflight.facts import Gpu, HostFacts


def _named(uuids: Collection[str], cards: Sequence[Gpu]) -> Iterator[Gpu]:
    """Give the cards that are meant: of a MIG device its card, or each with MIG on where the name tells none."""
    slices = [uuid for uuid in uuids if uuid.startswith("MIG-") or ":" in uuid]
    for card in cards:
        if card.uuid in uuids or any(_is_of(one, card) for one in slices):
            yield card


def _is_of(device: str, card: Gpu) -> bool:
    """MIG-GPU-<uuid>/1/0 and 0:1 name their card, MIG-<uuid> does not.

    https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
    """
    index, colon, _ = device.partition(":")
    if colon:
        return index == str(card.index)
    return f"{card.uuid}/" in device if device.startswith("MIG-GPU-") else bool(card.mig)


@dataclass
class Verdicts:
    """What the preflight says of an image that was asked for, on the whole host and on the cards that were chosen.

    Host and image are looked at once: a registry that is silent is waited for once.
    """

    asked: Asked
    settings: Settings
    _seen: tuple[HostFacts, Found | NgcdlError] | None = None
    _found: Found | NgcdlError | None = None

    def unfit(self, engine: Engine, image: ImageRef, probe: Probe) -> tuple[str, ...]:
        """Give the UUIDs of the cards that `image` can't use; () where it can use none, which tell() explains."""
        from ngcdl import judge

        host, found = self._look(engine, image, probe)
        useless = tuple(card.gpu.uuid for card in judge.cards(found, host) if card.verdict == "no" and card.gpu.uuid)
        return useless if len(useless) < len(probe.cards) else ()

    def tell(self, picked: choice.Choice, show: Show) -> None:
        """Say what there is to say of the image on this host. Raises ImageUnfit, and what no pull can mend."""
        if picked.image is None:
            return
        from ngcdl import judge

        host, found = self._look(picked.engine, picked.image, picked.probe)
        if picked.uuids:
            host = replace(host, gpus=tuple(_named(picked.uuids, host.gpus)))
        on_cpu = picked.gpus.kind == "none" or self.asked.device == "cpu"
        told = judge.before(
            picked.image, host, self.settings, found, self.asked.command, on_cpu=on_cpu, force=self.asked.force,
            on_each=bool(self.asked.workload) and picked.gpus.demanded,  # a replica on each
        )  # fmt: skip
        for line in told:
            show.say(line)

    def placement(self, picked: choice.Choice, show: Show, dry: bool) -> Placement | None:
        """Give a placement on nodes that can run the image, and say what there is to say. Raises ImageUnfit.

        With `dry` the registry is not asked, the cluster is."""
        place, cluster = self.asked.placement or Placement(), picked.engine
        if picked.image is None or not isinstance(cluster, Cluster):
            return self.asked.placement
        from ngcdl import nodes

        wants_none = picked.gpus.kind == "none"
        on_cpu = wants_none or self.asked.device == "cpu"
        told = nodes.ask(cluster, place, 0 if wants_none else picked.gpus.count or 1)
        found = self.found(picked.image, told.architecture, dry)
        place, lines = nodes.before(
            picked.image, found, told, cluster, place, self.settings,
            command=self.asked.command, on_cpu=on_cpu, force=self.asked.force,
        )  # fmt: skip
        for line in lines:
            show.say(line)
        return place

    def found(self, image: ImageRef, architecture: str = "amd64", dry: bool = False) -> Found | NgcdlError:
        """Give what the registry, which is asked once, says of an image for a cluster's nodes, or why it says nothing.

        With `dry` it is not asked."""
        if self._found is None:
            from ngcdl import judge
            from ngcdl.preflight.facts import HostFacts

            self._found = judge.look(image, HostFacts(architecture), self.settings, None, offline=dry)
        return self._found

    def _look(self, engine: Engine, image: ImageRef, probe: Probe) -> tuple[HostFacts, Found | NgcdlError]:
        if self._seen is None:
            from ngcdl import hostfacts, judge

            host = hostfacts.gather(engine, probe)
            self._seen = host, judge.look(image, host, self.settings, engine, anew=self.asked.always_pull)
        return self._seen
