"""Which existing tags a wrong one may have meant: the same month with another ending, the same ending months away.

NGC's tags are YY.MM and an ending: 18.01-py2, 25.02-tf2-py3, 24.05-tf2-py3-igpu.
https://docs.nvidia.com/deeplearning/frameworks/tensorflow-release-notes/index.html
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

LIMIT = 5
_TAG = re.compile(r"(?:20)?(\d{2})\.(\d{1,2})(?:-(.*))?", re.DOTALL)
# An ending that has nothing in common with the wanted one counts as this many months.
_OTHER_ENDING_MONTHS = 6.0


def nearest(wanted: str, tags: Sequence[str]) -> tuple[str, ...]:
    """Return up to five of `tags`, nearest first; the newest ones for `latest`, which NGC does not have."""
    dated = {tag: parts for tag in tags if (parts := _parts(tag))}
    if wanted == "latest":
        return tuple(sorted(dated, key=lambda tag: (-dated[tag][0], tag))[:LIMIT])
    meant = _parts(wanted)
    if meant is None or not dated:
        return tuple(difflib.get_close_matches(wanted, tags, LIMIT, 0.5))
    return tuple(sorted(dated, key=lambda tag: (_distance_months(meant, dated[tag]), tag))[:LIMIT])


def _parts(tag: str) -> tuple[int, str] | None:
    """Parse a tag into months since 2000 and its ending."""
    match = _TAG.fullmatch(tag)
    if match is None or not 1 <= int(match[2]) <= 12:
        return None
    return int(match[1]) * 12 + int(match[2]), match[3] or ""


def _distance_months(meant: tuple[int, str], tag: tuple[int, str]) -> float:
    months = abs(meant[0] - tag[0])
    if meant[1] == tag[1]:
        return months
    if not meant[1]:  # 18.01 alone: the ending was forgotten, so any will do
        return months + 0.5
    return months + _OTHER_ENDING_MONTHS * (1 - difflib.SequenceMatcher(None, meant[1], tag[1]).ratio())
