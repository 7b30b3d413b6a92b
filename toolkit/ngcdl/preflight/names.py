"""A card by its name: the compute capability from the catalogue, the brand by the name's own words.

The catalogue names cards for people ("GeForce RTX 4090 4080 4070", "RTX A6000..A2000"), so a name fits a group of them
when all its words are there. One that fits groups of several capabilities ("RTX 6000") is not known here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# Words that say nothing of the capability: maker, form factor, memory, edition, Ti and Super, which part of the card it
# is (A100-SXM4-40GB-MIG-1g.5gb), and GeForce, which the catalogue leaves out at times.
_NOISE = re.compile(
    r"nvidia|tesla|geforce|generation|laptop|mobile|gpu|pcie|sxm\d?|nvl|hbm\d\w?|\d+gb|ti|d|super|max|q|sff|"
    r"edition|server|workstation|shared|mig|\d+[gc]\.\S+"
)
# GTX1080Ti: where a blank is left out, as one does in a shell.
_GLUED = re.compile(r"(?<=[gr]tx)(?=\d)|(?<=\d)(?=(?:ti|super)\b)")
_MODEL = re.compile(r".*\d.*|titan|orin|xavier|thor")
_RANGE = re.compile(r"([a-z]?)(\d+)\.\.[a-z]?(\d+)")
_DATA_CENTRE = re.compile(r"(?:[abhklmpv]|gb|gh)\d{1,3}[gs]?|t4g?")


def capability_of(name: str) -> str | None:
    """Find the compute capability of a card such as T4, RTX 4090 or NVIDIA A100-SXM4-80GB; None: unknown or several."""
    found = {capability for capability, _ in _fitting(name)}
    return found.pop() if len(found) == 1 else None


def brand_of(name: str) -> str | None:
    """Tell the NVML brand by the name, where it is sure enough; None elsewhere.

    Inferred: what matters is whether forward compatibility takes it, and that goes by data-centre or not.
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


def _fitting(name: str) -> Iterator[tuple[str, set[str]]]:
    from ngcdl.catalog.rows import rows

    wanted = set(_words(name))
    if not any(_MODEL.fullmatch(word) for word in wanted):
        return
    for row in rows("gpu_families"):
        for group in row["gpus"].split(";"):
            if wanted <= set(_words(group)):
                yield row["capability"], set(_words(group, noise=True))


def _words(text: str, *, noise: bool = False) -> Iterator[str]:
    for word in re.split(r"[\s/,()_-]+", _GLUED.sub(" ", text.lower())):
        span = _RANGE.fullmatch(word)
        if span:
            ends = sorted((int(span[2]), int(span[3])))
            yield from (f"{span[1]}{number}" for number in range(ends[0], ends[1] + 1, 100))
        elif word and (noise or not _NOISE.fullmatch(word)):
            yield word
