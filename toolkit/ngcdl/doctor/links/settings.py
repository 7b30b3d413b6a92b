"""ngcdl's own settings: can they be read? Only a problem is a line: most hosts have none."""

from __future__ import annotations

from ngcdl.doctor.chain import Finding, Link, from_error
from ngcdl.doctor.sight import Sight

NAME = "settings"


def judge(sight: Sight) -> Finding | None:
    error = sight.settings_error
    if error is None:
        return None
    return from_error(NAME, error, None if error.hint else "Until this is mended, other commands end with it, too")


LINKS = (Link(190, NAME, judge),)
