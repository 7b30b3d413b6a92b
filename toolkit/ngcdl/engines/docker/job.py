"""One running container: its output, its end, its signals.

The end of the output does not mean that the container has ended: if the daemon dies, the stream just closes. So the
container's state is always queried, and ngcdl waits for an absent engine (with live-restore the container keeps running
meanwhile).
"""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any

from ngcdl.engines.docker import gpus, keys, stream
from ngcdl.engines.docker.messages import docker_errors, if_there
from ngcdl.engines.docker.visit import DockerVisit
from ngcdl.engines.values import AWAY, UNSEEN, Chunk, Exit, Started
from ngcdl.errors import ContainerLeft, EngineLost, GpuUnknown, NgcdlError
from ngcdl.frozen import dataclass

log = logging.getLogger(__name__)

# How long a daemon may be absent before the run is given up: a package update restarts it within a few seconds. Without
# live-restore it closes its API first, and then stops its containers, for as long as their StopTimeout.
PATIENCE_SECONDS = 20.0
# The timeout of a call once a person waits for the end.
HURRY_SECONDS = 3.0
# While a container is ending, an exec fails, although the container's state is Running.
ENDING_SECONDS = 2.0
ASK_SECONDS = 0.1  # between checks whether a container has ended after Ctrl-C
# The most time between a container's end, by its time stamp, and the end of its output stream.
_APART_SECONDS = 0.5
_READING = "read the run's output"
# The program writes into a pipe that the engine empties; once that is full (64 KiB), the next write blocks:
# https://docs.docker.com/engine/daemon/live-restore/#impact-of-live-restore-on-running-containers
_MAY_PAUSE = "the run may go on, but its output may pause it until the engine reads that"
# OOMKilled is false also if systemd-oomd or earlyoom killed it: they send a plain SIGKILL.
_KILLED = (
    "killed (SIGKILL), not by ngcdl; Docker reports no lack of memory (systemd-oomd and earlyoom leave no trace there)"
)
# Docker hears of the kill and of the end by two events, in either order:
# https://github.com/moby/moby/blob/007daf50452f/daemon/monitor.go
_OOM_SECONDS = 0.2
_REMOVED = "the container was removed outside ngcdl"
# In place of the State of a container that is missing.
_MISSING: dict[str, Any] = {"Running": False, "ExitCode": None, "OOMKilled": None, "Removed": True, "FinishedAt": ""}
# States of a container that is being removed: https://docs.docker.com/reference/api/engine/version/v1.47/
_GOING = ("removing", "dead")


@dataclass(frozen=True)
class Clients:
    """Two clients of one engine: `patient` for slow operations, `quick` for those that a person waits for."""

    patient: Any
    quick: Any


