"""Which image a name means.

The name of a framework in the catalogue, without a tag, means the newest image in the catalogue that is known to run on
a host. Tags that only the registry has don't count: a new tag must not mean another 20 GB from one day to the next.

Any other short name means the engine's own image, as for `docker run`, if the engine has one under exactly that name;
otherwise an image of NGC, or of the registry that takes NGC's place. An engine's own image is identified by its id and
is never pulled: whoever owns that name on Docker Hub must not get to run code here.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ngcdl.catalog import releases
from ngcdl.errors import BadReference, NgcdlError
from ngcdl.spec import NVCR, ImageRef

if TYPE_CHECKING:
    from ngcdl.engines.values import Held
    from ngcdl.preflight.facts import HostFacts, ImageFacts

# Docker Hub's official images that trainings are often started from:
# https://github.com/docker-library/official-images/tree/master/library
_OFFICIAL = ("almalinux", "alpine", "busybox", "debian", "fedora", "julia", "python", "r-base", "rockylinux", "ubuntu")


def typed(name: str, registry: str) -> ImageRef:
    """Parse an image's name as named() does, but leave a name that may be the engine's own to settled()."""
    image = ImageRef.parse(name, registry, needs_tag=False)
    return image if may_be_own(image, registry) else named(name, registry)


def may_be_own(image: ImageRef, registry: str) -> bool:
    """Return whether the typed name may be that of an image of the engine's own."""
    return image.short is not None and image.id is None and image.name not in _frameworks(registry)


def settled(image: ImageRef, registry: str, has: Callable[[ImageRef], Held | None]) -> ImageRef:
    """Return the engine's own image, with its id, if typed() left the name open and `has` finds such an image; else
    `image`. Raise BadReference as named() does."""
    if not may_be_own(image, registry):
        return image
    for own in image.own_names():
        if found := has(own):
            return replace(own, id=found.id, short=image.short)
    return _not_own(image, registry, f"This engine has no {image.short}:latest of its own.")


def without_engine(image: ImageRef, registry: str, why: NgcdlError) -> ImageRef:
    """Do as settled() where no engine can be asked, because of `why`: no image is the engine's own."""
    if not may_be_own(image, registry):
        return image
    return _not_own(image, registry, f"No engine here was asked for {image.short}:latest: {why.message}")


def _not_own(image: ImageRef, registry: str, said: str) -> ImageRef:
    if not is_open(image):
        return image
    try:
        return named(str(image.short), registry)
    except BadReference as error:
        error.message += f" {said}"
        raise


def own_in_words(image: ImageRef) -> str:
    return f"{image.typable}: this engine's own image"


def on_docker_hub(image: ImageRef) -> str:
    """Return the hint for users who meant Docker Hub's image of that name; "" if the name is complete or NVIDIA's, or a
    single word that is no official image there."""
    if image.short is None or image.id:
        return ""
    there, _ = image.own_names()
    owner, _, name = there.repository.partition("/")
    if owner == "nvidia" or (owner == "library" and name not in _OFFICIAL):
        return ""
    return f"On Docker Hub?\n    ngcdl run {str(there).replace('/library/', '/')}"


def _frameworks(registry: str) -> set[str]:
    """Return the names of the catalogue's frameworks, at NGC and in `registry`."""
    return {f"{where}/nvidia/{one}" for where in (NVCR, registry) for one in releases.frameworks()}


def named(name: str, registry: str) -> ImageRef:
    """Parse an image's name. A framework of the catalogue needs no tag: chosen() adds it. Raise BadReference; if a tag
    is missing, the error names the framework that was probably meant."""
    image = ImageRef.parse(name, registry, needs_tag=False)
    if not is_open(image):
        return image
    known = _frameworks(registry)
    if image.name in known:
        return image
    near = difflib.get_close_matches(image.framework, releases.frameworks(), 1, 0.8)
    if near and image.name.removesuffix(image.framework) + near[0] in known:
        meant = name.removesuffix(image.framework) + near[0]
        raise BadReference(f"{name}: which release? NGC has no 'latest'.", typed=name, meant=meant)
    try:
        return ImageRef.parse(name, registry)
    except BadReference as error:
        error.hint = "\n".join(filter(None, (error.hint, on_docker_hub(image))))
        raise


def is_open(image: ImageRef) -> bool:
    """Return whether the name leaves open which image is meant: it has no tag, digest or id."""
    return image.tag is None and image.digest is None and image.id is None


def chosen(
    frameworks: Sequence[ImageRef], host: HostFacts, where: str = "here", *, on_each: bool = False
) -> tuple[ImageRef, str]:
    """Return the newest image for `host` of the first of `frameworks` that fits, and a line that names the image.

    A framework whose image has only PTX for the host's cards comes after those with kernels. If no image runs, return
    the newest of the first framework, which will be refused with the reason. For an Orin with JetPack 6 it is the
    newest that is made for a Jetson. `where`: here or there. `on_each`: the image must run on all cards of `host`."""
    from ngcdl.preflight.kernels import wants_igpu

    fit = [one for framework in frameworks if (one := newest(framework, host, on_each))]
    image = next((one for one in fit if not _has_only_ptx(one, host, on_each)), fit[0] if fit else None)
    if image is None:
        first, *_ = frameworks
        if wants_igpu(host) and (tags := releases.tags(first.framework, for_jetson=True)):
            image = replace(first, tag=tags[0])
            return image, f"{_short(image)}, the newest for a Jetson with JetPack 6"
        image = replace(first, tag=releases.tags(first.framework)[0])
        return image, f"{_short(image)}, the newest that ngcdl knows; none is known to run {where}"
    names = [one.framework for one in frameworks]
    missed = names[: names.index(image.framework)]
    worse = f"; no {' or '.join(missed)} fits as well" if missed else ""
    known = "that ngcdl knows" if host.elsewhere else f"known to run {where}"
    return image, f"{_short(image)}, the newest {known}{worse}"


def _short(image: ImageRef) -> str:
    return f"{image.framework}: {image.tag}"


def newest(framework: ImageRef, host: HostFacts, on_each: bool = False) -> ImageRef | None:
    """Return the newest image of `framework` that runs on `host` according to the catalogue, None if there is none."""
    from ngcdl.preflight.newest import newest as newest_of

    def facts_of(tag: str) -> ImageFacts | None:
        return _facts(replace(framework, tag=tag), host)

    tag = newest_of(None, releases.tags(framework.framework), facts_of, host, on_each=on_each)
    return replace(framework, tag=tag) if tag else None


def _has_only_ptx(image: ImageRef, host: HostFacts, on_each: bool) -> bool:
    from ngcdl.preflight.verdict import judge_each, judge_host

    facts = _facts(image, host)
    return facts is not None and (judge_each if on_each else judge_host)(facts, host).mode == "ptx"


def _facts(image: ImageRef, host: HostFacts) -> ImageFacts | None:
    from ngcdl.preflight.image import from_catalog

    return from_catalog(image, host.architecture)
