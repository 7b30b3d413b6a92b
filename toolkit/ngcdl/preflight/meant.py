"""Which image a name without a tag means: the newest that is known to run on a host.

Known to the catalogue: a tag that is new in the registry must not mean another 20 GB from one day to the next.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ngcdl.errors import BadReference
from ngcdl.spec import NVCR, ImageRef

if TYPE_CHECKING:
    from ngcdl.preflight.facts import HostFacts, ImageFacts


def named(name: str, registry: str) -> ImageRef:
    """Parse an image's name. A framework of the catalogue needs no tag: chosen() gives it one. Raise BadReference, for
    a name without a tag with the framework that was probably meant."""
    image = ImageRef.parse(name, registry, needs_tag=False)
    if not is_open(image):
        return image
    from ngcdl.catalog import releases

    frameworks = releases.frameworks()
    known = {f"{where}/nvidia/{one}" for where in (NVCR, registry) for one in frameworks}
    if image.name in known:
        return image
    near = difflib.get_close_matches(image.framework, frameworks, 1, 0.8)
    if near and image.name.removesuffix(image.framework) + near[0] in known:
        meant = name.removesuffix(image.framework) + near[0]
        raise BadReference(f"{name}: which release? NGC has no 'latest'.", typed=name, meant=meant)
    return ImageRef.parse(name, registry)


def is_open(image: ImageRef) -> bool:
    """Does the name leave open which image is meant?"""
    return image.tag is None and image.digest is None


def chosen(
    frameworks: Sequence[ImageRef], host: HostFacts, where: str = "here", *, on_each: bool = False
) -> tuple[ImageRef, str]:
    """Return the newest image for `host` of the first of `frameworks` that fits, and a line that says which it is.

    One that has only its PTX for these cards comes after those with kernels. If none runs, it is the newest of the
    first: it will be refused, with the reason. `where`: here or there. `on_each`: on all cards of `host`."""
    fit = [one for framework in frameworks if (one := newest(framework, host, on_each))]
    image = next((one for one in fit if not _has_only_ptx(one, host, on_each)), fit[0] if fit else None)
    if image is None:
        from ngcdl.catalog import releases

        first, *_ = frameworks
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
    """Return the newest image of `framework` that the catalogue knows to run on `host`, None if it knows none."""
    from ngcdl.catalog import releases
    from ngcdl.preflight.newest import newest as newest_of

    def facts_of(tag: str) -> ImageFacts | None:
        return _facts(replace(framework, tag=tag), host)

    tag = newest_of(framework.framework, None, releases.tags(framework.framework), facts_of, host, on_each=on_each)
    return replace(framework, tag=tag) if tag else None


def _has_only_ptx(image: ImageRef, host: HostFacts, on_each: bool) -> bool:
    from ngcdl.preflight.verdict import judge, judge_each

    facts = _facts(image, host)
    return facts is not None and (judge_each if on_each else judge)(facts, host).mode == "ptx"


def _facts(image: ImageRef, host: HostFacts) -> ImageFacts | None:
    from ngcdl.preflight.image import from_catalog

    return from_catalog(image, host.architecture)
