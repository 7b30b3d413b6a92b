"""CIFAR-10: in the cache, damaged, or still to be fetched."""

from __future__ import annotations

import shlex

from ngcdl.doctor.chain import Finding, Link, Step, broken, not_seen, ok, warning
from ngcdl.doctor.sight import Sight, Trouble

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
        return ok(NAME, f"CIFAR-10 is in {seen.cache}, whole")
    if seen.damage is not None:
        folder, stamp = seen.cache / "cifar-10", seen.cache / "cifar-10.json"
        cause = "The next training makes it anew; from the archive beside it, where that is whole, without a download"
        step = Step(f"rm -r {shlex.quote(str(folder))} {shlex.quote(str(stamp))}")
        return warning(NAME, f"the CIFAR-10 in {seen.cache} is damaged: {seen.damage}", cause, step)
    hint = (
        "The first training downloads it (163 MiB). Its official host is slow at times: --data DIR or NGCDL_DATA takes "
        "a copy that you have, and an interrupted download goes on where it was"
    )
    return ok(NAME, "CIFAR-10 is not here yet", hint, source=_URL)


LINKS = (Link(300, NAME, judge),)
