"""The newest tag of a framework that runs on a host."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ngcdl.preflight.facts import HostFacts, ImageFacts, Verdict
from ngcdl.preflight.verdict import judge

# Cautions that are about the image on these cards; those of the host (no-gpu, disk, ...) are the same for every tag.
_OF_THE_CARDS = frozenset({"capability", "ptx", "driver", "unknown"})
# What follows the release in a tag of the monthly images; -sdk, -devel, -min and the like are others.
_PLAIN = re.compile(r"(?:-tf[12])?(?:-py[23])?(?:-igpu)?")
# TensorFlow's images held 1.x before the tags said so, with 19.11.
# https://docs.nvidia.com/deeplearning/frameworks/tensorflow-release-notes/
_FIRST_WITH_TF = (19, 11)
_ANY_DRIVER = "9999.0"  # newer than any


def newest(
    framework: str,
    like_tag: str | None,
    tags: Sequence[str],
    facts_of: Callable[[str], ImageFacts | None],
    host: HostFacts,
) -> str | None:
    """Give the newest of `tags` that runs on `host`, in the variant of `like_tag` where its release has it.

    Where none does, the newest that needs PTX compiled; None where none runs in either way. `facts_of` is called in
    that order, and no more than is needed; None from it leaves a tag out. A driver that is unknown is taken for one
    that does: the kernels decide.
    """
    host = replace(host, driver=host.driver or _ANY_DRIVER)
    with_ptx: str | None = None
    for tag in _candidates(framework, like_tag, tags):
        facts = facts_of(tag)
        verdict = judge(facts, host) if facts else None
        if verdict is None or verdict.verdict == "no":
            continue
        if not _is_doubtful(verdict):
            return tag
        if verdict.mode == "ptx":
            with_ptx = with_ptx or tag
    return with_ptx


def ordered(tags: Iterable[str]) -> list[str]:
    """Sort tags, the newest release first; within one Python 3 and TensorFlow 2 first; what is no release, last.

    Among those the higher version goes first (nvidia/cuda has 13.0.2-base-ubuntu24.04), and a word last.
    """
    from ngcdl.catalog.releases import order

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
    """The variant never beats the release: TensorFlow 1 that was asked for is long over."""
    like = _suffix(like_tag or "")
    wanted_tf, wanted_py = _variant(framework, like_tag, "tf") or "2", _variant(framework, like_tag, "py") or "3"
    fitting = [tag for tag in ordered(tags) if _is_candidate(_suffix(tag), like)]

    def preference(tag: str) -> tuple[bool, bool, bool]:
        return (
            _suffix(tag) != like,
            _variant(framework, tag, "tf") != wanted_tf,
            _variant(framework, tag, "py") != wanted_py,
        )

    preferred = sorted(fitting, key=preference)
    return sorted(preferred, key=_release, reverse=True)  # a stable sort: the preference stays within a release


def _is_candidate(suffix: str | None, like: str | None) -> bool:
    if suffix is None:
        return False
    is_asked = bool(like) and suffix == like
    return is_asked or (bool(_PLAIN.fullmatch(suffix)) and ("-igpu" in suffix) == ("-igpu" in (like or "")))


def _suffix(tag: str) -> str | None:
    """24.05-tf2-py3 -> -tf2-py3; None for what is no release."""
    from ngcdl.catalog.releases import order

    return tag[5:] if order(tag) is not None else None


def _release(tag: str) -> tuple[int, int]:
    return int(tag[:2]), int(tag[3:5])


def _variant(framework: str, tag: str | None, kind: str) -> str | None:
    """TensorFlow's or Python's major version, as the tag tells it; None where it doesn't."""
    suffix = _suffix(tag or "")
    if tag is None or suffix is None:
        return None
    found = re.search(rf"-{kind}([0-9])", suffix)
    if found is None and kind == "tf" and framework == "tensorflow" and _release(tag) < _FIRST_WITH_TF:
        return "1"
    return found[1] if found else None
