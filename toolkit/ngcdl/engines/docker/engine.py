"""The Docker engine: connecting to it, what it can do, and starting a container."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ngcdl.engines import OfKind
from ngcdl.engines.base import Job
from ngcdl.engines.docker import (
    client,
    context,
    host,
    keys,
    layers,
    memlock,
    messages,
    passwd,
    podman,
    proxies,
    request,
)
from ngcdl.engines.docker.job import HURRY_SECONDS, Clients, DockerJob
from ngcdl.engines.docker.pull import pull
from ngcdl.engines.docker.request import Terms
from ngcdl.engines.values import EngineFacts, GpuWay, Held, LayerStore, Order, ShowPull, Started
from ngcdl.errors import BadOption, DiskFull, EngineAbsent, EngineHangs, EngineRefused, NgcdlError
from ngcdl.spec import ImageRef, RunSpec, redacted

_PING_SECONDS = 10
# For queries about a running container: the engine answers them at once, and a person may be waiting for the result.
_LOOK_SECONDS = 8
# WSL's device for the cards of every vendor: a container that has it sees all of them, whichever ones
# NVIDIA_VISIBLE_DEVICES or CDI name. https://github.com/NVIDIA/nvidia-container-toolkit/issues/21
DXG = Path("/dev/dxg")
# familiarizeName in https://github.com/distribution/reference/blob/main/normalize.go
_HUB = re.compile(r"\A(index\.)?docker\.io/(library/)?")
_WAYS = ("runtime", "device-request", "cdi", "none")


def _familiar(name: str) -> str:
    """Return an image's name as Docker lists it, without Docker Hub's host and library/; Podman lists full names."""
    return _HUB.sub("", name)


def _asked_for(image: ImageRef) -> str:
    """Return the name by which to ask the engine for the image: its id, else its digest, else its tag."""
    return image.id or (image.pinned(image.digest) if image.digest else str(image))


def address() -> str:
    """Return the engine's address as the docker command finds it: DOCKER_HOST, the context's, the default socket."""
    with contextlib.suppress(EngineAbsent):  # `connect` reports it
        if (named := context.named()) != context.DEFAULT_SOCKET:
            return named
    return messages.DEFAULT_ADDRESS


def is_socket(address: str) -> bool:
    """Whether `address` is a socket on this machine. The engine behind it may still run in a virtual machine."""
    return address == messages.DEFAULT_ADDRESS or address.startswith(("unix://", "http+unix://", "/"))


def load() -> None:
    """Load the SDK, which is half of what it takes to connect."""
    import docker  # noqa: F401


def connect() -> DockerEngine:
    """Connect as the docker command would (DOCKER_HOST, context, default socket). Raise EngineError."""
    if (named := context.named()).startswith("ssh://"):
        raise context.over_ssh(named)
    with messages.docker_errors(address(), "connected to it"):
        made = client.client(version="auto", timeout=_PING_SECONDS)
        made.timeout = 60

    def look() -> Any:
        return client.client(version=made.api_version, timeout=_LOOK_SECONDS)

    return DockerEngine(made, look)


class DockerEngine(OfKind):
    name = "docker"

    def __init__(self, client: Any, look: Callable[[], Any] | None = None) -> None:
        """`look` creates a client with a shorter timeout; without it, `client` is used for everything."""
        self._client = client
        self._look = look
        self.address = address() if self.shares_files else str(client.base_url)

    @cached_property
    def info(self) -> dict[str, Any]:
        with messages.docker_errors(self.address, "asked about it"):
            found: dict[str, Any] = self._client.info()
            number = podman.version(self._client.version()) if podman.may_be(found) else None
        return podman.as_docker_info(found, number) if number else found

    @property
    def version(self) -> str:
        return str(self.info.get("ServerVersion", "unknown"))

    @property
    def identity(self) -> str | None:
        return self.info.get("ID") or None

    @property
    def is_here(self) -> bool:
        """Whether a daemon behind a socket on this host reports this host's name; Docker Desktop's virtual machine has
        another name."""
        return self.shares_files and self.info.get("Name") == os.uname().nodename

    @property
    def shares_files(self) -> bool:
        return str(self._client.base_url).startswith("http+docker://localhost")

    def caller(self) -> str | None:
        if host.has_option(self.info, "rootless"):
            # Root inside is the caller outside; any other uid, such as an image's own USER, belongs to no user outside.
            # https://docs.docker.com/engine/security/rootless/
            return "0:0"
        return f"{os.getuid()}:{os.getgid()}"

    def facts(self) -> EngineFacts:
        """Return what the engine reports, and what its files say if it is on this machine. Raise EngineError."""
        return host.read(self.info, host.local_files() if self.is_here else None)

    # -- GPUs -------------------------------------------------------------------------------------------------------

    def gpu_way(self) -> GpuWay:
        """Choose how GPUs get into containers, by the runtimes and (since Docker 28.2) CDI devices that the daemon
        reports. NGCDL_GPU_WAY overrides the choice.

        Docker Desktop has GPUs only under WSL, by --gpus: https://docs.docker.com/desktop/features/gpu/
        It reports the runtime nvidia since 4.34, also without a card: https://github.com/docker/for-win/issues/14331
        """
        asked, facts = os.environ.get("NGCDL_GPU_WAY"), self.facts()
        if asked:
            if asked not in _WAYS:
                raise BadOption(f"NGCDL_GPU_WAY={asked}: must be one of {', '.join(_WAYS)}.")
            described = self.cdi_devices if asked == "cdi" else ()
            return GpuWay(asked, "NGCDL_GPU_WAY names it", described, by_index=facts.is_snap)
        if facts.is_desktop and "linuxkit" in (facts.kernel or ""):  # the kernel of its virtual machines without WSL
            return GpuWay("none", "Docker Desktop passes GPUs on only under Windows, with WSL", is_final=True)
        if "nvidia" in (self.info.get("Runtimes") or {}):
            return GpuWay("runtime", "the runtime nvidia is there", by_index=facts.is_snap)
        if self.cdi_devices and not podman.ignores_cdi(self.version):
            return GpuWay("cdi", "CDI (--device nvidia.com/gpu) is there", self.cdi_devices)
        if podman.is_named(self.version):
            return GpuWay("none", podman.no_way(self.version), is_final=True)
        # The daemon does not report whether --gpus works; the hook on this host's PATH is the best available hint.
        # nvidia-cdi-hook is no such hint: with it alone --gpus uses CDI's descriptions, and there are none here.
        # https://github.com/moby/moby/blob/master/daemon/devices_nvidia_linux.go
        has_hook = self.is_here and shutil.which("nvidia-container-runtime-hook")
        if has_hook or (facts.is_desktop and DXG.exists()):
            return GpuWay("device-request", "docker's --gpus is there")
        return GpuWay("none", "it has no runtime nvidia, no CDI device nvidia.com/gpu and no hook for --gpus")

    @cached_property
    def cdi_devices(self) -> tuple[str, ...]:
        """Return the GPUs that CDI describes, as far as known: all, 0, 0:1, GPU-..., MIG-..."""
        kind = "nvidia.com/gpu="
        found = self.facts().cdi_devices
        return tuple(name.removeprefix(kind) for name in found if name.startswith(kind))

    # -- images -----------------------------------------------------------------------------------------------------

    def has(self, image: ImageRef) -> Held | None:
        found = self._inspected(_asked_for(image))
        if found is None:
            return None
        listed = (str(one).partition("@") for one in found.get("RepoDigests") or [])
        own = (digest for name, _, digest in listed if _familiar(name) == _familiar(image.name))
        return Held(str(found["Id"]), image.digest or next(own, None))

    def config(self, image: ImageRef) -> Mapping[str, Any] | None:
        found = self._inspected(_asked_for(image))
        return {"architecture": found.get("Architecture"), "config": found.get("Config") or {}} if found else None

    def _inspected(self, name: str) -> Mapping[str, Any] | None:
        """Return what the engine reports about the image of that name; None if it has none. Raise EngineError."""
        with messages.docker_errors(self.address, "looked for the image"):
            found: Mapping[str, Any] | None = messages.if_there(self._client.inspect_image, name)
        return found

    def pull(self, image: ImageRef, show: ShowPull, auth: Mapping[str, str] | None = None) -> str:
        with self._naming_its_folder(), messages.docker_errors(self.address, "was pulling the image"):
            return pull(self._client, image, auth, show)

    def layer_store(self) -> LayerStore:
        with messages.docker_errors(self.address, "listed its images"):
            return layers.layer_store(self._client, self.info, self.is_here)

    def untag(self, image: ImageRef) -> None:
        import docker.errors

        # a name that is gone already is no error
        with messages.docker_errors(self.address, "was cleaning up"), contextlib.suppress(docker.errors.APIError):
            self._client.remove_image(_asked_for(image))

    def without_image(self, own: RunSpec | None, has_gpu: bool, show: ShowPull | None) -> str:
        del own, has_gpu, show
        raise BadOption("A run with Docker needs an image.", "    ngcdl run IMAGE ...")

    def target(self, image: ImageRef, digest: str) -> str:
        pinned = image.pinned(digest)
        return pinned if self._inspected(pinned) else digest

    # -- runs -------------------------------------------------------------------------------------------------------

    def request(self, order: Order) -> dict[str, Any]:
        terms = self._terms(order)
        shown = {name: redacted(name, value) for name, value in terms.proxies.items()}
        return request.create_body(self._allowed(order), replace(terms, proxies=shown))

    def command_line(self, order: Order) -> str:
        from ngcdl.engines.docker.reasons import reasons  # no run needs them

        line = request.command_line(self._allowed(order), self._terms(order))
        return f"{line}\n{reasons(line)}"

    def _terms(self, order: Order) -> Terms:
        # The caller's groups mean nothing on another machine, nor for a uid chosen by the image or a rootless daemon.
        are_ours = self.is_here and order.spec.user is not None and not host.has_option(self.info, "rootless")
        groups = sorted({*os.getgroups()} - {os.getgid()}) if are_ours else ()
        described = self.cdi_devices if order.way == "cdi" else ()
        shows_all = self.shares_files and DXG.exists()  # Desktop's virtual machine too
        remaps_users, has_selinux = (host.has_option(self.info, name) for name in ("userns", "selinux"))
        path = self._path(order.target) if order.packages else ""
        is_snap = self.facts().is_snap
        return Terms(tuple(groups), proxies.variables(), remaps_users, described, shows_all, has_selinux, path, is_snap)

    def _path(self, target: str) -> str:
        """Return the PATH of an image; "" if it sets none, or is not here."""
        variables = ((self._inspected(target) or {}).get("Config") or {}).get("Env") or ()
        return next((one.removeprefix("PATH=") for one in variables if one.startswith("PATH=")), "")

    def _allowed(self, order: Order) -> Order:
        return memlock.without(order) if memlock.is_known_forbidden(self.info) else order

    def start(self, order: Order) -> Job:
        """Create and start the container, without the documented memlock limit if the host forbids it.

        On failure nothing is left behind; a container left by a signal or a hanging engine is found by `find`. Raise
        StartError, GpuError or EngineError.
        """
        with self._naming_its_folder():
            allowed = self._allowed(order)
            if allowed is not order:
                return self._start(allowed, memlock.note, is_news=False)
            try:
                return self._start(order, None)
            except EngineRefused as error:
                if not memlock.is_refusal(error.message):
                    raise
            memlock.remember_forbidden(self.info)
            return self._start(memlock.without(order), memlock.note)

    def _start(self, order: Order, note: Callable[[int], str] | None, is_news: bool = True) -> Job:
        body = request.create_body(order, self._terms(order))
        self.waits_for = "the Docker engine to create the container"
        with messages.docker_errors(self.address, "was starting the run"), self._waiting():
            made = self._client.create_container_from_config(body, name=f"ngcdl-{order.run_id}")
        identity = str(made["Id"])
        self.waits_for = "the Docker engine to start the container"
        try:
            with messages.docker_errors(self.address, "was starting the run"):
                streams = {"stdin": int(body["OpenStdin"]), "stdout": 1, "stderr": 1, "stream": 1}
                groups = body["HostConfig"].get("GroupAdd") or ()
                passwd.add_caller(self._client, identity, order.spec.user, groups)
                attachment = self._client.attach_socket(identity, params={**streams, "detachKeys": keys.named()})
                with self._waiting():
                    self._client.start(identity)
                found = self._client.inspect_container(identity)
        except Exception as error:
            if not isinstance(error, EngineHangs):
                with contextlib.suppress(NgcdlError), messages.docker_errors(self.address, "was cleaning up"):
                    self._client.remove_container(identity, force=True, v=True)
            raise
        pid = int(found["State"].get("Pid") or 0) if self.is_here else 0
        notes = (note(pid),) if note else ()
        drawn = request.drawn_ports(order.spec, found.get("NetworkSettings") or {})
        # limits that Docker discards, such as --memory under a rootless daemon that may not limit anything
        lost = tuple(f"Docker said: {one}" for one in made.get("Warnings") or () if "discarded" in one)
        started = Started((*notes, *drawn, *lost), (*(notes if is_news else ()), *drawn, *lost), pid or None)
        job = DockerJob(self._clients(), self.address, identity, order.spec.tty, started, attachment)
        # While it shuts down, dockerd answers no request, for up to its containers' StopTimeout.
        job.patience_seconds += body.get("StopTimeout") or 0
        return job

    @contextlib.contextmanager
    def _naming_its_folder(self) -> Iterator[None]:
        """Add the folder of the images to DiskFull: the daemon's message does not say which disk is full."""
        try:
            yield
        except DiskFull as error:
            folder = None
            with contextlib.suppress(NgcdlError):
                folder = self.facts().images_folder
            raise DiskFull(folder, error.what) from error

    @contextlib.contextmanager
    def _waiting(self) -> Iterator[None]:
        """Wait for an answer without a timeout, as docker does: filling a volume at its first use, the storage driver
        vfs, and cards without persistence mode can take minutes. Ctrl-C cancels."""
        seconds, self._client.timeout = self._client.timeout, None
        try:
            yield
        finally:
            self._client.timeout = seconds

    def _clients(self) -> Clients:
        return Clients(self._client, self._look() if self._look else self._client)

    def names(self) -> dict[str, str]:
        """Map the ids of the running containers to their names."""
        with messages.docker_errors(self.address, "listed its containers"):
            return {one["Id"]: (one["Names"] or [one["Id"][:12]])[0].lstrip("/") for one in self._client.containers()}

    def find(self, run_id: str) -> Job | None:
        clients = self._clients()
        with messages.docker_errors(self.address, "looked for the run"):
            found = clients.quick.containers(all=True, filters={"label": f"{request.LABEL}={run_id}"})
            if not found:
                return None
            if found[0].get("State") == "created":
                # Its start may hang, and then so does every request about it except the listing above.
                clients.quick.timeout = HURRY_SECONDS
                both = Clients(clients.quick, clients.quick)
                return DockerJob(both, self.address, str(found[0]["Id"]), False, Started())
            state = clients.quick.inspect_container(found[0]["Id"])
        pid = int(state["State"].get("Pid") or 0) if self.is_here else 0
        return DockerJob(
            clients, self.address, str(found[0]["Id"]), bool(state["Config"]["Tty"]), Started(pid=pid or None)
        )
