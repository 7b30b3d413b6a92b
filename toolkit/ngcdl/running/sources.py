"""What a run computes on, found or fetched: its data set, and its image or program."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from ngcdl import choice, trainings
from ngcdl.errors import BadOption, ImageGone, NgcdlError, UnknownRepository, UnknownTag
from ngcdl.judging.verdicts import Verdicts
from ngcdl.planning import plan
from ngcdl.planning.asked import Asked
from ngcdl.planning.show import Show
from ngcdl.pulling import fetch
from ngcdl.settings import Settings
from ngcdl.spec import ImageRef, Placement, RunSpec, Workload

if TYPE_CHECKING:
    from ngcdl import dataset
    from ngcdl.judging.imagefacts import Found


def data(workload: Workload, settings: Settings, show: Show, dry: bool) -> dataset.Dataset:
    from ngcdl import dataset

    known = trainings.bundled(workload.name)
    if not known.parameters:
        return dataset.NO_DATA
    stands_for = known.data
    if known.data_folder == "pictures" and workload.data not in ("auto", "synthetic"):
        return dataset.pictures(workload.data, known.classes, workload.evaluate)
    if stands_for != "cifar10":
        return dataset.Dataset("synthetic", None, None, f"{workload.name} makes its data up, in place of {stands_for}")
    if dry and workload.data == "auto" and not os.environ.get(dataset.FOLDER):
        if there := dataset.cached(settings.cache):
            return there
        show.say("CIFAR-10 is not here yet: this plan has --data synthetic; ngcdl run downloads it first.")
        return dataset.Dataset("synthetic", None, None, "nothing is cached yet")
    return dataset.prepare(workload.data, cache=settings.cache, say=show.say, progress=show.download)


def data_of_claim(workload: Workload, placement: Placement | None) -> dataset.Dataset:
    """Return the data that pods see: a volume claim, by name, or synthetic data. They see no folder of this host."""
    from ngcdl import dataset

    known, claim = trainings.bundled(workload.name), placement.data_pvc if placement else None
    if workload.data not in ("auto", "synthetic"):
        raise BadOption(
            f"--data {workload.data}: a pod can't see this machine's folders.",
            "Copy it to the top folder of a volume claim:\n    ngcdl run ... --data auto --data-pvc CLAIM",
        )
    if not known.parameters:
        return dataset.NO_DATA
    if known.data_folder and claim and workload.data == "auto":
        return dataset.Dataset("pictures" if known.data_folder == "pictures" else "cifar10", Path(claim), None, None)
    is_wanted = claim or workload.data == "synthetic"
    why = "as requested" if is_wanted else f"in place of {known.data}: no claim was named (--data-pvc)"
    return dataset.Dataset("synthetic", None, None, f"made up, {why}")


def target(picked: choice.Choice, asked: Asked, show: Show, verdicts: Verdicts) -> tuple[str | None, str | None, str]:
    """Return the image's digest, its id if it has no digest, and the name to start it by. Fetch the image if the engine
    lacks it.

    A cluster's nodes fetch the image themselves, by digest if the registry can be asked for the digest."""
    if picked.image is None:
        return None, None, picked.engine.without_image(_own(asked), picked.has_gpu, show.pull)
    if picked.engine.is_cluster:
        pinned = _pinned(picked.image, verdicts.found(picked.image), show)
        return pinned, None, picked.engine.target(picked.image, pinned) if pinned else str(picked.image)
    held = None if asked.always_pull and not picked.image.id else picked.engine.has(picked.image)
    if held and held.digest is None:
        return None, held.id, held.id
    if held is None and picked.image.id:
        raise ImageGone(picked.image.typable)
    digest = held.digest if held else None
    if digest is None:
        try:
            digest = fetch.image(picked.engine, picked.image, show.pull, show.say)
        finally:
            show.quiet()
    return digest, None, picked.engine.target(picked.image, digest)


def _pinned(image: ImageRef, found: Found | NgcdlError, show: Show) -> str | None:
    """Return the digest that `image` has now, None if unknown. Raise UnknownTag or UnknownRepository."""
    if isinstance(found, UnknownTag | UnknownRepository):
        raise found
    if isinstance(found, NgcdlError):
        show.say(f"{found.message} The nodes get the tag, and each resolves it itself.")
        return image.digest
    digest = found.facts.digest or image.digest
    if digest is None:
        why = f" ({found.trouble.message.rstrip('.')})" if found.trouble else ""
        show.say(f"The registry can't be asked for the digest of {image}{why}: the nodes get the tag.")
    return digest


def planned_target(picked: choice.Choice, asked: Asked) -> str:
    """Name what a plan that fetches nothing would start: the image, a command's program, or the local Python."""
    if picked.image:
        return str(picked.image)
    return picked.engine.without_image(_own(asked), picked.has_gpu, None)


def _own(asked: Asked) -> RunSpec | None:
    """Return the command with the options typed beside it: -e PATH=... decides where its program is looked for."""
    return plan.with_extra(asked.own, asked.extra) if asked.own else None
