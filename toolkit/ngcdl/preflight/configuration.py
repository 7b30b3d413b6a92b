"""What an image's configuration says in its environment variables and labels. Pure.

Anybody may have written these strings: a value that is not in NVIDIA's form is unknown, and nothing here raises.
https://github.com/opencontainers/image-spec/blob/main/config.md
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ngcdl.catalog import releases
from ngcdl.catalog.releases import Release
from ngcdl.catalog.rows import comparable
from ngcdl.frozen import dataclass

# The cards that a cuda-compat package works on, as its own note lists them (12.9, 13.1); an image's require string
# may admit more. https://docs.nvidia.com/deploy/cuda-compatibility/forward-compatibility.html
_DATA_CENTRE = frozenset(
    ("quadro", "tesla", "vapps", "vpc", "vcs", "vws", "cloudgaming", "quadrortx", "nvidiartx", "nvidia")
)
_CUDA = re.compile(r"\d{1,3}(?:\.\d{1,4}){1,3}", re.ASCII)
_DRIVER = re.compile(r"\d{3,4}(?:\.\d{1,4}){1,2}", re.ASCII)
_RELEASE = re.compile(r"(\d{2}\.(?:0[1-9]|1[0-2]))(?:-(tf[12]))?(?:-py[23])?", re.ASCII)
_SOFTWARE = re.compile(r"\d[\w.+-]{0,60}", re.ASCII)
_CAPABILITY = re.compile(r"(?:sm_)?(\d{1,2})\.?(\d)(\+PTX)?", re.ASCII | re.IGNORECASE)
_BRANCH = re.compile(r"brand=(\w+),driver>=(\d{3,4}),driver<(\d{3,4})", re.ASCII)
_JETPACK = "NVIDIA_REQUIRE_JETPACK"
_LONGEST = 1 << 16  # characters; nvidia/cuda's require strings have about 3000
_MOST = 4096  # variables


@dataclass(frozen=True)
class Configuration:
    """`variables` are the environment's. `readable` is False if they can't be read; an image may also have none."""

    variables: Mapping[str, str]
    labels: Mapping[str, str]
    architecture: str | None
    readable: bool

    @classmethod
    def of(cls, blob: Mapping[str, object]) -> Configuration:
        inner = blob.get("config")
        listed = inner.get("Env") if isinstance(inner, Mapping) else None
        readable = isinstance(inner, Mapping) and isinstance(listed, list | None)
        own = blob.get("architecture")
        architecture = own if isinstance(own, str) and re.fullmatch(r"[a-z0-9_]{1,20}", own) else None
        return cls(_variables(listed), _labels(inner), architecture, readable)

    @property
    def cuda(self) -> str | None:
        return _whole(_CUDA, self.variables.get("CUDA_VERSION"))

    @property
    def driver(self) -> str | None:
        return _whole(_DRIVER, self.variables.get("CUDA_DRIVER_VERSION"))

    @property
    def has_cuda(self) -> bool | None:
        """Whether the image has CUDA; None if it uses GPUs but names no CUDA version, or can't be read."""
        if "CUDA_VERSION" in self.variables or "com.nvidia.cuda.version" in self.labels:
            return True
        signs = any(name.startswith(("NVIDIA_", "CUDA_", "TORCH_CUDA_")) for name in self.variables)
        return None if signs or not self.readable else False

    @property
    def wants_jetpack(self) -> bool:
        """Whether the image is made for a Jetson.

        https://github.com/NVIDIA/nvidia-container-toolkit/blob/main/internal/config/image
        """
        return any(name.startswith(_JETPACK) for name in self.variables)

    @property
    def kernels(self) -> tuple[tuple[str, ...], str | None] | None:
        """The compute capabilities the image was compiled for, and the newest one in PTX; None if it has no list."""
        lists = (kernels(self.variables.get(name)) for name in ("TORCH_CUDA_ARCH_LIST", "CUDA_ARCH_LIST"))
        return next((found for found in lists if found), None)

    @property
    def require(self) -> tuple[str, ...]:
        """The constraints that the legacy hook enforces.

        https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/docker-specialized.html#constraints
        """
        if self.variables.get("NVIDIA_DISABLE_REQUIRE", "").lower() in ("1", "t", "true"):
            return ()
        asked = {name: text for name, text in self.variables.items() if name.startswith("NVIDIA_REQUIRE_")}
        if "NVIDIA_REQUIRE_CUDA" not in asked and self.cuda:  # an image older than these variables
            asked["NVIDIA_REQUIRE_CUDA"] = "cuda>=" + ".".join(self.cuda.split(".")[:2])
        return tuple(text for name, text in sorted(asked.items()) if not name.startswith(_JETPACK))


