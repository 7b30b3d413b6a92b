"""Docker, or what stands for it."""

from __future__ import annotations

import re
import shlex
from typing import Literal

from ngcdl.errors.base import NgcdlError

_ROOTLESS = re.compile(r"/run/user/\d+/docker\.sock\Z")


def daemon_of(address: str) -> Literal["system", "user"] | None:
    """Tell whose systemd runs the daemon at an address; None where this machine's does not.

    A rootless daemon is the user's. Its socket is in ~/.docker where it has no systemd, and so is Docker Desktop's:
    https://docs.docker.com/engine/security/rootless/tips/
    """
    is_socket = ":" not in address or address.startswith(("unix://", "http+unix://", "/"))
    if not is_socket or "/.docker/" in address:
        return None
    if "/run/user/" in address:
        return "user" if _ROOTLESS.search(address) else None  # by another name it is the end of a tunnel
    return "system"


class EngineError(NgcdlError):
    """Docker, or what stands for it."""


CONFIG = "Docker's config.json"
# What names an address, and how it is left out: `docker context use` does not help against a variable.
_LEAVE = {
    "DOCKER_HOST": "    unset DOCKER_HOST",
    "DOCKER_CONTEXT": "    docker context ls\n    unset DOCKER_CONTEXT",
    CONFIG: "    docker context ls\n    docker context use default",
}


class EngineAbsent(EngineError):
    def __init__(self, address: str, why: str, *, is_default: bool = True, named_by: str = "DOCKER_HOST") -> None:
        """`named_by`: what names the address, where it is not the default one."""
        start = (
            "Start it, or let ngcdl say how it is installed here:\n    sudo systemctl start docker\n    ngcdl doctor\n"
        )
        named = f"{named_by} names it. Mend it, or leave it out:\n{_LEAVE[named_by]}\n"
        super().__init__(
            f"No Docker engine answers at {address}: {why}.",
            (start if is_default else named)
            + "Without Docker a bundled training runs on this host:\n    ngcdl run --train cifar10 --engine local",
        )
        self.named_by = None if is_default else named_by


class EngineForbidden(EngineError):
    def __init__(self, address: str) -> None:
        super().__init__(
            f"This user may not talk to the Docker engine at {address}.",
            "Whoever is in the group docker may (and is as good as root on this machine):\n"
            "    sudo usermod -aG docker $USER && newgrp docker\n"
            "or use rootless Docker: https://docs.docker.com/engine/security/rootless/",
        )


class EngineHangs(EngineError):
    def __init__(self, address: str, seconds: float) -> None:
        whose = daemon_of(address)
        sudo, user = ("", " --user") if whose == "user" else ("sudo ", "")
        restart = f"    {sudo}journalctl{user} -u docker -n 50\n    {sudo}systemctl{user} restart docker"
        super().__init__(
            f"The Docker engine at {address} accepts calls but gave no answer within {seconds:g} s.",
            f"Look at its log and restart it:\n{restart}" if whose else "Look at it, and at its log, where it runs.",
        )
        self.address = address


class EngineTooOld(EngineError):
    def __init__(self, what: str) -> None:
        super().__init__(f"The Docker engine and ngcdl do not share an API version: {what}", "Update the older one.")


class EngineLost(EngineError):
    def __init__(self, doing: str, *, is_training: bool = False) -> None:
        """`is_training`: a training was under way, whose checkpoints are left."""
        start = "    sudo systemctl start docker"
        ended = "With live-restore it still runs. If it has ended, go on from its last checkpoint:"
        super().__init__(
            f"The Docker engine went away during {doing}.",
            f"Look at its log, start it, and see what became of the training:\n{start}\n    ngcdl show last\n"
            f"{ended}\n    ngcdl run ... --resume last"
            if is_training
            else f"Look at its log, start it, and try again:\n{start}",
        )
        self.doing = doing


class EngineElsewhere(EngineError):
    def __init__(self, why: str, hint: str = "    unset DOCKER_HOST DOCKER_CONTEXT") -> None:
        super().__init__(f"The Docker engine is another machine's: {why}", hint)


class EngineRefused(EngineError):
    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(f"Docker said: {what}", hint)


class DiskFull(EngineError):
    def __init__(self, where: str | None, what: str) -> None:
        """`where` None: in the folder of a Docker engine, which is not known."""
        folder = shlex.quote(where) if where else "\"$(docker info --format '{{.DockerRootDir}}')\""
        super().__init__(
            f"No space left in {where or 'the folder of Docker'}: {what}",
            f"Free some and try again; what is whole was kept:\n    df -h {folder}\n    docker system df",
        )
        self.what = what
