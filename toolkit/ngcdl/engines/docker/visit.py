"""A command in a running container, beside the container's own: what `docker exec` does.

The engine ends no such command when its client goes away, nor passes signals on to it
(https://github.com/moby/moby/issues/9098). So the command gets a variable of its own, by which a second one finds its
processes, whoever they belong to and wherever the engine runs.
"""

from __future__ import annotations

import contextlib
import signal
import socket
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from ngcdl.engines.docker import stream
from ngcdl.engines.docker.messages import docker_errors, if_there, meaning
from ngcdl.engines.values import Chunk, Exit
from ngcdl.errors import EngineLost, NgcdlError

RUN_ENDED = "the run has ended, and the command with it"
_KILLED = 137  # what the end of a container does to all of its processes
_ASK_SECONDS, _APART_SECONDS = 0.05, 0.5
_SIGNAL = 'for one in /proc/[0-9]*; do grep -qs "$1" "$one/environ" && kill -s "$2" "${one#/proc/}"; done'
# How the engine's own words begin, which it sends as output, if it can't start the command.
_NOT_STARTED = b"OCI runtime exec failed"
# Nobody could come back to a command that was left by keys. There is no way to have none, and Docker's default would
# hold Ctrl-P, a shell's last line, back until the next key.
_NO_KEYS = ",".join(["ctrl-@"] * 8)


class DockerVisit:
    """`client` has a short timeout: a person waits."""

    def __init__(self, client: Any, address: str, container: str, command: Sequence[str], tty: bool) -> None:
        self._client, self._address, self._container, self._tty = client, address, container, tty
        self._mark = f"NGCDL_EXEC={uuid.uuid4().hex}"
        with docker_errors(address, "was starting the command"):
            made = client.exec_create(
                container, list(command), stdin=True, tty=tty, environment=[self._mark], detach_keys=_NO_KEYS
            )
            self._identity = str(made["Id"])
            self._attachment = client.exec_start(self._identity, tty=tty, socket=True)

    def output(self) -> Iterator[Chunk]:
        with contextlib.suppress(stream.Torn):  # `wait` finds out why
            for chunk in stream.attached(self._attachment, self._tty, self._is_running):
                if chunk.data.startswith(_NOT_STARTED) and not (self._inspected() or {"Pid": True})["Pid"]:
                    raise meaning(chunk.data.decode("utf-8", "replace"))
                yield chunk

    def write(self, data: bytes) -> None:
        stream.send(self._attachment, data)

    def close_input(self) -> None:
        stream.shut(self._attachment)

    def resize(self, rows: int, columns: int) -> None:
        with contextlib.suppress(NgcdlError), docker_errors(self._address, "resized the terminal"):
            self._client.exec_resize(self._identity, height=rows, width=columns)

    def pass_on(self, number: int) -> None:
        name = signal.Signals(number).name.removeprefix("SIG")
        with docker_errors(self._address, "passed a signal on"):
            made = self._client.exec_create(self._container, ["sh", "-c", _SIGNAL, "sh", self._mark, name])
            self._client.exec_start(made["Id"], detach=True)

    def leave(self, number: int) -> None:
        stream.shut(self._attachment, socket.SHUT_RDWR)  # output that nobody reads would hold the engine up
        self.pass_on(number)

    def wait(self) -> Exit:
        while (found := self._inspected()) and found["Running"]:
            time.sleep(_ASK_SECONDS)
        code = found["ExitCode"] if found else None
        if code in (None, _KILLED) and self._is_run_over():
            return Exit(_KILLED, reason=RUN_ENDED)
        if code is None:
            raise EngineLost("was inside the run")
        return Exit(code)

    def _is_running(self) -> bool:
        """Whether the command runs, as far as the engine says."""
        with contextlib.suppress(NgcdlError):
            return bool((self._inspected() or {}).get("Running"))
        return False

    def _inspected(self) -> dict[str, Any] | None:
        """Return what the engine knows of the command; None if nothing, as of one in a container that is gone, or from
        before the engine was restarted."""
        with docker_errors(self._address, "asked about the command"):
            found: dict[str, Any] | None = if_there(self._client.exec_inspect, self._identity)
        return found

    def _is_run_over(self) -> bool:
        """Whether the container has ended. The engine hears of its processes' ends one by one."""
        until = time.monotonic() + _APART_SECONDS
        with docker_errors(self._address, "asked about the run"):
            while (found := if_there(self._client.inspect_container, self._container)) and found["State"]["Running"]:
                if time.monotonic() > until:
                    return False
                time.sleep(_ASK_SECONDS)
        return True
