"""What is asked: an image, GPUs, mounts, a workload, and all of them together as a RunSpec.

Plain frozen values, no I/O. `parse` raises UsageError with the form it wanted. Equal specs are the same experiment;
`as_json` and `from_json` are each other's inverse, except that values of variables that look like secrets are kept
from every record (REDACTED).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import Any, Self

from ngcdl.errors import BadGpuRequest, BadOption, BadReference

NVCR = "nvcr.io"

# The grammar is that of https://github.com/distribution/reference (reference.go, regexp.go).
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATH = re.compile(rf"{_COMPONENT}(?:/{_COMPONENT})*")
_HOST_PART = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_DOMAIN = re.compile(rf"(?:{_HOST_PART}(?:\.{_HOST_PART})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")
_HEX64 = re.compile(r"[0-9a-f]{64}")


def _is_domain(component: str) -> bool:
    return "." in component or ":" in component or component == "localhost" or component.lower() != component


@dataclass(frozen=True)
class ImageRef:
    """One image by name. At least one of `tag` and `digest` is set; `repository` has no registry in front."""

    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @classmethod
    def parse(cls, text: str, registry: str = NVCR) -> Self:
        """Read `tensorflow:18.01-py2`, `nvidia/tensorflow:...` or a full name; short ones belong to `registry`.

        `registry` may end in a path, for mirrors that keep nvcr.io under a prefix: `mirror.example/nvcr`.
        Raises BadReference with the reason.
        """
        rest, digest = cls._split_digest(text)
        rest, tag = cls._split_tag(text, rest)
        domain, path = cls._split_domain(text, rest, registry)
        if len(domain) + 1 + len(path) > 255:
            raise BadReference(f"{text[:60]}...: a name has at most 255 characters.")
        if tag is None and digest is None:
            raise BadReference(
                f"{text}: which release? NGC has no 'latest'.",
                f"Its tags, and the newest that runs here:\n    ngcdl images {text}\n    ngcdl resolve {text}",
            )
        return cls(domain, path, tag, digest)

    @staticmethod
    def _split_digest(text: str) -> tuple[str, str | None]:
        if text != text.strip() or not text:
            raise BadReference(f"{text!r} is no image name: it is empty or has blanks around it.")
        if "://" in text:
            raise BadReference(f"{text}: an image name has no scheme.", f"    {text.split('://', 1)[1]}")
        rest, at, digest = text.partition("@")
        if not at:
            return rest, None
        if not _DIGEST.fullmatch(digest):
            raise BadReference(f"{text}: after @ stands a digest, sha256: and 64 hexadecimal digits.")
        if digest.startswith("sha256:") and not _SHA256.fullmatch(digest):
            raise BadReference(f"{text}: a sha256 digest has 64 small hexadecimal digits.")
        return rest, digest

    @staticmethod
    def _split_tag(text: str, rest: str) -> tuple[str, str | None]:
        slash = rest.rfind("/")
        colon = rest.find(":", slash + 1)
        if colon < 0:
            return rest, None
        name, tag = rest[:colon], rest[colon + 1 :]
        if not _TAG.fullmatch(tag):
            raise BadReference(f"{text}: {tag!r} is no tag: letters, digits, _ . -, at most 128, not . or - first.")
        return name, tag

    @staticmethod
    def _split_domain(text: str, rest: str, registry: str) -> tuple[str, str]:
        first, slash, remainder = rest.partition("/")
        if slash and _is_domain(first):
            domain, path = first, remainder
        else:
            domain, _, prefix = registry.partition("/")
            path = rest if slash else f"nvidia/{rest}"
            path = f"{prefix}/{path}" if prefix else path
        if not _DOMAIN.fullmatch(domain):
            raise BadReference(f"{text}: {domain!r} is no registry host.")
        if path != path.lower():
            raise BadReference(f"{text}: the repository must be lower case.", f"    {text.lower()}")
        if _HEX64.fullmatch(path):
            raise BadReference(f"{text}: 64 hexadecimal digits are an image id, not a name.")
        if not _PATH.fullmatch(path):
            raise BadReference(f"{text}: {path!r} is no repository: words of a-z 0-9, joined by . _ - and /.")
        return domain, path

    @property
    def name(self) -> str:
        """The repository with its registry, without tag and digest: what `docker` calls the name."""
        return f"{self.registry}/{self.repository}"

    @property
    def framework(self) -> str:
        """The last word of the repository: tensorflow, pytorch, ..."""
        return self.repository.rsplit("/", 1)[-1]

    def pinned(self, digest: str) -> str:
        """Name this image by `digest` only, as it is launched."""
        return f"{self.name}@{digest}"

    def __str__(self) -> str:
        tag = f":{self.tag}" if self.tag else ""
        digest = f"@{self.digest}" if self.digest else ""
        return f"{self.name}{tag}{digest}"


@dataclass(frozen=True)
class GpuRequest:
    """Which GPUs: `kind` is auto, none, all, count or devices. `count` >= 1; `devices` are indices or UUIDs.

    auto = what there is, and the CPU, said loudly, where there is nothing; `devices` are then the cards it chose.
    Everything but auto and none is a demand.
    """

    kind: str = "auto"
    count: int | None = None
    devices: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read auto, none, all, N, a list of indices or UUIDs, or Docker's own forms. Raises BadGpuRequest."""
        value = text.strip()
        if value in ("auto", "none", "all"):
            return cls(value)
        if value.startswith("auto:"):  # how a record keeps the card that auto chose
            return cls("auto", devices=cls._devices(value.removeprefix("auto:")))
        if value in ("-1", "count=all", "count=-1"):
            return cls("all")
        if value.startswith("count="):
            value = value.removeprefix("count=")
        if re.fullmatch(r"0+", value):
            raise BadGpuRequest(
                f"--gpus {value} would ask Docker for no GPU at all.",
                "The card with index 0:\n    --gpus 0,\nOne free card:\n    --gpus 1\nNone:\n    --gpus none",
            )
        if re.fullmatch(r"[0-9]{1,6}", value):
            return cls("count", count=int(value))
        return cls("devices", devices=cls._devices(value))

    @staticmethod
    def _devices(value: str) -> tuple[str, ...]:
        quoted = len(value) > 1 and value[0] in "\"'" and value[-1] == value[0]
        inner = value[1:-1] if quoted else value
        if "capabilities=" in inner or "driver=" in inner:
            raise BadGpuRequest(
                f"--gpus {value}: driver= and capabilities= are not taken here.",
                "Say which cards; capabilities are a variable:\n    --gpus all -e NVIDIA_DRIVER_CAPABILITIES=all",
            )
        if inner.startswith("device="):
            inner = inner.removeprefix("device=")
            if "," in inner and not quoted:
                raise BadGpuRequest(
                    f"--gpus {value}: without inner quotes Docker takes what follows the comma for a count.",
                    f"    --gpus {inner}",
                )
        items = tuple(item.strip() for item in inner.split(",") if item.strip())
        good = re.compile(r"[0-9]{1,6}(:[0-9]{1,6})?|(GPU|MIG)-[0-9A-Za-z/-]+")
        if not items or not all(good.fullmatch(item) for item in items) or len(set(items)) != len(items):
            raise BadGpuRequest(
                f"--gpus {value!r} is not understood.",
                "auto, none, all, a number of free cards (2), indices (0,2 or 0,) or UUIDs (GPU-...)",
            )
        return items

    @property
    def demanded(self) -> bool:
        """Must a GPU be there? (auto takes what there is.)"""
        return self.kind in ("all", "count", "devices")

    def __str__(self) -> str:
        if self.kind == "count":
            return str(self.count)
        if self.kind == "devices":
            lonely_index = len(self.devices) == 1 and self.devices[0].isdecimal()
            return self.devices[0] + "," if lonely_index else ",".join(self.devices)
        return f"auto:{','.join(self.devices)}" if self.devices else self.kind


