"""The newest tag of a framework that runs on a host."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ngcdl.catalog.releases import order
from ngcdl.preflight.facts import HostFacts, ImageFacts, Verdict
from ngcdl.preflight.loading import ANY_DRIVER
from ngcdl.preflight.verdict import judge_each, judge_host

# Rules about an image on the host's cards. Cautions about the host alone (no-gpu, disk, ...) are the same for all tags.
_OF_THE_CARDS = frozenset({"capability", "ptx", "driver", "unknown"})
# What follows the release in the tags of the monthly images; -sdk, -devel, -min and the like are other images.
_PLAIN = re.compile(r"(?:-tf[12])?(?:-py[23])?(?:-igpu)?")
# TensorFlow's images held 1.x until the tags began to name the version, with 19.11.
# https://docs.nvidia.com/deeplearning/frameworks/tensorflow-release-notes/
_FIRST_WITH_TF = (19, 11)


def newest(
    like_tag: str | None,
    tags: Sequence[str],
    facts_of: Callable[[str], ImageFacts | None],
    host: HostFacts,
    *,
    on_each: bool = False,
) -> str | None:
    """Return the newest of `tags` that runs on `host`, in the variant of `like_tag` if its release has it.

    If none has kernels for the cards, return the newest that runs if its PTX is compiled; None if none runs at all.
    `facts_of` is called from the newest tag on, no more often than needed; if it returns None, the tag is skipped. An
    unknown driver is assumed to be new enough: the kernels decide. `on_each`: the tag must run on all cards of `host`,
    not only on one.
    """
    host = replace(host, driver=host.driver or ANY_DRIVER)
    with_ptx: str | None = None
    for tag in _candidates(like_tag, tags):
        facts = facts_of(tag)
        verdict = (judge_each if on_each else judge_host)(facts, host) if facts else None
        if verdict is None or verdict.verdict == "no":
            continue
        if not _is_doubtful(verdict):
            return tag
        if verdict.mode == "ptx":
            with_ptx = with_ptx or tag
    return with_ptx


def ordered(tags: Iterable[str]) -> list[str]:
    """Sort tags: newest release first, within a release Python 3 and TensorFlow 2 first, and other tags last.

    The other tags are sorted by version, highest first (nvidia/cuda has 13.0.2-base-ubuntu24.04); tags without a
    version come last.
    """
    keyed = [(order(tag), tag) for tag in tags]
    releases = sorted(((key, tag) for key, tag in keyed if key is not None), reverse=True)
    others = sorted(tag for key, tag in keyed if key is None)
    return [tag for _, tag in releases] + sorted(others, key=_leading_version, reverse=True)


def _leading_version(tag: str) -> tuple[int, ...]:
    found = re.match(r"v?([0-9]{1,6}(?:\.[0-9]{1,6}){0,3})(?![0-9A-Za-z])", tag, re.ASCII)
    return tuple(int(part) for part in found[1].split(".")) if found else ()


def _is_doubtful(verdict: Verdict) -> bool:
    return any(reason.level == "caution" and reason.rule in _OF_THE_CARDS for reason in verdict.reasons)


def _candidates(like_tag: str | None, tags: Sequence[str]) -> list[str]:
    """Order the tags to try. A newer release comes before the requested variant: TensorFlow 1, say, ended long ago."""
    like = _suffix(like_tag or "")
    is_old = like_tag is not None and like is not None and _release(like_tag) < _FIRST_WITH_TF
    # where nothing is wanted, the order of `ordered` stays: Python 3 and TensorFlow 2 first
    wanted_tf, wanted_py = _variant("tf", like) or ("1" if is_old else None), _variant("py", like)
    fitting = [(tag, suffix) for tag in ordered(tags) if _is_candidate(suffix := _suffix(tag), like)]

    def preference(one: tuple[str, str | None]) -> tuple[int, int, bool, bool, bool]:
        tag, suffix = one
        year, month = _release(tag)
        return -year, -month, suffix != like, _variant("tf", suffix) != wanted_tf, _variant("py", suffix) != wanted_py

    return [tag for tag, _ in sorted(fitting, key=preference)]


def _is_candidate(suffix: str | None, like: str | None) -> bool:
    if suffix is None:
        return False
    return suffix == like or (bool(_PLAIN.fullmatch(suffix)) and ("-igpu" in suffix) == ("-igpu" in (like or "")))


def _suffix(tag: str) -> str | None:
    """Return what follows the release: 24.05-tf2-py3 -> -tf2-py3; None if the tag is not a release."""
    return tag[5:] if order(tag) is not None else None


def _release(tag: str) -> tuple[int, int]:
    return int(tag[:2]), int(tag[3:5])


def _variant(kind: str, suffix: str | None) -> str | None:
    """Return the major version of TensorFlow (tf) or Python (py) that follows a tag's release, None if it has none."""
    found = re.search(rf"-{kind}([0-9])", suffix or "")
    return found[1] if found else None