class DockerJob:
    """A container by its id. `attachment` is the open stream, None if another process started the container."""

    def __init__(
        self, clients: Clients, address: str, identity: str, tty: bool, started: Started, attachment: Any = None
    ) -> None:
        self._client, self._quick = clients.patient, clients.quick
        self._address = address
        self._tty = tty
        self._attachment = attachment
        self._killed_by_us = False
        self._given_up = False
        self._is_torn = False  # the output read last may lack its end: the stream broke, or the engine was absent
        self._is_kept = False  # the engine has output that was not read
        self._is_deaf = False
        self._silent_since: float | None = None
        self._absent_seconds: list[float] = []  # of each absence that is over
        self._had_ended = False  # when the engine was back from its last absence
        self._way_out = keys.typed(keys.named()) if tty and attachment is not None else b""
        self._typed = b""
        self.detached = False
        self.patience_seconds = PATIENCE_SECONDS
        self.identity = identity
        self.started = started
        self.say: Callable[[str], None] = log.info

    # -- output and input -------------------------------------------------------------------------------------------

    def output(self) -> Iterator[Chunk]:
        seen = stream.Seen()
        if self._attachment is not None:
            yield from seen.noted(self._whole(stream.attached(self._attachment, self._tty, self._state_running)))
            self._is_deaf = True
        else:
            # attach() returns only new output; the log has the rest.
            yield from seen.noted(self._logged())
        closed, state = time.time(), None
        while not self.detached and (state := self._settled_state()):
            # The stream broke, or the daemon came back: the container kept running, and may have ended since.
            if not state["Running"] and not self._may_lack(state, closed):
                break
            yield from seen.noted(self._rest(seen))
            if not state["Running"]:
                break
            closed = time.time()
        self._is_kept = self._is_torn and not (state or {}).get("Removed")
        if self._is_torn and self._attachment is None:
            raise EngineLost(_READING)

    def last(self, lines: int) -> Iterator[Chunk]:
        """As in Tailed."""
        yield from self._whole(stream.logged(self._client, self.identity, self._tty, tail=lines))
        if self._is_torn:
            raise EngineLost(_READING)

    def _may_lack(self, state: dict[str, Any], closed: float) -> bool:
        """Whether a container that has ended may have written more after `closed`, the time when its stream ended.

        A systemd socket holds a request until a restarted dockerd answers it. The engine then never seemed absent, and
        only the time stamp of the container's end tells; on another machine that is by another clock, so of no use.
        """
        finished = _seconds(state.get("FinishedAt", "")) if self.started.pid else None
        return self._is_torn or (finished is not None and finished - closed > _APART_SECONDS)

    def _rest(self, seen: stream.Seen) -> Iterator[Chunk]:
        """Yield what the log has beyond `seen`, and follow it."""
        try:
            yield from seen.beyond(self._logged())
        except stream.Shortened:
            yield from self._logged(seen.last)

    def _logged(self, since: float | None = None) -> Iterator[Chunk]:
        return self._whole(stream.logged(self._client, self.identity, self._tty, since))

    def _whole(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """Pass `chunks` on, and remember whether they broke off."""
        self._is_torn = False
        try:
            yield from chunks
        except stream.Torn:
            self._is_torn = True

    def _state_running(self) -> bool:
        """Whether the container runs; also True if the engine does not answer and is not given up yet."""
        state = self._inspect_or_none()
        return bool(state["Running"]) if state else not self._is_given_up()

    def _is_given_up(self) -> bool:
        silent_seconds = time.monotonic() - self._silent_since if self._silent_since else 0.0
        self._given_up = self._given_up or silent_seconds >= self.patience_seconds
        return self._given_up

    def write(self, data: bytes) -> None:
        """Send `data` to its input. Raise OSError, even for no data, once nothing reads it any more."""
        if self._is_deaf:
            raise BrokenPipeError("the attachment has ended")
        if self._attachment is not None:
            # The daemon knows these keys as well and closes the stream, but does not report why.
            typed = self._typed + data
            self.detached = self.detached or (bool(self._way_out) and self._way_out in typed)
            self._typed = typed[max(0, len(typed) - len(self._way_out)) :]
            stream.send(self._attachment, data)

    def close_input(self) -> None:
        if self._attachment is not None:
            stream.shut(self._attachment)

    def resize(self, rows: int, columns: int) -> None:
        with contextlib.suppress(NgcdlError), docker_errors(self._address, "resized the terminal"):
            self._quick.resize(self.identity, height=rows, width=columns)

    def enter(self, command: Sequence[str], tty: bool) -> DockerVisit:
        """As in Enterable."""
        return DockerVisit(self._quick, self._address, self.identity, command, tty)

    # -- the end ----------------------------------------------------------------------------------------------------

    def _inspect_or_none(self) -> dict[str, Any] | None:
        """Return the container's State, with 'Removed' if the container is missing; None if the engine does not answer.

        An engine that was given up is not queried again: each query may keep a person waiting for seconds.
        """
        if self._given_up:
            return None
        began = time.monotonic()
        try:
            with docker_errors(self._address, "asked about the run"):
                found = if_there(self._quick.inspect_container, self.identity)
                state: dict[str, Any] = found["State"] if found else _MISSING
        except NgcdlError as error:
            if self._silent_since is None:
                self._silent_since = began
                self.say(f"{error.message} ngcdl waits up to {self.patience_seconds:.0f} s for it: {_MAY_PAUSE}")
            self._is_torn = True
            return None
        if self._silent_since is not None:
            self._absent_seconds.append(time.monotonic() - self._silent_since)
            self._silent_since = None
            self._had_ended = not state["Running"]
            self.say(f"the Docker engine answers again, after {math.ceil(self._absent_seconds[-1])} s")
        return state

    def absences(self) -> str | None:
        """As in OutlivesEngine."""
        if not self._absent_seconds:
            return None
        times, seconds = len(self._absent_seconds), math.ceil(sum(self._absent_seconds))
        often = "" if times == 1 else f" {times} times,"
        return f"The Docker engine did not answer{often} for {seconds} s; its output may have paused the run meanwhile."

    def _settled_state(self) -> dict[str, Any] | None:
        """Return the State of a container that has ended, or that still runs after 2 s or after the engine was absent;
        None if the engine was given up."""
        was_away = False
        pause = 0.01
        running_since = time.monotonic()
        while True:
            state = self._inspect_or_none()
            if state is None:
                was_away = True
                pause = 0.5
            elif not state["Running"] or was_away or time.monotonic() - running_since > 2:
                return state
            if state is None and self._is_given_up():
                return None
            time.sleep(pause)
            pause = min(pause * 1.5, 0.5)

    def wait(self) -> Exit:
        while True:
            state = self._settled_state()
            if state is None:
                raise EngineLost("waited for the run")
            if not state["Running"]:
                return self._exit(state)

    def ended(self) -> Exit | None:
        state = self._inspect_or_none()
        if state is None:
            raise EngineLost("asked about the run")
        return None if state["Running"] else self._exit(state)

    def _exit(self, state: dict[str, Any]) -> Exit:
        if state["ExitCode"] == 137 and not state["OOMKilled"] and not self._killed_by_us and not state.get("Removed"):
            time.sleep(_OOM_SECONDS)
            state = {**state, "OOMKilled": bool((self._inspect_or_none() or state)["OOMKilled"])}
        code, oom = state["ExitCode"], state["OOMKilled"]
        reason: str | None = None
        if state.get("Removed"):
            reason = _REMOVED
        elif state.get("Status") == "created":  # Docker gives these an exit code 0
            return Exit(None, reason="the container was created but never started")
        elif oom and code == 0:
            reason = "out of memory: the kernel killed a process inside, although the command itself exited with 0"
        elif oom:
            reason = "out of memory: the kernel killed it"
        elif code == 137 and not self._killed_by_us:
            reason = _REMOVED if state.get("Status") in _GOING else _KILLED
        elif code == UNSEEN and self._had_ended:
            reason = AWAY
        elif code == 143 and not self._killed_by_us:
            reason = "ended by SIGTERM, not by ngcdl: docker stop, a restart of the engine, or the command itself"
        elif state.get("Error"):
            reason = str(state["Error"])
        return Exit(code, oom, reason, _seconds(state.get("FinishedAt", "")))

    def waiting(self) -> str | None:
        return None

    def interrupt(self, grace_seconds: float) -> None:
        """As in Interruptible: SIGINT reaches the container's first process alone, as from `docker run` without -t."""
        self._killed_by_us = True
        with contextlib.suppress(NgcdlError), docker_errors(self._address, "was stopping the run"):
            self._quick.kill(self.identity, signal="SIGINT")
            end = time.monotonic() + grace_seconds
            while self._quick.inspect_container(self.identity)["State"]["Running"] and time.monotonic() < end:
                time.sleep(ASK_SECONDS)
        self.stop(grace_seconds)

    def pass_on(self, number: int) -> None:
        import docker.errors

        # what the engine refuses is a signal to a container that has just ended
        with docker_errors(self._address, "passed a signal on"), contextlib.suppress(docker.errors.APIError):
            self._quick.kill(self.identity, signal=number)

    def stop(self, grace_seconds: float) -> None:
        self._killed_by_us = True
        # The SDK adds the grace period to its timeout.
        with docker_errors(self._address, "was stopping the run"):
            if_there(self._quick.stop, self.identity, timeout=int(grace_seconds))

    def kill(self) -> None:
        self._killed_by_us = True
        self._quick.timeout = HURRY_SECONDS
        with contextlib.suppress(NgcdlError), docker_errors(self._address, "was killing the run"):
            self._quick.kill(self.identity)

    def remove(self) -> None:
        """Delete the container. If only its log has the end of its output, keep it and raise EngineLost. Raise
        ContainerLeft if the engine does not delete it."""
        attachment, self._attachment = self._attachment, None
        if attachment is not None:
            stream.close(attachment)
        if self._is_kept:
            raise EngineLost(_READING)
        try:
            with docker_errors(self._address, "was cleaning up"):
                if_there(self._client.remove_container, self.identity, force=True, v=True)
        except NgcdlError as error:
            if "is already in progress" not in error.message:  # somebody else removes it
                raise ContainerLeft(self.identity, error.message) from error

    def _ends_soon(self) -> bool:
        """Whether the container ends within ENDING_SECONDS."""
        end = time.monotonic() + ENDING_SECONDS
        while self._state_running():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    # -- GPUs -------------------------------------------------------------------------------------------------------

    def gpus_inside(self) -> tuple[str, ...] | None:
        """As in Job; raise GpuUnknown also if the engine can't run nvidia-smi."""
        try:
            with docker_errors(self._address, "looked for its GPUs"):
                found = gpus.gpus_inside(self._client, self.identity)
        except (NgcdlError, stream.Torn) as error:
            if not self._ends_soon():
                raise GpuUnknown(str(error).rstrip(".") or "the check for them broke off") from error
            return None
        if isinstance(found, tuple):
            return found
        if self._ends_soon():
            return None
        raise found


def _seconds(stamp: str) -> float | None:
    """Parse Docker's time stamp (nanoseconds, Z) to seconds since the epoch; year 1 means never."""
    try:
        when = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return when.timestamp() if when.year > 1 else None
