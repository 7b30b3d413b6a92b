"""What was seen of a host, as plain values: links judge these and nothing else. None means unknown, and only that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from ngcdl.engines.values import EngineFacts, GpuWay
from ngcdl.errors import NgcdlError
from ngcdl.frozen import dataclass
from ngcdl.registry.credentials import Exposure
from ngcdl.telemetry.card import Card, Probe

# CUDA needs this device, nvidia-smi does not: https://github.com/NVIDIA/nvidia-modprobe
UVM = "/dev/nvidia-uvm"


@dataclass(frozen=True)
class Trouble:
    """Why something was not seen. `error` is ngcdl's own error for that, if there is one; `is_late`: nothing came in
    time."""

    why: str
    error: NgcdlError | None = None
    is_late: bool = False


@dataclass(frozen=True)
class Node:
    """A device node of the NVIDIA driver, such as /dev/nvidia0. `is_linked`: /dev/char links to it by its numbers."""

    path: str
    is_linked: bool
    can_open: bool = True  # by this process; a job's cgroup denies it the cards of other jobs


@dataclass(frozen=True)
class Kernel:
    """What the kernel says. `pci` holds the addresses of the NVIDIA cards not passed through to virtual machines,
    `driven` those bound to NVIDIA's driver.
    """

    pci: tuple[str, ...] | None = None
    driven: frozenset[str] = frozenset()
    module: str | None = None  # version of the loaded nvidia module
    is_loaded: bool = False
    is_open: bool | None = None  # the loaded module is NVIDIA's open one, not its proprietary one
    has_nouveau: bool = False
    has_dxg: bool = False  # this is WSL, and Windows has a card of any vendor
    has_windows_driver: bool = False  # Windows' NVIDIA driver, seen from WSL
    nodes: tuple[Node, ...] = ()
    distribution: tuple[str, ...] = ()  # ID and ID_LIKE of os-release
    machine: str | None = None  # x86_64, aarch64
    cpu_flags: frozenset[str] | None = None
    enforces_selinux: bool | None = None  # None: no SELinux
    in_container: bool = False
    is_tegra: bool = False  # a Jetson: its cards have device nodes of their own
    in_user_namespace: bool = False  # root here is not the host's root, as in an unprivileged container of LXC


@dataclass(frozen=True)
class ToolkitConfig:
    """The settings in the config.toml of NVIDIA's container toolkit; without that file, its defaults."""

    mode: str = "auto"  # of the runtime nvidia: auto, legacy, csv, cdi, jit-cdi
    takes_variable: bool = True  # containers that are not privileged may name their GPUs in NVIDIA_VISIBLE_DEVICES
    no_cgroups: bool = False  # in legacy mode: containers are not allowed to use the devices that they get


@dataclass(frozen=True)
class Programs:
    """What is installed on this host: programs on PATH, the toolkit, and the driver's Debian packages.

    `driver_packages` is empty without dpkg, and if no NVIDIA module is loaded, because dpkg is not queried then.
    """

    names: frozenset[str] = frozenset()
    toolkit: str | None = None  # 1.17.4, or a distribution's own version string
    driver_packages: frozenset[str] = frozenset()  # nvidia-dkms-535-server, ...
    toolkit_config: ToolkitConfig | None = ToolkitConfig()  # None: the file is there, but can't be read


@dataclass(frozen=True)
class CdiSpec:
    """A CDI description of NVIDIA GPUs: the driver versions in the library names, and its devices."""

    path: Path
    drivers: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()  # its device nodes that no longer exist: /dev/nvidia0, ...
    devices: frozenset[str] = frozenset()  # all, 0, GPU-..., MIG-..., 0:1
    lacks_uvm: bool = False  # the description has cards, but not /dev/nvidia-uvm
    renumbered: frozenset[str] = frozenset()  # its device nodes that have another number now: /dev/nvidia-uvm, ...


@dataclass(frozen=True)
class Engine:
    """The engine that ngcdl talks to, and, if the engine runs here, what this host's files and processes show of it."""

    address: str
    facts: EngineFacts
    way: GpuWay | Trouble
    is_here: bool
    specs: tuple[CdiSpec, ...] = ()
    registered: Path | None = None  # a daemon.json that names the runtime nvidia, reloaded or not
    missing_runtime: str | None = None  # the runtime nvidia's program, if it is missing
    memlock_forbidden: bool = False  # learned by an earlier run
    can_raise_limits: bool | None = None  # the daemon may give a container more memlock than its own
    memlock_bytes: int | None = None  # the daemon's hard limit; None: unlimited, or unknown


@dataclass(frozen=True)
class Keys:
    """Where this host keeps the key for the registry; the key itself is not included."""

    source: str | None = None
    in_clear: bool = False
    error: NgcdlError | None = None
    exposure: Exposure | None = None


@dataclass(frozen=True)
class Registry:
    """What the registry answered. `skew_seconds` is this host's clock minus the registry's.

    `takes_key` is None if the key was not checked: there is none, or the registry asks nobody to sign in.
    """

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
    settings_error: NgcdlError | None = None  # why ngcdl's own settings can't be read; registry_host is unknown then
    kernel: Kernel = Kernel()
    programs: Programs = Programs()
    gpus: Probe | Trouble = field(default_factory=lambda: Probe(absent=True))
    engine: Engine | Trouble = Trouble("nobody looked")
    address: str = "the default socket"  # where ngcdl looked for the engine
    keys: Keys | Trouble = Keys()
    registry: Registry | Trouble = Trouble("nobody looked")
    dataset: Dataset | Trouble = Trouble("nobody looked")
    shm: Space | None = None
    proxies: Mapping[str, str] = field(default_factory=dict)  # this shell's, by name in lower case
    context: str | None = None  # the docker command's context, if that names another engine than the default socket's
    wanted_bytes: int | Trouble | None = None  # what pulling the default image takes

    @property
    def has_gpu(self) -> bool:
        """Whether there is an NVIDIA GPU, working or not. A library alone counts only if the PCI bus can't be read."""
        if self.kernel.pci or self.kernel.is_loaded or self.kernel.has_windows_driver or self.kernel.is_tegra:
            return True
        if isinstance(self.gpus, Trouble):
            return self.kernel.pci is None
        answered = self.gpus.error is not None and self.gpus.error.answered
        return bool(self.gpus.cards) or (self.kernel.pci is None and answered)

    @property
    def cards(self) -> tuple[Card, ...]:
        """The cards, as NVML reports them; () if NVML does not answer."""
        return self.gpus.cards if isinstance(self.gpus, Probe) and self.gpus.error is None else ()