@dataclass(frozen=True)
class Mount:
    """A folder or file of the host, absolute, seen in the container at `container`. A bare word is a Docker volume."""

    host: str
    container: str
    writable: bool = False

    @classmethod
    def parse(cls, text: str, here: str, home: str) -> Self:
        """Read Docker's `-v HOST:CONTAINER[:ro|rw]`; `./x`, `~` and relative paths are taken from `here` and `home`."""
        host, colon, rest = text.partition(":")
        container, _, mode = rest.partition(":")
        if not colon or not host or not container.startswith("/"):
            raise BadOption(f"-v {text}: wanted HOST:CONTAINER or HOST:CONTAINER:ro, CONTAINER from / on.")
        options = [option for option in mode.split(",") if option]
        unknown = [option for option in options if option not in ("ro", "rw")]
        if unknown or len(options) > 1:
            raise BadOption(f"-v {text}: {mode!r} is not taken; ro or rw is.")
        if host == "~" or host.startswith("~/"):
            host = home + host[1:]
        elif host.startswith(".") or ("/" in host and not host.startswith("/")):
            host = str(PurePosixPath(here) / host)
        return cls(_normal(host) if "/" in host else host, container, writable=options != ["ro"])

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `str` gave. There the host's part may hold colons; the container's never does."""
        pair = text.removesuffix(":ro")
        host, _, container = pair.rpartition(":")
        return cls(host, container, writable=pair == text)

    @property
    def is_volume(self) -> bool:
        return not self.host.startswith("/")

    def __str__(self) -> str:
        return f"{self.host}:{self.container}" + ("" if self.writable else ":ro")


def _normal(path: str) -> str:
    """Take out . and .. by name alone (no look at the disk)."""
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            parts = parts[:-1]
        elif part not in ("", "."):
            parts.append(part)
    return "/" + "/".join(parts)


@dataclass(frozen=True)
class Port:
    """A port of the container published on the host; `address` "" means every interface, as Docker's -p does."""

    host: int | None
    container: int
    address: str = ""
    protocol: str = "tcp"

    @classmethod
    def parse(cls, text: str) -> Self:
        host = r"(?:(?:(?P<ip>\[[0-9A-Fa-f:.]+\]|[0-9.]+):)?(?P<host>[0-9]{0,5}):)?"
        match = re.fullmatch(host + r"(?P<container>[0-9]{1,5})(?:/(?P<proto>tcp|udp))?", text)
        numbers = [int(match[name]) for name in ("host", "container") if match[name]] if match else []
        if not match or any(not 0 < number < 65536 for number in numbers) or not _is_address(match["ip"]):
            raise BadOption(f"-p {text}: wanted [ADDRESS:][HOST:]CONTAINER[/udp], such as 8888:8888.")
        published = int(match["host"]) if match["host"] else None
        return cls(published, int(match["container"]), (match["ip"] or "").strip("[]"), match["proto"] or "tcp")

    def __str__(self) -> str:
        ip = f"[{self.address}]" if ":" in self.address else self.address
        address = f"{ip}:" if ip else ""
        tail = "" if self.protocol == "tcp" else f"/{self.protocol}"
        return f"{address}{self.host if self.host is not None else ''}:{self.container}{tail}"


