"""Docker, or what takes its place, fails or refuses."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import Literal

from ngcdl.errors.base import NgcdlError

_ROOTLESS = re.compile(r"/run/user/\d+/docker\.sock\Z")


def daemon_of(address: str) -> Literal["system", "user"] | None:
    """Return whose systemd runs the daemon at `address`, or None if none on this machine does.

    A rootless daemon belongs to the user. Without systemd its socket is in ~/.docker, as is Docker Desktop's:
    https://docs.docker.com/engine/security/rootless/tips/
    """
    is_socket = ":" not in address or address.startswith(("unix://", "http+unix://", "/"))
    if not is_socket or "/.docker/" in address:
        return None
    if "/run/user/" in address:
        return "user" if _ROOTLESS.search(address) else None  # any other name is the end of a tunnel
    return "system"


class EngineError(NgcdlError):
    """Docker, or what takes its place."""


class ImageGone(EngineError):
    def __init__(self, name: str) -> None:
        super().__init__(
            f"This engine no longer has the image {name}.",
            "It is the engine's own image, by its id, so no registry is asked for it. What the engine has:\n"
            "    docker image ls",
        )


CONFIG = "Docker's config.json"
# What may set an address, and how to go back to the default then: `docker context use` does not override a variable.
_LEAVE = {
    "DOCKER_HOST": "    unset DOCKER_HOST",
    "DOCKER_CONTEXT": "    docker context ls\n    unset DOCKER_CONTEXT",
    CONFIG: "    docker context ls\n    docker context use default",
}


class EngineAbsent(EngineError):
    def __init__(self, address: str, why: str, *, is_default: bool = True, named_by: str = "DOCKER_HOST") -> None:
        """`named_by`: what sets the address, if it is not the default one."""
        start = (
            "See what is missing on this machine:\n    ngcdl doctor\n"
            "Docker is installed, but not running?\n    sudo systemctl start docker\n"
        )
        named = f"{named_by} sets that address. Correct it, or go back to the default:\n{_LEAVE[named_by]}\n"
        self._before = start if is_default else named
        super().__init__(f"No Docker engine answers at {address}: {why}.")
        self.hint = (
            f"{self._before}A bundled training, or a command of your own, runs on this host without Docker:\n"
            "    ngcdl run --train cifar10 --engine local\n    ngcdl run -- python3 train.py"
        )
        self.named_by = None if is_default else named_by

    def leads_on(self, line: str) -> None:
        """Put `line`, which runs the typed command without Docker, into the hint."""
        self.hint = f"{self._before}Without Docker, on this host:\n{line}"


class EngineNotAsked(EngineError):
    def __init__(self, folder: str, lacks: Sequence[str]) -> None:
        """`folder`, where the files for TLS are looked for, lacks those in `lacks`."""
        super().__init__(
            f"Docker was not asked: DOCKER_TLS_VERIFY asks for TLS, but {folder} lacks {', '.join(lacks)}.",
            "Name the folder that has them in DOCKER_CERT_PATH, or go without TLS:\n    unset DOCKER_TLS_VERIFY",
        )


class EngineForbidden(EngineError):
    def __init__(self, address: str) -> None:
        super().__init__(
            f"This user has no permission to use the Docker engine at {address}.",
            "Members of the group docker have it (and are as good as root on this machine):\n"
            "    sudo usermod -aG docker $USER && newgrp docker\n"
            "Or use rootless Docker: https://docs.docker.com/engine/security/rootless/",
        )


class EngineHangs(EngineError):
    def __init__(self, address: str, seconds: float) -> None:
        whose = daemon_of(address)
        sudo, user = ("", " --user") if whose == "user" else ("sudo ", "")
        restart = f"    {sudo}journalctl{user} -u docker -n 50\n    {sudo}systemctl{user} restart docker"
        super().__init__(
            f"The Docker engine at {address} accepts connections but gave no answer within {seconds:g} s.",
            f"Read its log and restart it:\n{restart}" if whose else "Check it and its log on the machine it runs on.",
        )
        self.address = address


class EngineTooOld(EngineError):
    def __init__(self, what: str) -> None:
        super().__init__(f"The Docker engine and ngcdl share no API version: {what}", "Update the older one.")


class EngineLost(EngineError):
    def __init__(self, doing: str, *, is_training: bool = False) -> None:
        """`doing`: what ngcdl was doing then, as in "looked for the run". `is_training`: a training was under way; its
        checkpoints are left."""
        start = "    sudo systemctl start docker"
        ended = "With live-restore it is still running. If it has ended, continue from its last checkpoint:"
        super().__init__(
            f"The Docker engine went away while ngcdl {doing}.",
            f"Read its log, start it, and see what became of the training:\n{start}\n    ngcdl show last\n"
            f"{ended}\n    ngcdl run ... --resume last"
            if is_training
            else f"Read its log, start it, and try again:\n{start}",
        )
        self.doing = doing


class TooManyFiles(EngineLost):
    """This process may open no more. Of an engine nothing is known then, as if it had gone away."""

    def __init__(self, doing: str = "") -> None:
        """`doing`: what ngcdl was doing with the engine then."""
        reached = f": ngcdl reached no Docker engine when it {doing}" if doing else ""
        EngineError.__init__(self, f"This process may open no more files at once{reached}.", "    ulimit -n 1024")
        self.doing = doing


class EngineElsewhere(EngineError):
    def __init__(self, why: str, hint: str = "    unset DOCKER_HOST DOCKER_CONTEXT") -> None:
        super().__init__(f"The Docker engine is on another machine: {why}", hint)


class EngineRefused(EngineError):
    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"Docker said: {what}", hint)


class ContainerLeft(EngineError):
    def __init__(self, identity: str, why: str) -> None:
        name = identity[:12]
        super().__init__(f"The container {name} could not be removed ({why.rstrip('.')})", f"    docker rm -f {name}")

    @property
    def note(self) -> str:
        return f"{self.message.rstrip('.')}:  {self.commands[0]}"


class DiskFull(EngineError):
    def __init__(self, where: str | None, what: str, *, is_engines: bool = True) -> None:
        """`where`: the folder without space; None: the root directory of a Docker engine, whose path is unknown.
        `is_engines`: what Docker keeps is, or may be, on that disk."""
        folder = shlex.quote(where) if where else "\"$(docker info --format '{{.DockerRootDir}}')\""
        super().__init__(
            f"No space left in {where or 'the Docker root directory'}: {what}",
            "Free some and try again (if df -i shows 100 %, there are too many files); whatever was complete is kept:\n"
            f"    df -h {folder}\n    df -i {folder}" + ("\n    docker system df" if is_engines else ""),
        )
        self.what = what
