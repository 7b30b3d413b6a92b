"""Disk space: is there room for images where the engine keeps them?"""

from __future__ import annotations

import shlex

from ngcdl.doctor.chain import Finding, Link, Step, broken, not_seen, ok, unchecked, warning
from ngcdl.doctor.sight import Sight, Trouble
from ngcdl.figures import size

NAME = "disk"
# Today's images are 7 to 12 GB compressed and about 2.5 times as much unpacked; two of them, and room to work.
_RULE_BYTES = 60 * 10**9
_LEAST_BYTES = 20 * 10**9  # one of today's images, if the default image's size is unknown


def judge(sight: Sight) -> Finding:
    engine = sight.engine
    if isinstance(engine, Trouble):
        return not_seen(NAME, engine, "engine")
    free, folder = engine.facts.free_bytes, engine.facts.images_folder
    if free is None or folder is None:
        return unchecked(
            NAME, "the engine's folder is on another machine" if not engine.is_here else "it can't be measured"
        )
    found = f"{size(free)} free in {folder}"
    steps = (
        Step("docker system df", by_hand=True),
        Step("docker image prune"),
        Step(f"df -h {shlex.quote(folder)}", by_hand=True),
    )
    known = sight.wanted_bytes if isinstance(sight.wanted_bytes, int) else None
    wanted = known or _LEAST_BYTES
    if free < wanted:
        what = "the default image" if known else "one of today's images"
        return broken(NAME, found, f"{what.capitalize()} needs {size(wanted)}, compressed and unpacked", *steps)
    if free < _RULE_BYTES:
        return warning(NAME, found, f"Room for an image or two; {size(_RULE_BYTES)} is a rule of thumb", *steps)
    return ok(NAME, found)


LINKS = (Link(170, NAME, judge),)