def _is_address(text: str | None) -> bool:
    try:
        return text is None or bool(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        return False


@dataclass(frozen=True)
class Workload:
    """A bundled training. `steps` is the number to reach, `batch` examples a step, `data` auto, synthetic or a folder.

    `device` is auto, gpu or cpu: what the framework must compute on, whatever cards it is shown. `resume` is the id of
    the run whose last checkpoint it goes on from. `threads` processor threads compute, None: as many as there are.
    """

    name: str
    steps: int = 1000
    batch: int = 128
    seed: int = 0
    data: str = "auto"
    device: str = "auto"
    evaluate: bool = True
    resume: str | None = None
    threads: int | None = None


@dataclass(frozen=True)
class RunSpec:
    """Everything that one run is asked to be. `image` None means the local engine: this host's own Python.

    `command` () starts what the image starts by itself. `user` is uid:gid or None for the image's own.
    `ulimits` are name -> (soft, hard); `environment` holds only what was asked for, never a key.
    """

    image: ImageRef | None
    command: tuple[str, ...] = ()
    gpus: GpuRequest = field(default_factory=GpuRequest)
    mounts: tuple[Mount, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    ports: tuple[Port, ...] = ()
    # NVIDIA's documented flags: https://docs.nvidia.com/deeplearning/frameworks/user-guide/index.html
    shm_bytes: int = 1 << 30
    ulimits: tuple[tuple[str, int], ...] = (("memlock", -1), ("stack", 67108864))
    user: str | None = None
    workdir: str | None = None
    tty: bool = False
    stdin: bool = False
    workload: Workload | None = None

    def without_secrets(self) -> Self:
        """Give the spec as people may see it: variables and words that look like a secret are REDACTED."""
        environment = tuple((name, redacted(name, value)) for name, value in self.environment)
        return replace(self, command=redacted_words(self.command), environment=environment)

    def as_json(self, secrets: bool = False) -> dict[str, Any]:
        """Give the spec as a record keeps it: without `secrets`, what looks like one is REDACTED, in words too."""
        return {
            "image": str(self.image) if self.image else None,
            "command": list(self.command if secrets else redacted_words(self.command)),
            "gpus": str(self.gpus),
            "mounts": [str(mount) for mount in self.mounts],
            "environment": {name: value if secrets else redacted(name, value) for name, value in self.environment},
            "ports": [str(port) for port in self.ports],
            "shm_bytes": self.shm_bytes,
            "ulimits": dict(self.ulimits),
            "user": self.user,
            "workdir": self.workdir,
            "tty": self.tty,
            "stdin": self.stdin,
            "workload": vars(self.workload) if self.workload else None,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        workload = data.get("workload")
        return cls(
            image=ImageRef.parse(data["image"]) if data.get("image") else None,
            command=tuple(data.get("command", ())),
            gpus=GpuRequest.parse(data.get("gpus", "auto")),
            mounts=tuple(Mount.from_text(text) for text in data.get("mounts", ())),
            environment=tuple(data.get("environment", {}).items()),
            ports=tuple(Port.parse(text) for text in data.get("ports", ())),
            shm_bytes=data.get("shm_bytes", 1 << 30),
            ulimits=tuple(data.get("ulimits", {}).items()),
            user=data.get("user"),
            workdir=data.get("workdir"),
            tty=data.get("tty", False),
            stdin=data.get("stdin", False),
            workload=Workload(**workload) if workload else None,
        )


REDACTED = "***"
_SECRET_OPTION = re.compile(r"--[\w-]*(?:key|token|password|secret)[\w-]*", re.IGNORECASE)
_NGC_KEY = re.compile(r"nvapi-[\w-]+")
_SECRET_NAME = re.compile(r"KEY|TOKEN|SECRET|PASS|CREDENTIAL|AUTH", re.IGNORECASE)


def redacted(name: str, value: str) -> str:
    """Give `value`, or REDACTED where the name of the variable, or an NGC key in it, says that it is a secret."""
    return REDACTED if _SECRET_NAME.search(name) or "nvapi-" in value else value


def redacted_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Give `words` with REDACTED for every NGC key in them, and for the values of options that look like a secret's."""
    shown: list[str] = []
    is_value = False
    for word in words:
        name, equals, _ = word.partition("=")
        is_option = bool(_SECRET_OPTION.fullmatch(name))
        if is_option and equals:
            shown.append(f"{name}={REDACTED}")
        else:
            shown.append(REDACTED if is_value and not word.startswith("-") else _NGC_KEY.sub(REDACTED, word))
        is_value = is_option and not equals
    return tuple(shown)


def parse_bytes(text: str) -> int:
    """Read 1g, 512m, 64k or a number of bytes, in Docker's powers of 1024. Raises BadOption."""
    match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    number = int(float(match[1]) * 1024 ** " kmgt".index(match[2] or " ")) if match else 0
    if number < 1:
        raise BadOption(f"{text!r} is no size: wanted 1g, 512m or a number of bytes.")
    return number


def parse_environment(text: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Read -e NAME=VALUE, or NAME alone for the caller's own value. Raises BadOption."""
    name, equals, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", name) or "\0" in value:
        raise BadOption(f"-e {name}: wanted NAME=VALUE.")
    if not equals:
        if name not in environ:
            raise BadOption(f"-e {name}: that variable is not set here.", f"    -e {name}=VALUE")
        value = environ[name]
    return name, value
