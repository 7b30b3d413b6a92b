"""CIFAR-10: is it in the cache, damaged, or still to be downloaded?"""

from __future__ import annotations

import shlex

from ngcdl.dataset import CIFAR10
from ngcdl.doctor.chain import Finding, Link, Step, broken, not_seen, ok, warning
from ngcdl.doctor.sight import Sight, Trouble
from ngcdl.figures import size

NAME = "dataset"
_URL = "https://www.cs.toronto.edu/~kriz/cifar.html"


def judge(sight: Sight) -> Finding:
    seen = sight.dataset
    if isinstance(seen, Trouble):
        return not_seen(NAME, seen)
    if not seen.is_named_there:
        cause = "Trainings without --data look there and nowhere else"
        return broken(NAME, f"NGCDL_DATA names {seen.named}, which is not there", cause, Step("unset NGCDL_DATA", True))
    if seen.named is not None:
        return ok(NAME, f"NGCDL_DATA names {seen.named}")
    if seen.is_cached:
        return ok(NAME, f"CIFAR-10 is in {seen.cache}, intact")
    if seen.damage is not None:
        folder, stamp = seen.cache / "cifar-10", seen.cache / "cifar-10.json"
        cause = "The next training restores it, without a download if the archive beside it is intact"
        step = Step(f"rm -r {shlex.quote(str(folder))} {shlex.quote(str(stamp))}")
        return warning(NAME, f"the CIFAR-10 in {seen.cache} is damaged: {seen.damage}", cause, step)
    hint = (
        f"The first training downloads it ({size(CIFAR10.bytes)}). Its official host is sometimes slow: --data "
        "DIR or NGCDL_DATA uses a copy that you have, and an interrupted download resumes where it stopped"
    )
    return ok(NAME, "CIFAR-10 is not here yet", hint, source=_URL)


LINKS = (Link(300, NAME, judge),)
