"""Fault injection: which fault strikes a request, and what it does to the answer.

FAULTS.json (read again for each request; absent or {} means no faults):
  {KIND: FAULT or [FAULT, ...], "token_lifetime": SECONDS, "realm_moves": true, "redirect_blobs": true,
   "skew_seconds": SECONDS}
  KIND is token, manifest, blob, tags or ping (`/v2/`); blob faults strike where the bytes are served, so at the CDN
  when blobs redirect. Writes (push) never fail.
  FAULT, every key optional, in any combination:
    "status": 429             answer this instead, with "body": TEXT, "content_type": "text/html",
                              "headers": {"Retry-After": "2"}
    "delay": SECONDS          wait first
    "hang": true              no answer until the client disconnects
    "reset": true             close the connection with RST before any answer
    "corrupt": true           invert the first byte of the body
    "cut_after": BYTES        announce the full length, send this many, close the connection
    "stall_after": BYTES      send this many, then nothing until the client disconnects
    "bytes_per_second": N     send slowly
    "times": N                strike N times, counted since the file last changed; without it, always
    "match": TEXT             only if the request's path contains TEXT
    "skip": N                 let N requests through first
  "realm_moves": an invalid or expired token is answered with
  `realm="http://127.0.0.1:PORT/token",service="registry",error="invalid_token"`, where an anonymous refresh gets 401
  (a key is accepted there).
  "skew_seconds": how far the Date header of challenges, tokens and refusals is ahead of the clock.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from answers import Gone, Refused, Reset

CHUNK = 256 * 1024


@dataclass(frozen=True)
class Fault:
    """One fault of FAULTS.json, with the same keys; an unknown key is an error."""

    status: int | None = None
    body: str = ""
    content_type: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0
    hang: bool = False
    reset: bool = False
    corrupt: bool = False
    cut_after: int | None = None
    stall_after: int | None = None
    bytes_per_second: int | None = None
    times: int | None = None
    match: str = ""
    skip: int = 0

    def strike(self, connection: socket.socket) -> None:
        """Apply the part of the fault that comes before the answer. Raise Refused or Gone if the fault replaces the
        answer."""
        time.sleep(self.delay)
        if self.hang:
            wait_until_gone(connection)
        if self.reset:
            raise Reset
        if self.status is not None:
            raise Refused(self.status, self.body, {"Content-Type": self.content_type, **self.headers})

    def spoil(self, read: Callable[[int], bytes], connection: socket.socket) -> Iterator[bytes]:
        """Yield the body from `read`, piece by piece, with this fault applied. Raise Gone where it is cut off."""
        rate = self.bytes_per_second
        limit = self.stall_after if self.cut_after is None else self.cut_after
        sent = 0
        while piece := read(min(CHUNK, max(1, rate // 10)) if rate else CHUNK):
            if self.corrupt and not sent:
                piece = bytes([piece[0] ^ 0xFF]) + piece[1:]
            if limit is not None and sent + len(piece) >= limit:
                yield piece[: limit - sent]
                if self.stall_after is not None:
                    wait_until_gone(connection)
                raise Gone
            yield piece
            sent += len(piece)
            if rate:
                time.sleep(len(piece) / rate)


GOOD_DAY = Fault()


class Faults:
    """FAULTS.json, and how often each of its faults has matched."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._seen: dict[tuple[Any, ...], int] = {}
        self._lock = threading.Lock()

    def setting(self, name: str, default: Any = None) -> Any:
        return self._read()[0].get(name, default)

    def _read(self) -> tuple[dict[str, Any], tuple[int, int]]:
        """Return what the file says, and which file that is: it may be replaced at any time."""
        try:
            with self._file.open() as file:
                stat = os.fstat(file.fileno())
                return json.loads(file.read() or "{}"), (stat.st_mtime_ns, stat.st_ino)
        except FileNotFoundError:
            return {}, (0, 0)

    def of(self, kind: str, path: str) -> Fault | None:
        """Return the fault that strikes this request, or None; count the request."""
        settings, which = self._read()
        told = settings.get(kind) or []
        for position, words in enumerate([told] if isinstance(told, dict) else told):
            fault = Fault(**words)
            if fault.match not in path:
                continue
            with self._lock:
                key = (kind, position, *which)
                seen = self._seen[key] = self._seen.get(key, 0) + 1
            if seen > fault.skip and (fault.times is None or seen <= fault.skip + fault.times):
                return fault
        return None


def wait_until_gone(connection: socket.socket) -> None:
    """Send nothing until the client disconnects, then raise Gone."""
    connection.settimeout(1)
    while True:
        try:
            if not connection.recv(1, socket.MSG_PEEK):
                raise Gone
            time.sleep(1)  # the client sent more and still waits
        except TimeoutError:
            continue
