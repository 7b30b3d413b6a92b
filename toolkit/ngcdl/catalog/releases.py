"""NVIDIA's monthly framework images: what each release contains, and its tags.

https://docs.nvidia.com/deeplearning/frameworks/support-matrix/index.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from ngcdl.catalog.rows import address_of, comparable, rows
from ngcdl.frozen import dataclass

# column -> the field of preflight.facts.ImageFacts that it fills
FIELDS = {
    "suffixes": "reference", "pythons": "python", "framework_version": "framework_version", "cuda": "cuda",
    "driver": "driver", "min_capability": "min_capability", "ptx": "ptx", "architectures": "architectures",
}  # fmt: skip
_TAG = re.compile(r"(\d{2})\.(0[1-9]|1[0-2])((?:[-.]\w[\w.-]*)?)", re.ASCII)


@dataclass(frozen=True)
class Release:
    """One release of one framework. A tag is the release plus one of `suffixes`, which may be "".

    `driver` is the one the image was built with (CUDA_DRIVER_VERSION). `compat_drivers` are the oldest drivers of
    earlier branches that the release notes allow on data-centre cards. `unverified` names columns not read at a source.
    """

    framework: str
    release: str  # 18.01
    variant: str | None  # tf1, tf2
    suffixes: tuple[str, ...]
    pythons: Mapping[str, str]  # suffix -> version
    framework_version: str | None
    cuda: str
    driver: str
    compat_drivers: tuple[str, ...]
    min_capability: str | None
    sass: Mapping[str, tuple[str, ...]]  # architecture -> compute capabilities, ascending
    ptx: str | None
    architectures: tuple[str, ...]
    unverified: frozenset[str]
    source: str

    def recalled_on(self, architecture: str) -> frozenset[str]:
        """Return the fields of ImageFacts not read at a source; `reference` stands for the tag's existence."""
        named = {FIELDS[column] for column in self.unverified if column in FIELDS}
        return frozenset(named | ({"sass"} if f"sass_{architecture}" in self.unverified else set()))

    def source_of(self, field: str) -> str:
        """Return the address that one field of ImageFacts was read at."""
        return address_of(self.source, field)

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self.release + suffix for suffix in self.suffixes)


def releases(framework: str | None = None) -> tuple[Release, ...]:
    """List the table's releases, newest first; TensorFlow 2 before 1 within a month."""
    return tuple(release for release in _all() if framework in (None, release.framework))


@cache
def tags(framework: str, *, for_jetson: bool = False) -> tuple[str, ...]:
    """List a framework's tags in the table, those for a Jetson or all others, newest first, Python 3 before 2."""
    every = (tag for release in releases(framework) for tag in release.tags if is_jetson(tag) is for_jetson)
    return tuple(sorted(every, key=_key, reverse=True))


def find(framework: str, tag: str) -> Release | None:
    """Return the release that has exactly this tag."""
    return _by_tag().get((framework, tag))


def with_version(framework: str, minor: str) -> tuple[str, ...]:
    """List the framework's tags whose images have its version `minor`, such as 2.8, newest first."""
    every = ((tag, find(framework, tag)) for tag in tags(framework))
    return tuple(tag for tag, has in every if has and f"{has.framework_version}.".startswith(f"{minor}."))


def frameworks() -> tuple[str, ...]:
    return tuple(sorted({release.framework for release in _all()}))


def order(tag: str) -> tuple[int, ...] | None:
    """Return a sort key that is larger for the newer of two YY.MM tags, in the table or not; None for other tags.

    Within a month Python 3 counts as newer than 2, then TensorFlow 2 as newer than 1, then a shorter tag as newer than
    a longer one, which is a special build.
    """
    return _key(tag) if _TAG.fullmatch(tag) else None


def is_jetson(tag: str) -> bool:
    return tag.endswith("-igpu")


def _key(tag: str) -> tuple[int, ...]:
    parts = tag.split("-")
    variant = next((int(part[2:]) for part in parts if part in ("tf1", "tf2")), 0)
    python = next((int(part[2:]) for part in parts if part in ("py2", "py3")), 0)
    return (int(tag[:2]), int(tag[3:5]), python, variant, -len(parts))


@cache
def _all() -> tuple[Release, ...]:
    every = [_release(row) for row in rows("releases")]
    return tuple(sorted(every, key=lambda one: (comparable(one.release), one.variant or "", one.framework))[::-1])


@cache
def _by_tag() -> dict[tuple[str, str], Release]:
    return {(release.framework, tag): release for release in _all() for tag in release.tags}


def _release(row: dict[str, str]) -> Release:
    return Release(
        framework=row["framework"],
        release=row["release"],
        variant=row["variant"] or None,
        suffixes=tuple(row["suffixes"].split()) or ("",),
        pythons=dict(pair.partition("=")[::2] for pair in row["pythons"].split()),
        framework_version=row["framework_version"] or None,
        cuda=row["cuda"],
        driver=row["driver"],
        compat_drivers=tuple(row["compat_drivers"].split()),
        min_capability=row["min_capability"] or None,
        sass={name: tuple(row[f"sass_{name}"].split()) for name in ("amd64", "arm64") if row[f"sass_{name}"]},
        ptx=row["ptx"] or None,
        architectures=tuple(row["architectures"].split()),
        unverified=frozenset(row["unverified"].split()),
        source=row["source"],
    )