@dataclass(frozen=True)
class Named:
    """The framework, its version and NVIDIA's release, as a configuration names them."""

    framework: str | None = None
    release: str | None = None
    variant: str | None = None
    framework_version: str | None = None

    @classmethod
    def of(cls, configuration: Configuration, called: str) -> Named:
        """Read a configuration. If an image has several frameworks, the one that the image is `called` after counts."""
        for name in sorted(releases.frameworks(), key=lambda one: one != called):
            found = cls._of(configuration, name)
            if found.release or found.framework_version:
                return found
        return cls()

    @classmethod
    def _of(cls, configuration: Configuration, name: str) -> Named:
        label = configuration.labels.get(f"com.nvidia.{name}.version", "")  # some images have the release here
        release = _RELEASE.fullmatch(configuration.variables.get(f"NVIDIA_{name.upper()}_VERSION", ""))
        named = release or _RELEASE.fullmatch(label)
        own = _whole(_SOFTWARE, configuration.variables.get(f"{name.upper()}_VERSION"))
        if own is None and not _RELEASE.fullmatch(label):
            own = _whole(_SOFTWARE, label)
        return cls(name, named[1] if named else None, named[2] if named else None, own)

    def row(self) -> Release | None:
        """Return the catalogue's row, None if there is none; if a release has TensorFlow 1 and 2, the fitting one's."""
        rows = [row for row in releases.releases(self.framework) if row.release == self.release]
        major = self.framework_version.partition(".")[0] if self.framework_version else None
        fitting = [row for row in rows if row.variant in (None, self.variant or f"tf{major}")]
        return fitting[0] if fitting else None


def kernels(text: str | None) -> tuple[tuple[str, ...], str | None] | None:
    """Parse a list such as `7.5 8.0 9.0+PTX` into the compute capabilities, ascending, and the newest one in PTX.

    Return None if any word is not understood: an incomplete list would refuse the cards that it lacks.
    """
    words = re.split(r"[\s,;]+", text.strip()) if text else []
    # 9.0a runs on 9.0 alone, but no other 9.x exists: it is read as 9.0. For other majors that would promise too much.
    found = [_CAPABILITY.fullmatch(re.sub(r"^((?:sm_)?9\.?0)a", r"\1", word)) for word in words]
    parts = [(f"{int(match[1])}.{match[2]}", bool(match[3])) for match in found if match]
    if not parts or len(parts) < len(words):
        return None
    compiled = sorted({capability for capability, _ in parts}, key=comparable)
    return tuple(compiled), max((capability for capability, ptx in parts if ptx), key=comparable, default=None)


def branches_of(require: Iterable[str]) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the driver branches that require strings admit for some brands only, and the brands with the longest list.

    nvidia/cuda has `cuda>=13.0 brand=tesla,driver>=535,driver<536 ...`: these are the branches older than CUDA's own
    driver that the image's cuda-compat package supports.
    """
    of_brand: dict[str, set[int]] = {}
    for word in (word for text in require for word in text.split()):
        match = _BRANCH.fullmatch(word)
        if match and match[1] in _DATA_CENTRE and int(match[3]) == int(match[2]) + 1:
            of_brand.setdefault(match[1], set()).add(int(match[2]))
    longest = max(of_brand.values(), key=len, default=set())
    return tuple(sorted(longest)), tuple(sorted(brand for brand, own in of_brand.items() if own >= longest))


def _variables(listed: object) -> dict[str, str]:
    pairs = listed[:_MOST] if isinstance(listed, list) else []
    split = (pair.partition("=") for pair in pairs if isinstance(pair, str) and len(pair) <= _LONGEST)
    return {name: value for name, equals, value in split if equals}


def _labels(inner: object) -> dict[str, str]:
    labels = inner.get("Labels") if isinstance(inner, Mapping) else None
    pairs = labels.items() if isinstance(labels, Mapping) else ()
    return {name: value for name, value in pairs if isinstance(value, str)}


def _whole(form: re.Pattern[str], text: str | None) -> str | None:
    return text if text is not None and form.fullmatch(text) else None
