"""What a container gets besides its image: mounts, ports, sizes, CPUs, variables."""

from __future__ import annotations

import ipaddress
import math
import posixpath
import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Self

from ngcdl.errors import BadOption
from ngcdl.frozen import dataclass

# Linux's limits in the order of their numbers, which are the same on amd64 and arm64:
# https://github.com/torvalds/linux/blob/v6.12/include/uapi/asm-generic/resource.h
LIMITS = (
    *("cpu", "fsize", "data", "stack", "core", "rss", "nproc", "nofile", "memlock"),
    *("as", "locks", "sigpending", "msgqueue", "nice", "rtprio", "rttime"),
)


@dataclass(frozen=True)
class Mount:
    """A mount at `container`: `host` is the absolute path of a folder or file, or the name of a Docker volume."""

    host: str
    container: str
    writable: bool = False

    @classmethod
    def parse(cls, text: str, here: str, home: str) -> Self:
        """Parse Docker's `-v HOST:CONTAINER[:ro|rw]`; resolve `./x` and relative paths from `here`, `~` from `home`."""
        host, colon, rest = text.partition(":")
        container, _, mode = rest.partition(":")
        if not colon or not host or not container.startswith("/"):
            raise BadOption(f"-v {text}: must be HOST:CONTAINER or HOST:CONTAINER:ro, CONTAINER an absolute path.")
        options = [option for option in mode.split(",") if option]
        unknown = [option for option in options if option not in ("ro", "rw")]
        if unknown or len(options) > 1:
            raise BadOption(f"-v {text}: {mode!r} is not accepted; use ro or rw.")
        if host == "~" or host.startswith("~/"):
            host = home + host[1:]
        elif host.startswith(".") or ("/" in host and not host.startswith("/")):
            host = str(PurePosixPath(here) / host)
        return cls(_normal(host) if "/" in host else host, container, writable=options != ["ro"])

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Parse the output of `str`, in which the host's part may contain colons, but the container's never does."""
        pair = text.removesuffix(":ro")
        host, _, container = pair.rpartition(":")
        return cls(host, container, writable=pair == text)

    @property
    def place(self) -> str:
        """Where it is in the container, however that was written: /work for /work/."""
        return _normal(self.container)

    @property
    def is_volume(self) -> bool:
        return not self.host.startswith("/")

    def __str__(self) -> str:
        return f"{self.host}:{self.container}" + ("" if self.writable else ":ro")


def _normal(path: str) -> str:
    """Remove . and .. lexically, without looking at the disk."""
    return posixpath.normpath(f"///{path}")  # of two slashes at the beginning it keeps both, of three one


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
            raise BadOption(f"-p {text}: must be [ADDRESS:][HOST:]CONTAINER[/udp], such as 8888:8888.")
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


def parse_bytes(text: str, option: str) -> int:
    """Parse 1g, 512m, 64k or a number of bytes, in Docker's powers of 1024. Raise BadOption, which names `option`."""
    match = re.fullmatch(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    number = int(float(match[1]) * 1024 ** " kmgt".index(match[2])) if match else 0
    if number < 1:
        raise BadOption(f"{option}{text}: must be a size such as 1g or 512m, or a number of bytes.")
    return number


def parse_cpus(text: str) -> float:
    """Parse a number of CPUs, such as 8 or 0.5; Kubernetes divides no finer than thousandths. Raise BadOption."""
    match = re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?|\.[0-9]{1,3}", text)
    number = float(text) if match else 0.0
    if not number:
        raise BadOption(f"--cpus {text}: must be a number above 0, such as 8 or 0.5, with at most 3 decimals.")
    return int(number) if number.is_integer() else number


def whole_cpus(cpus: float) -> int:
    """Return `cpus` for an engine that assigns whole CPUs only. Raise BadOption for a fraction."""
    if not float(cpus).is_integer():
        raise BadOption(
            f"--cpus {cpus}: Slurm divides no CPU, so it must be a whole number.",
            f"    ngcdl run ... --cpus {math.ceil(cpus)}",
        )
    return int(cpus)


def parse_environment(text: str, environ: Mapping[str, str]) -> tuple[str, str]:
    """Parse -e NAME=VALUE, or NAME alone for the caller's own value. Raise BadOption."""
    name, equals, value = text.partition("=")
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_.-]*", name) or "\0" in value:
        raise BadOption(f"-e {name}: must be NAME=VALUE.")
    if not equals:
        if name not in environ:
            raise BadOption(f"-e {name}: that variable is not set here.", f"    -e {name}=VALUE")
        value = environ[name]
    return name, value
