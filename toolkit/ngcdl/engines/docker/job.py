"""One container that runs: its output, its end, its signals.

An output that ends says nothing: when the daemon dies the stream just closes. So the end is always asked for, and an
engine that is away is waited for (with live-restore the container goes on meanwhile).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from ngcdl.engines.base import Chunk, Exit, Started
from ngcdl.engines.docker.messages import docker_errors
from ngcdl.errors import EngineLost, GpuNotInside, NgcdlError

_STREAMS = {1: "stdout", 2: "stderr"}
_DETACH = b"\x10\x11"  # Ctrl-P Ctrl-Q, Docker's own
# How long a daemon may be away before the run is given up: a package update restarts it in a few seconds.
PATIENCE_SECONDS = 20.0


class DockerJob:
    """A container by its id. `attachment` is the open stream, None for a container that somebody else started."""

    def __init__(
        self, client: Any, address: str, identity: str, tty: bool, started: Started, attachment: Any = None
    ) -> None:
        self._client = client
        self._address = address
        self._tty = tty
        self._attachment = attachment
        self._killed_by_us = False
        self._given_up = False
        self._typed = b""
        self.detached = False
        self.patience_seconds = PATIENCE_SECONDS
        self.identity = identity
        self.started = started

    # -- output and input -------------------------------------------------------------------------------------------

    def output(self) -> Iterator[Chunk]:
        seen = time.time()
        if self._attachment is not None:
            yield from self._attached()
        else:
            yield from self._followed(None)
        while not self.detached and self._is_running_again():
            # The daemon came back and the container had gone on: read on from where the stream broke.
            yield from self._followed(seen)
            seen = time.time()

    def _attached(self) -> Iterator[Chunk]:
        read = _reader(self._attachment, lambda: self._state_running())
        if self._tty:
            yield from (Chunk("stdout", data) for data in read(65536, exact=False))
            return
        for header in read(8):
            kind, length = struct.unpack(">BxxxL", header)
            for data in read(length, once=True):
                yield Chunk(_STREAMS.get(kind, "stdout"), data)

    def _followed(self, since: float | None) -> Iterator[Chunk]:
        import docker.errors
        import requests.exceptions
        import urllib3.exceptions

        broken = (
            docker.errors.DockerException,
            requests.exceptions.RequestException,
            urllib3.exceptions.HTTPError,
            OSError,
        )
        with contextlib.suppress(*broken):
            # attach() shows only what is new; logs() has the rest. Its stream is not told apart here.
            stream = self._client.logs(self.identity, stream=True, follow=True, **({"since": since} if since else {}))
            for data in stream:
                yield Chunk("stdout", data)

    def _state_running(self) -> bool:
        state = self._inspect_or_none()
        return state is None or bool(state["Running"])

    def write(self, data: bytes) -> None:
        if self._attachment is not None:
            # The daemon knows these keys as well, and closes the stream; why it did so it does not say.
            self.detached = self.detached or (self._tty and _DETACH in self._typed + data)
            self._typed = data[-1:]
            view = memoryview(data)
            while view:
                sent = os.write(self._attachment.fileno(), view)
                view = view[sent:]

    def close_input(self) -> None:
        if self._attachment is not None:
            with contextlib.suppress(OSError):
                # SocketIO has no shutdown of its own; a duplicate of the same socket has.
                half = socket.socket(fileno=os.dup(self._attachment.fileno()))
                with half:
                    half.shutdown(socket.SHUT_WR)

    def resize(self, rows: int, columns: int) -> None:
        with contextlib.suppress(NgcdlError), docker_errors(self._address, "a resize"):
            self._client.resize(self.identity, height=rows, width=columns)

    # -- the end ----------------------------------------------------------------------------------------------------

    def _inspect_or_none(self) -> dict[str, Any] | None:
        """Give the container's State, None where the engine does not answer. A container that is gone is 'removed'."""
        import docker.errors

        try:
            with docker_errors(self._address, "the run"):
                try:
                    state: dict[str, Any] = self._client.inspect_container(self.identity)["State"]
                    return state
                except docker.errors.NotFound:
                    return {"Running": False, "ExitCode": None, "OOMKilled": None, "Removed": True, "FinishedAt": ""}
        except NgcdlError:
            return None

    def _is_running_again(self) -> bool:
        state = self._settled_state()
        return state is not None and bool(state["Running"])

    def _settled_state(self) -> dict[str, Any] | None:
        """Wait until the engine says something final, or that it still runs after it had been away."""
        was_away = False
        end = time.monotonic() + (0 if self._given_up else self.patience_seconds)
        pause = 0.01
        running_since = time.monotonic()
        while True:
            state = self._inspect_or_none()
            if state is None:
                was_away = True
                pause = 0.5
            elif not state["Running"] or was_away or time.monotonic() - running_since > 2:
                return state
            if time.monotonic() >= end:
                self._given_up = True
                return None
            time.sleep(pause)
            pause = min(pause * 1.5, 0.5)

    def wait(self) -> Exit:
        while True:
            state = self._settled_state()
            if state is None:
                raise EngineLost("the run")
            if not state["Running"]:
                return self._exit(state)

    def ended(self) -> Exit | None:
        state = self._inspect_or_none()
        if state is None:
            raise EngineLost("a look at the run")
        return None if state["Running"] else self._exit(state)

    def _exit(self, state: dict[str, Any]) -> Exit:
        code, oom = state["ExitCode"], state["OOMKilled"]
        reason: str | None = None
        if state.get("Removed"):
            reason = "the container was removed outside ngcdl"
        elif state.get("Status") == "created":  # Docker gives these an exit code 0
            return Exit(None, reason="the container was made but never started")
        elif oom and code == 0:
            reason = "out of memory: the kernel killed a process inside, though the command itself ended with 0"
        elif oom:
            reason = "out of memory: the kernel killed it"
        elif code == 137 and not self._killed_by_us:
            reason = "killed (SIGKILL), not by ngcdl and not for want of memory"
        elif code == 143 and not self._killed_by_us:
            reason = "stopped (SIGTERM) from outside, by docker stop or a restart of the engine"
        elif state.get("Error"):
            reason = str(state["Error"])
        return Exit(code, oom, reason, _seconds(state.get("FinishedAt", "")))

    def stop(self, grace_seconds: float) -> None:
        self._killed_by_us = True
        with docker_errors(self._address, "a stop"):
            import docker.errors

            # The client must outlast the grace that it asks for.
            with contextlib.suppress(docker.errors.NotFound):
                old, self._client.timeout = self._client.timeout, grace_seconds + 30
                try:
                    self._client.stop(self.identity, timeout=int(grace_seconds))
                finally:
                    self._client.timeout = old

    def kill(self) -> None:
        self._killed_by_us = True
        with contextlib.suppress(NgcdlError), docker_errors(self._address, "a kill"):
            self._client.kill(self.identity)

    def remove(self) -> None:
        with contextlib.suppress(NgcdlError), docker_errors(self._address, "the clean-up"):
            self._client.remove_container(self.identity, force=True, v=True)

    def _ends_soon(self) -> bool:
        """Does it end within 2 s? While a container ends, an exec fails although the container counts as running."""
        end = time.monotonic() + 2
        while self._state_running():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    # -- GPUs -------------------------------------------------------------------------------------------------------

    def gpus_inside(self) -> tuple[str, ...] | None:
        import re

        try:
            with docker_errors(self._address, "the look for GPUs"):
                made = self._client.exec_create(self.identity, ["nvidia-smi", "-L"])
                text = self._client.exec_start(made["Id"]).decode("utf-8", "replace")
                code = self._client.exec_inspect(made["Id"])["ExitCode"]
        except NgcdlError as error:
            if not self._ends_soon():
                raise GpuNotInside(error.message) from error
            return None
        if code != 0:
            if self._ends_soon():
                return None
            raise GpuNotInside(" ".join(text.split()) or f"nvidia-smi -L ended with {code}")
        return tuple(re.findall(r"UUID: ((?:GPU|MIG)-[0-9A-Za-z/-]+)", text))


