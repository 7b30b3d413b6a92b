"""What is known about an image, from its configuration or from its tag's row in the catalogue. Pure.

Each value comes from the most reliable source: the configuration, then the release's row, then what NVIDIA says about
the CUDA version in general.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ngcdl.catalog import cuda, releases
from ngcdl.catalog.releases import Release
from ngcdl.catalog.rows import comparable
from ngcdl.preflight.configuration import Configuration, Named, branches_of
from ngcdl.preflight.facts import ImageFacts
from ngcdl.spec import ImageRef

REGISTRY = "registry"
# During a pull a layer is on disk both compressed and unpacked, so 2.5 to 3 times the compressed size has to be free.
# The lower figure stands for the unpacked image: a rule of thumb, not measured.
UNPACKED_PER_COMPRESSED = 2.5


def estimated_unpacked(compressed_bytes: int | None) -> int | None:
    """Estimate an image's size on disk from its compressed size."""
    return None if compressed_bytes is None else int(compressed_bytes * UNPACKED_PER_COMPRESSED)


def from_catalog(ref: ImageRef, architecture: str) -> ImageFacts | None:
    """Return what the catalogue says about a framework image of any registry; None if it has no row for the tag."""
    row = _row_of_tag(ref)
    if row is None or ref.tag is None:
        return None
    known = _Known(architecture, for_jetson=releases.is_jetson(ref.tag))
    known.recalled |= {"reference"} & row.recalled_on(architecture)
    known.put_release(row, ref.tag)
    known.put_cuda(())
    return known.facts(str(ref))


def from_config(
    ref: ImageRef,
    config: Mapping[str, Any],
    *,
    architecture: str,
    architectures: tuple[str, ...] | None = None,
    digest: str | None = None,
    compressed_bytes: int | None = None,
    is_schema_1: bool = False,
) -> ImageFacts:
    """Read an image's configuration, and fill the gaps from the catalogue.

    `architecture` is the requested one; the one in the configuration takes precedence. `architectures` are those in the
    image's index, None if it has no index. Nothing in the configuration makes this raise.
    """
    said = Configuration.of(config)
    own = said.architecture or architecture
    by_name = releases.is_jetson(ref.tag or "") or ref.repository.rpartition("/")[2].startswith("l4t-")
    known = _Known(own, for_jetson=by_name or said.wants_jetpack)
    known.put("architectures", architectures or ((own,) if own else None), REGISTRY)
    known.put("digest", digest, REGISTRY)
    known.put("compressed_bytes", compressed_bytes, REGISTRY)
    known.put("unpacked_bytes", estimated_unpacked(compressed_bytes), "estimated from compressed_bytes", recalled=True)
    known.put("is_schema_1", is_schema_1 or None, REGISTRY)
    named = Named.of(said, ref.framework)
    known.put_said(said, named)
    row = named.row() if named.release else _row_of_tag(ref)
    if row is not None and said.has_cuda is not False:
        known.put_release(row, ref.tag if row == _row_of_tag(ref) else None)
    known.put_cuda(said.require)
    return known.facts(str(ref))


