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
    framework: str,
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
    for tag in _candidates(framework, like_tag, tags):
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


def _candidates(framework: str, like_tag: str | None, tags: Sequence[str]) -> list[str]:
    """Order the tags to try. A newer release comes before the requested variant: TensorFlow 1, say, ended long ago."""
    like = _suffix(like_tag or "")
    wanted_tf, wanted_py = _variant(framework, like_tag, "tf") or "2", _variant(framework, like_tag, "py") or "3"
    fitting = [tag for tag in ordered(tags) if _is_candidate(_suffix(tag), like)]

    def preference(tag: str) -> tuple[int, int, bool, bool, bool]:
        year, month = _release(tag)
        other_tf, other_py = (_variant(framework, tag, "tf") != wanted_tf, _variant(framework, tag, "py") != wanted_py)
        return -year, -month, _suffix(tag) != like, other_tf, other_py

    return sorted(fitting, key=preference)


def _is_candidate(suffix: str | None, like: str | None) -> bool:
    if suffix is None:
        return False
    is_asked = bool(like) and suffix == like
    return is_asked or (bool(_PLAIN.fullmatch(suffix)) and ("-igpu" in suffix) == ("-igpu" in (like or "")))


def _suffix(tag: str) -> str | None:
    """Return what follows the release: 24.05-tf2-py3 -> -tf2-py3; None if the tag is not a release."""
    return tag[5:] if order(tag) is not None else None


def _release(tag: str) -> tuple[int, int]:
    return int(tag[:2]), int(tag[3:5])


def _variant(framework: str, tag: str | None, kind: str) -> str | None:
    """Return TensorFlow's or Python's major version from the tag, or None if it has none."""
    suffix = _suffix(tag or "")
    if tag is None or suffix is None:
        return None
    found = re.search(rf"-{kind}([0-9])", suffix)
    if found is None and kind == "tf" and framework == "tensorflow" and _release(tag) < _FIRST_WITH_TF:
        return "1"
    return found[1] if found else None