def _seconds(stamp: str) -> float | None:
    """Read Docker's time stamp (nanoseconds, Z); year 1 means never."""
    try:
        when = datetime.fromisoformat(stamp[:26].rstrip("Z") + "+00:00")
    except ValueError:
        return None
    return when.timestamp() if when.year > 1 else None


def _reader(attachment: Any, is_running: Any) -> Any:
    """Give a function that reads from the open stream: pieces of exactly n bytes until it ends.

    A stream can outlive its container (https://github.com/docker/docker-py/issues/3084): after 2 silent seconds the
    container is asked for, and 2 more after its end the stream is given up.
    """
    descriptor = attachment.fileno()
    os.set_blocking(descriptor, True)  # the SDK's own time-out is not meant for a stream

    def some(limit: int) -> bytes:
        silent_after_end = 0
        while True:
            ready, _, _ = select.select([descriptor], [], [], 2.0)
            if ready:
                try:
                    return os.read(descriptor, limit)
                except ConnectionError:
                    return b""
            if not is_running():
                silent_after_end += 1
                if silent_after_end > 1:
                    return b""

    def read(length: int, exact: bool = True, once: bool = False) -> Iterator[bytes]:
        while True:
            data = some(length)
            while data and exact and len(data) < length:
                more = some(length - len(data))
                if not more:
                    return
                data += more
            if not data and length:
                return
            yield data
            if once:
                return

    return read
