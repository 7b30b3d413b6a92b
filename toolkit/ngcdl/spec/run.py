"""One run as it is asked for: image, GPUs, mounts and a workload, all together."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any, Self

from ngcdl.errors import BadOption
from ngcdl.frozen import dataclass
from ngcdl.spec.container import Mount, Port, parse_bytes, parse_cpus, parse_environment
from ngcdl.spec.gpus import GpuRequest
from ngcdl.spec.image import ImageRef
from ngcdl.spec.placement import Placement
from ngcdl.spec.sampling import USUAL_SAMPLE_SECONDS, parse_sample_seconds
from ngcdl.spec.secrets import redacted, redacted_words
from ngcdl.spec.workload import Workload


@dataclass(frozen=True)
class RunSpec:
    """Everything that one run is asked to be. `image` None means the local engine: a training runs with this host's own
    Python, a command as it would without ngcdl.

    `command` () starts the image's default command. `packages` are lines for pip: what is added to the image. `user` is
    uid:gid, or None for the image's own. `ulimits` are (name, number), for both the soft and the hard limit. They and
    `shm_bytes` mean nothing without an image. `cpu_limit` and `memory_bytes` apply to each node; None: the engine's
    default. `environment` holds only what was asked for, never a key. `placement` None: the run is on one machine, this
    one or its engine's; otherwise `gpus` are per node. `sample_seconds` is the time between two samples.
    """

    image: ImageRef | None
    command: tuple[str, ...] = ()
    gpus: GpuRequest = field(default_factory=GpuRequest)
    mounts: tuple[Mount, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    packages: tuple[str, ...] = ()
    ports: tuple[Port, ...] = ()
    # NVIDIA's documented flags: https://docs.nvidia.com/deeplearning/frameworks/user-guide/index.html
    shm_bytes: int = 1 << 30
    ulimits: tuple[tuple[str, int], ...] = (("memlock", -1), ("stack", 67108864))
    cpu_limit: float | None = None
    memory_bytes: int | None = None
    user: str | None = None
    workdir: str | None = None
    tty: bool = False
    stdin: bool = False
    workload: Workload | None = None
    placement: Placement | None = None
    sample_seconds: float = USUAL_SAMPLE_SECONDS

    @property
    def placed(self) -> Placement:
        """The placement, with the defaults of all its options if none was asked for."""
        return self.placement or Placement()

    def without_secrets(self) -> Self:
        """Return the spec as people may see it, with variables and words that look like secrets REDACTED."""
        environment = tuple((name, redacted(name, value)) for name, value in self.environment)
        return replace(self, command=redacted_words(self.command), environment=environment)

    def as_json(self, secrets: bool = False) -> dict[str, Any]:
        """Return the spec as a record keeps it: without secrets, unless `secrets`."""
        shown = self if secrets else self.without_secrets()
        return {
            "image": str(self.image) if self.image else None,
            "command": list(shown.command),
            "gpus": str(self.gpus),
            "mounts": [str(mount) for mount in self.mounts],
            "environment": dict(shown.environment),
            "packages": list(self.packages),
            "ports": [str(port) for port in self.ports],
            "shm_bytes": self.shm_bytes if self.image else None,
            "ulimits": dict(self.ulimits) if self.image else {},
            "cpu_limit": self.cpu_limit,
            "memory_bytes": self.memory_bytes,
            "user": self.user,
            "workdir": self.workdir,
            "tty": self.tty,
            "stdin": self.stdin,
            "workload": vars(self.workload) if self.workload else None,
            "placement": self.placement.as_json() if self.placement else None,
            "sample_seconds": self.sample_seconds,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """Parse the output of as_json, perhaps somebody else's. Raise UsageError if a part can't have been typed, and
        TypeError, ValueError or AttributeError if one has the wrong type."""
        workload, placement = data.get("workload"), data.get("placement")
        of_container: dict[str, Any] = {}
        if data.get("shm_bytes", 0) is not None:  # null if the run had no container
            of_container["shm_bytes"] = int(data.get("shm_bytes", cls.shm_bytes))
            of_container["ulimits"] = tuple(_limit(name, value) for name, value in data.get("ulimits", {}).items())
        cpus, memory = data.get("cpu_limit"), data.get("memory_bytes")
        return cls(
            image=ImageRef.parse(data["image"]) if data.get("image") else None,
            command=tuple(_text(word) for word in data.get("command", ())),
            gpus=GpuRequest.parse(data.get("gpus", "auto")),
            mounts=tuple(_mount(text) for text in data.get("mounts", ())),
            environment=tuple(_variable(name, value) for name, value in data.get("environment", {}).items()),
            packages=tuple(_line(text) for text in data.get("packages", ())),
            ports=tuple(Port.parse(text) for text in data.get("ports", ())),
            cpu_limit=None if cpus is None else parse_cpus(str(cpus)),
            memory_bytes=None if memory is None else parse_bytes(str(memory), "--memory "),
            user=_user(data["user"]) if data.get("user") else None,
            workdir=_text(data["workdir"]) if data.get("workdir") else None,
            tty=data.get("tty", False),
            stdin=data.get("stdin", False),
            workload=Workload(**workload) if workload else None,
            placement=Placement.from_json(placement) if placement else None,
            sample_seconds=parse_sample_seconds(float(data.get("sample_seconds", cls.sample_seconds))),
            **of_container,
        )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:60]!r} is not text")
    return value


def _line(value: object) -> str:
    if "\n" in (line := _text(value)):
        raise BadOption(f"--pip {line[:60]!r}: must be one line.")
    return line


def _mount(text: str) -> Mount:
    mount = Mount.from_text(text)
    if not mount.host or not mount.container.startswith("/"):
        raise BadOption(f"-v {text}: must be HOST:CONTAINER, CONTAINER an absolute path.")
    return mount


def _variable(name: str, value: object) -> tuple[str, str]:
    if parse_environment(f"{name}={_text(value)}", {}) != (name, value):
        raise BadOption(f"-e {name}: must be NAME=VALUE.")
    return name, _text(value)


def _limit(name: str, value: object) -> tuple[str, int]:
    if not re.fullmatch(r"[a-z]+", name) or not isinstance(value, int):
        raise BadOption(f"--ulimit {name}={value}: must be NAME=NUMBER.")
    return name, value


def _user(text: str) -> str:
    if not re.fullmatch(r"[0-9]+:[0-9]+", text):
        raise BadOption(f"user {text}: must be two numbers, UID:GID.")
    return text
