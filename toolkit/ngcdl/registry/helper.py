"""Docker's credential helpers, the programs docker-credential-NAME: get, store and erase.

The protocol: the request on stdin, a JSON answer on stdout, failures as text with exit status 1.
https://docs.docker.com/reference/cli/docker/login/#credential-helper-protocol
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from typing import IO

from ngcdl import processes
from ngcdl.errors import ConfigBroken, HelperFailed, HelperHung, HelperMissing
from ngcdl.excerpt import excerpt
from ngcdl.frozen import dataclass
from ngcdl.registry.key import NGC_USERNAME, Secret
from ngcdl.settings import without_keys

HELPER_SECONDS = 10.0
_ANSWER_LIMIT_BYTES = 65536
# The only error text that means "no such entry" and not a failure:
# https://github.com/docker/docker-credential-helpers/blob/master/credentials/error.go
_NOT_FOUND = "credentials not found in native keychain"


@dataclass(frozen=True)
class Helper:
    """One helper: its suffix as in config.json, and `config`, the file that names the helper."""

    suffix: str
    config: object
    environ: Mapping[str, str]
    timeout_seconds: float

    @property
    def program(self) -> str:
        return f"docker-credential-{self.suffix}"

    def get(self, host: str) -> tuple[str, Secret] | None:
        """Return the user name and secret, None if the helper has none."""
        status, out, err = self._call("get", host)
        if status != 0:
            self._raise_unless_not_found(out, err)
            return None
        try:
            answer = json.loads(out)
        except (ValueError, RecursionError) as error:
            raise HelperFailed(self.program, "its answer is not JSON.") from error
        username, secret = (answer.get(key) if isinstance(answer, dict) else None for key in ("Username", "Secret"))
        if not isinstance(username, str) or not isinstance(secret, str):
            raise HelperFailed(self.program, "its answer lacks Username or Secret.")
        return (username, Secret(secret)) if secret else None

    def store(self, host: str, secret: Secret) -> None:
        """Store an NGC key, passed on stdin."""
        entry = {"ServerURL": host, "Username": NGC_USERNAME, "Secret": secret.reveal()}
        status, out, err = self._call("store", json.dumps(entry))
        if status != 0:
            what = excerpt(out or err, hide=secret.reveal()) or f"exit status {status}."
            raise HelperFailed(self.program, what, is_store=True)

    def erase(self, host: str) -> bool:
        """Remove the entry; return False if there was none."""
        status, out, err = self._call("erase", host)
        if status != 0:
            self._raise_unless_not_found(out, err)
        return status == 0

    def _raise_unless_not_found(self, out: bytes, err: bytes) -> None:
        text = excerpt(out) or excerpt(err)
        if _NOT_FOUND not in (excerpt(out), excerpt(err)):
            # A text with "Secret" in it may contain a key: never show it.
            shown = "it exited with an error." if not text or 'secret"' in text.lower() else text
            raise HelperFailed(self.program, shown)

    def _call(self, action: str, request: str) -> tuple[int, bytes, bytes]:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", self.suffix):
            raise ConfigBroken(self.config, "credsStore or a credHelpers entry is not the name of a helper")
        program = shutil.which(self.program, path=self.environ.get("PATH", os.defpath))
        if program is None:
            raise HelperMissing(self.config, self.program)
        try:
            process = subprocess.Popen(
                [program, action],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=without_keys(self.environ),
                start_new_session=True,
            )
        except OSError as error:
            what = f"it can't be started: {error.strerror}."
            raise HelperFailed(self.program, what, is_store=action == "store") from error
        try:
            return self._converse(process, request.encode())
        finally:
            _end(process)

    def _converse(self, process: subprocess.Popen[bytes], request: bytes) -> tuple[int, bytes, bytes]:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        deadline = time.monotonic() + self.timeout_seconds
        # The request is smaller than a pipe's buffer, so this can't block; a helper may exit without reading it.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(request)
            process.stdin.flush()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        out, err = self._collect(process.stdout, process.stderr, deadline)
        try:
            return process.wait(max(0.0, deadline - time.monotonic())), out, err
        except subprocess.TimeoutExpired as error:
            raise HelperHung(self.program, self.timeout_seconds) from error

    def _collect(self, stdout: IO[bytes], stderr: IO[bytes], deadline: float) -> tuple[bytes, bytes]:
        heard = {stdout: b"", stderr: b""}
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ, stdout)
            selector.register(stderr, selectors.EVENT_READ, stderr)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    raise HelperHung(self.program, self.timeout_seconds)
                for key, _ in ready:
                    stream: IO[bytes] = key.data
                    chunk = os.read(stream.fileno(), 8192)
                    heard[stream] += chunk
                    if not chunk:
                        selector.unregister(stream)
                    if len(heard[stream]) > _ANSWER_LIMIT_BYTES:
                        raise HelperFailed(self.program, "its answer does not end.")
        return heard[stdout], heard[stderr]


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a helper and every process that it started; harmless if the helper has ended. One that can't be killed,
    because it has become another user's (sudo) or is stuck in the kernel, isn't waited for."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    processes.reaped(process)
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            with contextlib.suppress(OSError):
                stream.close()
