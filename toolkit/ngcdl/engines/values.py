"""What goes into an engine and comes out of it: plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from itertools import takewhile
from pathlib import Path

from ngcdl.frozen import dataclass
from ngcdl.spec import RunSpec


@dataclass(frozen=True)
class Order:
    """One start: the spec plus everything it left open. `target` is the image by digest or id, or the local Python;
    `way` is a GpuWay's name; `folder` is the run's, seen inside as inside.RUN. `after`, on a cluster with a queue:
    identities of the jobs that must have ended before this one starts. `cache` is a folder that outlives the run, seen
    inside as inside.CACHE; None: what programs cache is lost when the run ends. `packages` is a folder with the spec's
    packages, seen inside as inside.PACKAGES."""

    spec: RunSpec
    run_id: str
    folder: Path
    target: str
    way: str
    after: tuple[str, ...] = ()
    cache: Path | None = None
    packages: Path | None = None


@dataclass(frozen=True)
class Started:
    """What is known once a job runs, or a cluster has accepted it. `notes` go into the record; `news` are those that
    the caller has not seen on this host before. `pid` is its first process on this host. With `keeps_log`, the engine
    and not launch writes its output to the run's log.txt."""

    notes: tuple[str, ...] = ()
    news: tuple[str, ...] = ()
    pid: int | None = None
    keeps_log: bool = False


@dataclass(frozen=True)
class Chunk:
    """A piece of the job's output, unmodified. `stream` is stdout or stderr; a terminal has stdout only."""

    stream: str
    data: bytes


@dataclass(frozen=True)
class Exit:
    """How a job ended. `code` is None if unknown; `reason` adds what the code alone does not say. `is_stopped`:
    somebody other than this ngcdl ended it, or its time limit did."""

    code: int | None
    oom_killed: bool | None = None
    reason: str | None = None
    finished: float | None = None
    is_stopped: bool = False


# The exit code that Docker gives to a container that ended unseen: https://github.com/docker/for-linux/issues/556
UNSEEN = 255
AWAY = "the engine was away; 255 is its code for an end that it did not see, or the command's own"


@dataclass(frozen=True)
class PullEvent:
    """One step of a pull. `layer` is a short id, None for the image as a whole; bytes are None if not reported."""

    layer: str | None
    status: str
    current_bytes: int | None = None
    total_bytes: int | None = None


ShowPull = Callable[[PullEvent], None]
# The status of a layer whose turn has not come, as Docker's engine words it; ngcdl's own pulls tell its bytes, too.
WAITING = "Waiting"


def short_id(digest: str) -> str:
    """Return the id by which an engine's pull names a layer."""
    return digest.partition(":")[2][:12]


@dataclass(frozen=True)
class LayerStore:
    """The images that an engine holds. `foreign`: why this host can't hand it layers, None if it can.

    `platform` is (os, architecture); `folder` is where it stores images on this host. `chains` maps the digest of each
    image's configuration to its layers' diff IDs (digests of their content), lowest first. `keeps_packed`: it keeps
    layers compressed, as registries serve them."""

    foreign: str | None
    platform: tuple[str, str] = ("linux", "amd64")
    folder: Path | None = None
    chains: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    keeps_packed: bool = False

    def has(self, layers: Sequence[str]) -> int:
        """Count how many of `layers`, from the lowest up, are here. A layer matches only if all below it match, too:
        https://github.com/opencontainers/image-spec/blob/main/config.md#layer-chainid"""
        pairs = (zip(layers, chain, strict=False) for chain in self.chains.values())
        return max((sum(1 for _ in takewhile(lambda two: two[0] == two[1], chain)) for chain in pairs), default=0)


@dataclass(frozen=True)
class GpuWay:
    """How GPUs get into a container. `name` is runtime, device-request, cdi or none; `why` is for people. `described`
    lists the GPUs that CDI describes, as far as known: all, 0, 0:1, GPU-..., MIG-... `is_final`: there is no way, and
    none is worth trying. `by_index`: the toolkit knows no UUIDs."""

    name: str
    why: str
    described: tuple[str, ...] = ()
    is_final: bool = False
    by_index: bool = False


@dataclass(frozen=True)
class Held:
    """An image that an engine has: `id` is the engine's own id of it, `digest` the registry's digest, None if the image
    has none because it was built there or loaded from a file."""

    id: str
    digest: str | None = None


@dataclass(frozen=True)
class EngineFacts:
    """What is known about an engine. `images_folder` is where it stores pulled images.

    `cdi_dirs` is empty if CDI is off; `cdi_devices` are those that the engine reports (since Docker 28.2) and those in
    the descriptions in `cdi_dirs`. `is_desktop`: a virtual machine of Docker Desktop.
    """

    version: str | None = None
    name: str | None = None
    architecture: str | None = None  # amd64, arm64
    images_folder: str | None = None
    free_bytes: int | None = None
    default_runtime: str | None = None
    cdi_dirs: tuple[str, ...] = ()
    cdi_devices: tuple[str, ...] = ()
    is_rootless: bool = False
    is_snap: bool = False
    is_desktop: bool = False
    cgroup_driver: str | None = None
    live_restore: bool | None = None
    authorization_plugins: tuple[str, ...] | None = None
    http_proxy: str | None = None  # without a password
    https_proxy: str | None = None
    runc_version: str | None = None
    kernel: str | None = None
    cores: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True)
class Node:
    """A machine that a cluster may choose, as the cluster describes it; what it does not report is None.

    `architecture` is named as images name it: amd64, arm64, ... The machine has `gpus` cards of the model `card`; a
    machine with two models is two Nodes. `capability` is the cards' compute capability, if it is reported separately
    from their name."""

    name: str
    architecture: str | None = None
    driver: str | None = None
    card: str | None = None
    capability: str | None = None
    gpus: int = 0


def architecture(machine: object) -> str | None:
    """Return the name that images use for an architecture: amd64 for x86_64, arm64 for aarch64, others in lower case.

    https://go.dev/doc/install/source#environment"""
    if not isinstance(machine, str) or not machine:
        return None
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine.lower(), machine.lower())
