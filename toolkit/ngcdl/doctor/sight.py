"""What was seen of a host, as plain values: links judge these and nothing else. None is unknown, and only that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ngcdl.engines.base import GpuWay
from ngcdl.engines.docker.host import EngineFacts
from ngcdl.errors import NgcdlError
from ngcdl.telemetry.card import Probe


@dataclass(frozen=True)
class Trouble:
    """Why something was not seen. `error` where it is one that ngcdl knows."""

    why: str
    error: NgcdlError | None = None


@dataclass(frozen=True)
class Node:
    """A device of the NVIDIA driver, such as /dev/nvidia0. `is_linked`: /dev/char has a link of its numbers."""

    path: str
    major: int
    minor: int
    is_linked: bool
    can_open: bool = True  # this process may; a job's control group forbids it the cards of others


@dataclass(frozen=True)
class Kernel:
    """What the kernel says. `pci` are the addresses of NVIDIA's cards that are not handed on to virtual machines,
    `driven` those of them that NVIDIA's driver drives.
    """

    pci: tuple[str, ...] | None = None
    driven: frozenset[str] = frozenset()
    module: str | None = None  # version of the loaded nvidia module
    is_loaded: bool = False
    has_nouveau: bool = False
    has_dxg: bool = False  # this is WSL, and Windows has a card of any maker
    has_windows_driver: bool = False  # Windows' own driver of NVIDIA, seen from WSL
    nodes: tuple[Node, ...] = ()
    distribution: tuple[str, ...] = ()  # ID and ID_LIKE of os-release
    machine: str | None = None  # x86_64, aarch64
    cpu_flags: frozenset[str] | None = None
    enforces_selinux: bool | None = None  # None: there is no SELinux
    in_container: bool = False


@dataclass(frozen=True)
class Programs:
    """What is installed on this host: names on PATH, what the toolkit calls itself, and the driver's Debian packages.

    `driver_packages` is empty where there is no dpkg, and where no module of NVIDIA's is loaded: nobody asked then.
    """

    names: frozenset[str] = frozenset()
    toolkit: str | None = None  # 1.17.4, or a distribution's own text
    driver_packages: frozenset[str] = frozenset()  # nvidia-dkms-535-server, ...


@dataclass(frozen=True)
class CdiSpec:
    """A CDI description of NVIDIA GPUs: the driver versions in its file names, its device nodes and its devices."""

    path: Path
    drivers: frozenset[str] = frozenset()
    nodes: frozenset[str] = frozenset()  # /dev/nvidia0, ...
    missing: frozenset[str] = frozenset()  # those nodes that are not there any more
    devices: frozenset[str] = frozenset()  # all, 0, GPU-..., MIG-..., 0:1


@dataclass(frozen=True)
class Engine:
    """The engine that ngcdl talks to, and what this host knows of it where it is here."""

    address: str
    facts: EngineFacts
    way: GpuWay | Trouble
    is_here: bool
    name: str | None = None
    specs: tuple[CdiSpec, ...] = ()
    registered: Path | None = None  # a daemon.json that names the runtime nvidia, whether or not it was read again
    missing_runtime: str | None = None  # the runtime nvidia's program, where it is not there
    memlock_forbidden: bool = False  # learned by an earlier run
    can_raise_limits: bool | None = None  # the daemon may give a container more memlock than it has itself
    memlock_bytes: int | None = None  # its own hard limit; None: unlimited, or unknown


@dataclass(frozen=True)
class Keys:
    """The key for the registry on this host; the key itself is not here."""

    source: str | None = None
    in_clear: bool = False
    error: NgcdlError | None = None
    exposure: str | None = None
    path: Path = Path("config.json")


@dataclass(frozen=True)
class Registry:
    """What the registry answered. `skew_seconds`: this host's clock minus its; `takes_key`: None, none was shown."""

    error: NgcdlError | None = None
    takes_key: bool | None = None
    key_error: NgcdlError | None = None
    skew_seconds: float | None = None


@dataclass(frozen=True)
class Dataset:
    is_cached: bool
    damage: str | None
    cache: Path
    named: str | None = None  # what NGCDL_DATA names: a folder, or synthetic
    is_named_there: bool = True


@dataclass(frozen=True)
class Space:
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class Sight:
    registry_host: str = "nvcr.io"
    kernel: Kernel = Kernel()
    programs: Programs = Programs()
    gpus: Probe | Trouble = field(default_factory=lambda: Probe(absent=True))
    engine: Engine | Trouble = Trouble("nobody looked")
    address: str = "the default socket"  # where the engine was looked for
    keys: Keys | Trouble = Keys()
    registry: Registry | Trouble = Trouble("nobody looked")
    dataset: Dataset | Trouble = Trouble("nobody looked")
    shm: Space | None = None
    proxies: Mapping[str, str] = field(default_factory=dict)  # this shell's, by name in small letters
    context: str | None = None  # the docker command's own, where it names another engine than the default socket's
    wanted_bytes: int | Trouble | None = None  # what the default image takes to be pulled

    @property
    def has_gpu(self) -> bool:
        """Is there an NVIDIA GPU, working or not? A library alone is none, where the PCI bus can be read."""
        if self.kernel.pci or self.kernel.is_loaded or self.kernel.has_windows_driver:
            return True
        if isinstance(self.gpus, Trouble):
            return self.kernel.pci is None
        answered = self.gpus.error is not None and self.gpus.error.answered
        return bool(self.gpus.cards) or (self.kernel.pci is None and answered)

    @property
    def cards_answer(self) -> bool:
        return isinstance(self.gpus, Probe) and self.gpus.error is None and bool(self.gpus.cards)
