"""Which card a name means: its compute capability from the catalogue, its brand from the words of the name.

The catalogue names cards for people ("GeForce RTX 4090 4080 4070", "RTX A6000..A2000"), so a name matches a group if
the group has all its words; only that group if it has no others ("GTX TITAN", "GTX TITAN X"). A name that matches
groups of several capabilities ("RTX 6000") counts as unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ngcdl.catalog.chips import ON_ARM_CHIPS
from ngcdl.catalog.rows import rows

# Words that say nothing about the capability: maker, form factor, memory, edition, Ti and Super, the MIG slice of a
# card (A100-SXM4-40GB-MIG-1g.5gb), and GeForce, which the catalogue sometimes omits.
_NOISE = re.compile(
    r"nvidia|tesla|geforce|generation|laptop|mobile|gpu|pcie|sxm\d?|nvl|ac|hbm\d\w?|3e|\d+gb?|ti|d|super|max|q|"
    r"sff|edition|server|workstation|shared|mig|nvgpu|developer|kit|\d+[gc]\.\S+"
)
# GTX1080Ti: spaces are often left out in a shell.
_GLUED = re.compile(r"(?<=[gr]tx)(?=\d)|(?<=\d)(?=(?:ti|super)\b)")
_MODEL = re.compile(r".*\d.*|titan|nano|orin|xavier|thor|spark")
_RANGE = re.compile(r"([a-z]?)(\d+)\.\.[a-z]?(\d+)")
_DATA_CENTRE = re.compile(r"(?:[abhklmpv]|gb|gh)\d{1,3}[gs]?|t4g?")
_GRACE = re.compile(r"g[bh]\d+")  # NVIDIA's ARM processor, Grace, with Blackwell or Hopper: GB200, GH200


def capability_of(name: str) -> str | None:
    """Return the compute capability of a card such as T4, RTX 4090 or NVIDIA A100-SXM4-80GB, if exactly one fits."""
    found = {capability for capability, _ in _fitting(name)}
    return found.pop() if len(found) == 1 else None


def brand_of(name: str) -> str | None:
    """Infer the NVML brand from a card's name; None if that is not sure enough.

    The brand matters only for forward compatibility, which supports data-centre cards.
    """
    words = {word for _, group in _fitting(name) for word in group} | set(_words(name, noise=True))
    if words & {"jetson", "spark"}:
        return None
    if "titan" in words:
        return "titan"
    if "quadro" in words:
        return "quadrortx" if "rtx" in words else "quadro"
    if words & {"geforce", "gtx"}:
        return "geforce"
    if "rtx" in words:
        return "nvidiartx"
    is_data_centre = any(_DATA_CENTRE.fullmatch(word) for word in _words(name))
    return "tesla" if is_data_centre else None


def is_with_arm(name: str | None, capability: str | None) -> bool:
    """Return whether a card is sold only with an ARM processor."""
    return capability in ON_ARM_CHIPS or any(_GRACE.fullmatch(word) for word in _words(name or ""))


def _fitting(name: str) -> Iterator[tuple[str, set[str]]]:
    wanted = set(_words(name))
    if not any(_MODEL.fullmatch(word) for word in wanted):
        return
    groups = [(row["capability"], group) for row in rows("gpu_families") for group in row["gpus"].split(";")]
    found = [(capability, group) for capability, group in groups if wanted <= set(_words(group))]
    whole = [(capability, group) for capability, group in found if wanted == set(_words(group))]
    for capability, group in whole or found:
        yield capability, set(_words(group, noise=True))


def _words(text: str, *, noise: bool = False) -> Iterator[str]:
    for word in re.split(r"[\s/,()_-]+", _GLUED.sub(" ", text.lower())):
        span = _RANGE.fullmatch(word)
        if span:
            ends = sorted((int(span[2]), int(span[3])))
            yield from (f"{span[1]}{number}" for number in range(ends[0], ends[1] + 1, 100))
        elif word and (noise or not _NOISE.fullmatch(word)):
            yield word
