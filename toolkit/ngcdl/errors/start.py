"""An image can't run here, or a run can't start."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from ngcdl.errors.base import NgcdlError, Several


class ImageUnfit(NgcdlError):
    """The image can't run. It was judged before the pull: nothing was fetched."""

    def __init__(
        self,
        reference: str,
        why: str,
        newest: str | None,
        *,
        others: str | None = None,
        command: str = "run",
        cpu_would_do: bool = False,
        where: str = "here",
        host: str | None = None,
    ) -> None:
        """`newest` is the newest tag of the same repository that can run there; `others` is the repository if it was
        not searched for such a tag. `command` was refused. `cpu_would_do`: only the GPUs are in the way. If `where` is
        not this host, `host` is what `ngcdl check --host` takes for it.
        """
        by = ", judging by its kernels (the driver there is not known)" if host and "driver=" not in host else ""
        line = f"    ngcdl {command} ... {newest}  # without {reference}"
        take = f"The newest one that can{by}:\n{line}\n" if newest else "No tag of it is known that can.\n"
        if others:
            take = f"Its other tags, with a verdict on each:\n    ngcdl images {others} --all\n"
        start = "run" if command == "pull" else command
        on_cpu = f"\nOn the CPU:\n    ngcdl {start} ... --gpus none" if cpu_would_do else ""
        super().__init__(
            f"{reference} can't run {where}: {why}",
            f"{take}The whole verdict, and how to {command} it anyway:\n"
            f"    ngcdl check {reference}{f' --host {host}' if host else ''}\n"
            f"    ngcdl {command} ... --force{on_cpu}",
        )
        self.newest = newest


class ImagesRefused(Several):
    """Some images of a comparison can't be run."""

    def __init__(self, refusals: Sequence[NgcdlError]) -> None:
        super().__init__(refusals, then="A comparison runs all of its images or none: no run begins.")


class NoneRuns(NgcdlError):
    def __init__(self, repository: str, *, is_here: bool = True) -> None:
        """`is_here`: the tags were judged for this host, not for a described one (--host)."""
        on_cpu = "\nOn the CPU of this host:\n    ngcdl run --train cifar10 --engine local"
        super().__init__(
            f"No tag of {repository} is known to run on {'this host' if is_here else 'the host described'}.",
            f"What each of them needs:\n    ngcdl images {repository} --all{on_cpu if is_here else ''}",
        )


class NoReleases(NgcdlError):
    def __init__(self, repository: str) -> None:
        super().__init__(
            f"{repository} has no monthly tags (such as 24.05-py3), so nothing shows which one is the newest.",
            f"Choose among its tags, each with a verdict:\n    ngcdl images {repository} --all",
        )


class StartError(NgcdlError):
    """The container, or the local process, could not be started."""


class MountMissing(StartError):
    def __init__(self, path: object, *, seen_here: bool = False) -> None:
        """`seen_here`: this machine has it, but the engine does not see it."""
        if seen_here:
            super().__init__(
                f"-v {path}: this machine has it, but the Docker engine does not see it.",
                "Docker from snap sees your home folder only, and an engine in a container or a virtual machine has "
                "folders of its own. Take one that it sees; what ngcdl doctor says of the engine may help:\n"
                "    ngcdl doctor",
            )
            return
        if "\ufffd" in str(path):  # what a byte that is no text becomes on its way to Docker
            super().__init__(f"{path}: Docker can mount no folder whose name is not UTF-8.", "Rename it.")
            return
        super().__init__(
            f"-v {path}: there is no such file or folder.",
            f"Check the path, or create it:\n    mkdir -p {shlex.quote(str(path))}",
        )


class PackagesNotInstalled(StartError):
    """pip failed in a container of the image; the run did not start."""

    def __init__(
        self, packages: Sequence[str], image: str, said: Sequence[str], log: object, why: str | None = None
    ) -> None:
        """`said` is what pip wrote, line by line; `log` is the file that has it. `why` is what else was wrong."""
        lines = [stripped for line in said if (stripped := line.strip())]
        told = [line for line in lines if line.startswith("ERROR:")] or lines
        says = f"says {' '.join(told[-2:])}" if told else "said nothing"
        hint = next((hint for texts, hint in _OF_PIP.items() if any(one in line for line in said for one in texts)), "")
        super().__init__(
            f"Packages for {image} could not be installed ({', '.join(packages)}): {why or f'pip {says}'}",
            f"{hint}All that pip wrote:\n    cat {shlex.quote(str(log))}\n"
            "What needs more than pip goes into an image of your own, made from that one:\n"
            "    docker build -t mine .\n    ngcdl run mine ...",
        )


_NO_INDEX = ("Temporary failure in name resolution", "NewConnectionError", "ConnectTimeoutError", "ProxyError")
_OF_PIP = {
    ("No space left on device",): "A disk is full: that of the packages, or the engine's. To keep them on another:\n"
    "    export XDG_CACHE_HOME=DIR\n",
    ("No module named pip",): "The image's Python has no pip.\n",
    ("User site-packages are not visible", "user site-packages are disabled"): "The image's Python, perhaps a virtual "
    "environment, reads no packages but its own.\n",
    _NO_INDEX: "The container does not reach the package index. If there is a mirror:\n"
    "    ngcdl run ... -e PIP_INDEX_URL=https://MIRROR/simple\n",
    ("CERTIFICATE_VERIFY_FAILED",): "The container does not trust the package index's certificate, perhaps that of "
    "a proxy in between. If this machine trusts it:\n"
    "    ngcdl run ... -v /etc/ssl/certs/ca-certificates.crt:/ca.crt:ro -e PIP_CERT=/ca.crt\n",
    ("ResolutionImpossible", "No matching distribution"): "Is there such a version, and for the image's Python? The "
    "image's own builds of PyTorch, TensorFlow, JAX, Triton and NumPy are never replaced: leave their versions out, or "
    "take another image:\n    ngcdl images\n",
}


class PackagesNotKept(StartError):
    def __init__(self, folder: object, why: str) -> None:
        super().__init__(
            f"Packages for containers are kept in {folder}, which can't be used: {why}.",
            "Make it writable, or name another place:\n    export XDG_CACHE_HOME=DIR",
        )


class NoMoreThreads(StartError):
    """https://man7.org/linux/man-pages/man3/pthread_create.3.html (EAGAIN)"""

    def __init__(self) -> None:
        super().__init__(
            "No more threads can be started: too many run on this host, or as many as a limit of yours allows",
            "Which programs have most, and the limit for all of yours together:\n"
            "    ps -eo nlwp,user,pid,args --sort -nlwp | head\n    ulimit -u",
        )


class CannotInvoke(StartError):
    exit_code = 126

    def __init__(self, what: str, why: str | None = None) -> None:
        because = f": {why}." if why else ""
        super().__init__(f"The command can't be invoked: {what}{because}", "Is it a program, and is it executable?")


class CommandNotFound(StartError):
    exit_code = 127

    def __init__(
        self,
        what: str,
        where: str = "The image",
        needs: str | None = None,
        hint: str = "What follows `--` is the command.",
    ) -> None:
        """`needs` is the missing interpreter, or loader, of a command that exists itself."""
        if needs:
            hint = f"Install that, or correct {what}."
        lacks = f"lacks what runs {what}: {needs}" if needs else f"has no such command: {what or repr(what)}"
        super().__init__(f"{where} {lacks}", hint)


class LocalUnavailable(StartError):
    """This host can't train, or start a command, without a container."""