@dataclass
class _Known:
    """Collects facts about an image; the first value put for a field stays.

    For Jetson images the catalogue gives no CUDA, driver or kernels: its tables describe the other images, and the
    driver comes with the board. 25.08-py3 has CUDA 13.0, but 25.08-py3-igpu has 12.9:
    https://github.com/lkk688/edgeAI/blob/main/jetson/Dockerfile.jp7
    """

    architecture: str
    for_jetson: bool
    values: dict[str, Any] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)
    recalled: set[str] = field(default_factory=set)

    def put(self, name: str, value: object, source: str, recalled: bool = False) -> None:
        if value is None or name in self.values:
            return
        self.values[name] = value
        self.sources[name] = source
        self.recalled |= {name} if recalled else set()

    def put_said(self, said: Configuration, named: Named) -> None:
        """Put what the configuration itself says."""
        self.put("has_cuda", said.has_cuda, REGISTRY)
        self.put("cuda", said.cuda, REGISTRY)
        self.put("driver", said.driver, REGISTRY)
        self.put("require", said.require or None, REGISTRY)
        self.put("framework", named.framework, REGISTRY)
        self.put("release", named.release, REGISTRY)
        self.put("framework_version", named.framework_version, REGISTRY)
        if said.kernels is not None:
            self.put("sass", said.kernels[0], REGISTRY)
            self.put("ptx", said.kernels[1], REGISTRY)

    def put_release(self, row: Release, tag: str | None) -> None:
        """Put what a release's row says; `tag` is None if it is unknown which of the release's tags the image has."""
        same_cuda = self._has_cuda_of(row)
        has_kernels = "sass" in self.values  # a list of kernels without PTX: the image has no PTX
        self.put("has_cuda", True, row.source_of("cuda"))
        self._take(row, "framework", row.framework)
        self._take(row, "release", row.release)
        self._take(row, "framework_version", row.framework_version)
        self._take(row, "python", _python(row, tag))
        self._take(row, "architectures", ("arm64",) if self.for_jetson else row.architectures)
        if self.for_jetson:
            return
        self._take(row, "cuda", row.cuda)
        minimums = {comparable(driver)[0]: driver for driver in row.compat_drivers if "." in driver}
        self.put("compat_minimums", minimums or None, row.source)
        self._take(row, "min_capability", row.min_capability)
        if same_cuda and "driver" not in row.unverified:  # else put_cuda knows it better
            self._take(row, "driver", row.driver)
        if same_cuda and not has_kernels and self.architecture in row.sass:
            self._take(row, "sass", row.sass[self.architecture])
            self._take(row, "ptx", row.ptx)

    def put_cuda(self, require: tuple[str, ...]) -> None:
        """Put what follows from the CUDA version alone."""
        text = self.values.get("cuda")
        if text is None or self.for_jetson:
            return
        is_recalled = "cuda" in self.recalled
        toolkit, floor = cuda.driver_for(text), cuda.minor_floor(text)
        if toolkit is not None:
            is_vague = len(comparable(text)) < 3  # each update of a CUDA release has a driver of its own
            self.put("driver", toolkit.driver, toolkit.source, toolkit.recalled or is_recalled or is_vague)
        if floor is not None:
            self.put("minor_floor", *floor, is_recalled)
        self._put_compat(text, require)

    def _put_compat(self, text: str, require: tuple[str, ...]) -> None:
        row = cuda.compat(self.values.get("release"), text)
        branches, brands = branches_of(require)
        if branches and (row is None or row.branches is None or row.likely):
            self.put("compat_branches", branches, REGISTRY)
            self.put("compat_brands", brands, REGISTRY)
        elif row is not None:
            self.put("compat_branches", row.branches, row.source, row.recalled)
            self.put("compat_brands", row.brands, row.source, row.brands_recalled)
            self.put("compat_likely", row.likely or None, row.source, recalled=True)

    def facts(self, reference: str) -> ImageFacts:
        found = {**self.values, "sources": self.sources, "recalled": frozenset(self.recalled)}
        return ImageFacts(reference, for_jetson=self.for_jetson, **found)

    def _has_cuda_of(self, row: Release) -> bool:
        own = self.values.get("cuda")
        return own is None or comparable(own)[:2] == comparable(row.cuda)[:2]

    def _take(self, row: Release, name: str, value: object) -> None:
        self.put(name, value, row.source_of(name), name in row.recalled_on(self.architecture))


def _row_of_tag(ref: ImageRef) -> Release | None:
    is_nvidia_s = f"/{ref.repository}".endswith(f"/nvidia/{ref.framework}")  # a mirror may add a prefix
    return releases.find(ref.framework, ref.tag) if is_nvidia_s and ref.tag else None


def _python(row: Release, tag: str | None) -> str | None:
    if tag is not None:
        return row.pythons.get(tag.removeprefix(row.release))
    every = set(row.pythons.values())
    return every.pop() if len(every) == 1 else None
