"""Whether NVIDIA's legacy hook would start an image: evaluates the values of NVIDIA_REQUIRE_* for one card.

Spaces mean OR, commas mean AND, and several variables are ANDed; cuda, driver and arch are versions, brand is a word:
https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html#constraints
Versions are compared part by part, with missing parts as 0, as in the hook's own src/cli/dsl.c:
https://github.com/NVIDIA/libnvidia-container
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest

_ATOM = re.compile(r"([a-z]+)(<=|>=|!=|<|>|=)([^<>=!]+)", re.IGNORECASE)
_VERSION = re.compile(r"[0-9]+(?:\.[0-9]+)*", re.ASCII)
_COMPARISONS: Mapping[str, Callable[[list[int], list[int]], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def unmet(require: Sequence[str], values: Mapping[str, str | None]) -> str | None:
    """Return the first constraint that `values` (cuda, driver, arch, brand) violate, or None if all hold or may hold.

    If a value is None, or a constraint is outside the grammar, it may hold: only certain violations are reported.
    """
    return next((text for text in require if not _may_hold(text, values)), None)


def _may_hold(text: str, values: Mapping[str, str | None]) -> bool:
    alternatives = text.split() or [""]
    return any(all(_atom_may_hold(atom, values) for atom in one.split(",")) for one in alternatives)


def _atom_may_hold(atom: str, values: Mapping[str, str | None]) -> bool:
    match = _ATOM.fullmatch(atom)
    found = values.get(match[1].lower()) if match else None
    if match is None or found is None:
        return True
    if match[1].lower() == "brand":
        is_same = found.lower() == match[3].lower()
        return {"=": is_same, "!=": not is_same}.get(match[2], True)
    return _version_may_hold(found, match[2], match[3])


def _version_may_hold(found: str, sign: str, needed: str) -> bool:
    if not (_VERSION.fullmatch(found) and _VERSION.fullmatch(needed)) or max(len(found), len(needed)) > 100:
        return True
    pairs = [(int(a), int(b)) for a, b in zip_longest(found.split("."), needed.split("."), fillvalue="0")]
    return _COMPARISONS[sign]([a for a, _ in pairs], [b for _, b in pairs])
