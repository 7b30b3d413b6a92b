"""The verdict on a run's image before the image is pulled: for this host's cards, or for a cluster's nodes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ngcdl import choice, hostfacts
from ngcdl.engines.base import Cluster, Engine
from ngcdl.errors import NgcdlError
from ngcdl.planning.asked import Asked
from ngcdl.planning.show import Show
from ngcdl.preflight.facts import Gpu, HostFacts
from ngcdl.settings import Settings
from ngcdl.spec import ImageRef, Placement
from ngcdl.telemetry.card import Card, Probe, is_mig, whole_cards

if TYPE_CHECKING:
    from ngcdl.judging.imagefacts import Found


def _named(uuids: Collection[str], cards: Sequence[Gpu], seen: Sequence[Card]) -> Iterator[Gpu]:
    """Yield the cards that `uuids` mean. A MIG device means its card; if neither the driver's list (`seen`) nor the
    device's name identifies that card, every card with MIG on."""
    meant = whole_cards(uuids, seen)
    slices = [uuid for uuid in meant if is_mig(uuid) or ":" in uuid]
    for card in cards:
        if card.uuid in meant or any(_is_of(one, card) for one in slices):
            yield card


def _is_of(device: str, card: Gpu) -> bool:
    """Return whether `device` may be part of `card`: MIG-GPU-<uuid>/1/0 and 0:1 name their card, MIG-<uuid> does not.

    https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
    """
    index, colon, _ = device.partition(":")
    if colon:
        return index == str(card.index)
    return f"{card.uuid}/" in device if device.startswith("MIG-GPU-") else bool(card.mig)


@dataclass
class Verdicts:
    """What the preflight says about the requested image, on the whole host and on the chosen cards.

    Host and image are inspected only once, so a silent registry costs only one wait.
    """

    asked: Asked
    settings: Settings
    _seen: tuple[HostFacts, Found | NgcdlError] | None = None
    _found: Found | NgcdlError | None = None

    def unfit(self, engine: Engine, image: ImageRef, probe: Probe) -> tuple[str, ...]:
        """Return the UUIDs of the cards that can't run `image`; () if no card can, which tell() explains, or if
        nothing is known about the image."""
        from ngcdl.preflight.verdict import judge_host

        host, found = self._look(engine, image, probe)
        if isinstance(found, NgcdlError):
            return ()
        cards = judge_host(found.facts, host).cards
        useless = tuple(card.gpu.uuid for card in cards if card.verdict == "no" and card.gpu.uuid)
        return useless if len(useless) < len(host.gpus) else ()

    def tell(self, picked: choice.Choice, show: Show) -> None:
        """Show the warnings about the image on this host. Raise ImageUnfit, or an error that no pull can fix."""
        if picked.image is None:
            return
        from ngcdl.judging import judge

        host, found = self._look(picked.engine, picked.image, picked.probe)
        if picked.uuids:
            host = replace(host, gpus=tuple(_named(picked.uuids, host.gpus, picked.probe.cards)))
        on_cpu = picked.gpus.kind == "none" or self.asked.device == "cpu"
        told = judge.cautions(
            picked.image, host, self.settings, found, self.asked.command, on_cpu=on_cpu, force=self.asked.force,
            on_each=bool(self.asked.workload) and picked.gpus.demanded,  # a replica on each card
        )  # fmt: skip
        for line in told:
            show.say(line)

    def placement(self, picked: choice.Choice, show: Show, dry: bool) -> Placement | None:
        """Return a placement on nodes that can run the image, and show the warnings. Raise ImageUnfit.

        With `dry` the cluster is asked, but the registry is not."""
        place, cluster = self.asked.placement or Placement(), picked.engine
        if picked.image is None or not isinstance(cluster, Cluster):
            return self.asked.placement
        from ngcdl.judging import nodes

        wants_none = picked.gpus.kind == "none"
        on_cpu = wants_none or self.asked.device == "cpu"
        told = nodes.ask(cluster, place, 0 if wants_none else picked.gpus.count or 1)
        found = self.found(picked.image, told.architecture, dry)
        place, lines = nodes.keep_off_unfit_nodes(
            picked.image, found, told, cluster, place, self.settings,
            command=self.asked.command, on_cpu=on_cpu, force=self.asked.force,
        )  # fmt: skip
        for line in lines:
            show.say(line)
        return place

    def found(self, image: ImageRef, architecture: str = "amd64", dry: bool = False) -> Found | NgcdlError:
        """Return what the registry says about an image for a cluster's nodes, or the error why nothing is known.

        The registry is asked once; with `dry`, not at all."""
        if self._found is None:
            from ngcdl.judging import judge

            self._found = judge.facts_of(image, HostFacts(architecture), self.settings, None, offline=dry)
        return self._found

    def _look(self, engine: Engine, image: ImageRef, probe: Probe) -> tuple[HostFacts, Found | NgcdlError]:
        if self._seen is None:
            from ngcdl.judging import judge

            host = hostfacts.gather(engine, probe)
            self._seen = host, judge.facts_of(image, host, self.settings, engine, anew=self.asked.always_pull)
        return self._seen
