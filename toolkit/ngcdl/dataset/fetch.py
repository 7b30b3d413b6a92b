"""Downloads the official archive from the first address that is fast enough, complete or not at all."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ngcdl.dataset import address, disk
from ngcdl.dataset.address import Failure
from ngcdl.dataset.official import Archive
from ngcdl.dataset.pace import MINUTES, Pace, Patience, Progress
from ngcdl.errors import DatasetUnavailable
from ngcdl.frozen import dataclass

if TYPE_CHECKING:
    import requests


_PASSING = (408, 425, 429, 500, 502, 503, 504)
_CHUNK_BYTES = 1 << 16
_PROGRESS_BYTES = 1 << 20  # this much progress between two failures resets the count of tries
_LONGEST_WAIT_SECONDS = 60.0
_GZIP = b"\x1f\x8b"


class Offline(Exception):
    """Nothing answered at any address."""


@dataclass(frozen=True)
class Fetch:
    """One download: what, where to, and whom to inform."""

    archive: Archive
    path: Path
    patience: Patience
    say: Callable[[str], None]
    environ: Mapping[str, str]
    progress: Progress | None = None

    @property
    def part(self) -> Path:
        """What arrived so far, kept between tries and between runs."""
        return self.path.with_name(self.path.name + ".part")

    @property
    def have(self) -> int:
        """How many bytes `part` has."""
        try:
            return self.part.stat().st_size
        except FileNotFoundError:
            return 0

    def run(self, urls: Sequence[str]) -> None:
        """Put the verified archive at `path`. On any failure, what arrived stays in `path`.part.

        Raise Offline if no address answers, DatasetUnavailable if one does but the archive does not arrive.
        """
        failures: list[tuple[str, Failure]] = []
        if self.have == self.archive.bytes and self._accept():
            return
        for number, url in enumerate(urls, start=1):
            try:
                self._from(url)
                return
            except Failure as failure:
                failures.append((address.host(url), failure))
                if number < len(urls):
                    self.say(f"{address.host(url)}: {failure.why}. Trying {address.host(urls[number])}.")
        why = "; ".join(f"{name}: {failure.why}" for name, failure in failures)
        if any(failure.answered for _, failure in failures):
            is_untrusted = any(failure.is_untrusted for _, failure in failures)
            raise DatasetUnavailable(why, is_kept=self.have > 0, is_untrusted=is_untrusted)
        raise Offline(why)

    def _from(self, url: str) -> None:
        """Get the rest from one address, and retry after transient failures."""
        is_resumed = self._rest(url)
        if self._accept():
            return
        if is_resumed:  # the parts may be from several addresses or days: this address gets one clean try
            self._rest(url)
            if self._accept():
                return
        raise Failure(f"it does not send the official bytes (kept as {self.part.stem}.bad)")

    def _rest(self, url: str) -> bool:
        """Download what is missing. Return whether the archive came in more than one part."""
        pace = Pace(self.archive.bytes, self.have, self.patience, self.progress)
        tries, reached, is_resumed = 0, False, False
        while self.have != self.archive.bytes:
            before = self.have
            is_resumed = is_resumed or before > 0
            try:
                self._once(url, pace)
            except Failure as failure:
                reached = reached or failure.answered or self.have > before
                if self.have - before >= _PROGRESS_BYTES:
                    tries = 0
                tries += 1
                if not (failure.again and reached) or tries >= self.patience.tries:
                    raise Failure(failure.why, answered=reached, is_untrusted=failure.is_untrusted) from failure
                pause = 2.0 ** (tries - 1) if failure.wait is None else min(failure.wait, _LONGEST_WAIT_SECONDS)
                self.say(f"{address.host(url)}: {failure.why}; trying again in {pause:g} s")
                self.patience.sleep(pause)
        return is_resumed

    def _once(self, url: str, pace: Pace) -> None:
        """Send one request and store what arrives."""
        if self.have > self.archive.bytes:
            self.part.unlink()
        have = self.have
        headers = {"Accept-Encoding": "identity"}  # the archive as it is, not compressed again
        if have:
            headers["Range"] = f"bytes={have}-"  # no If-Range: from any address only the official bytes are accepted
        with address.answer(url, headers, self.patience, self.environ) as response:
            if response.status_code == 416:
                raise Failure("it has no more bytes than are already here")
            at = _begins_at(response, have, self.archive)
            self._store(url, response, at, pace)

    def _store(self, url: str, response: requests.Response, at: int, pace: Pace) -> None:
        """Append the body, which begins at byte `at` of the archive; skip the bytes that are here already."""
        chunk = _read(response, self.patience)
        if not chunk:
            raise Failure("its answer is empty", again=True)
        if at == 0 and not chunk.startswith(_GZIP[: len(chunk)]):
            raise Failure("what it sends is not the archive")
        if not pace.begun:
            megabytes, done = self.archive.bytes / 1e6, f", {at / self.archive.bytes:.0%} are here" if at else ""
            self.say(f"Downloading CIFAR-10 ({megabytes:.0f} MB{done}) from {address.host(url)} to {self.path.parent}.")
        have = self.have
        with disk.written(self.path.parent), self.part.open("ab") as file:
            while chunk:
                begin, at = at, at + len(chunk)
                if at > self.archive.bytes:
                    raise Failure(f"what it sends is not the archive: more than {self.archive.bytes} bytes")
                file.write(chunk[max(0, have - begin) :])
                if pace.too_slow(at):
                    raise Failure(_slow(pace, at, self.patience))
                chunk = _read(response, self.patience) if at < self.archive.bytes else b""
        if at < self.archive.bytes:
            raise Failure(f"the connection was cut after {at} of {self.archive.bytes} bytes", again=True)

    def _accept(self) -> bool:
        """Give the archive its final name if its hash is right; otherwise set it aside as .bad."""
        with disk.written(self.path.parent):
            if disk.sha256(self.part) == self.archive.sha256:
                with self.part.open("rb") as file:
                    os.fsync(file.fileno())
                self.part.replace(self.path)
                return True
            bad = self.part.replace(self.part.with_suffix(".bad"))
        self.say(f"What was downloaded is not the official archive; it is kept as {bad} and not used.")
        return False


def _begins_at(response: requests.Response, have: int, archive: Archive) -> int:
    """Return the offset in the archive at which the body begins. Raise Failure if it can't be the archive."""
    status, headers = response.status_code, response.headers
    if status in _PASSING:
        wait = headers.get("Retry-After", "")
        raise Failure(f"it answers {status}", again=True, wait=float(wait) if wait.isdecimal() else None)
    if status not in (200, 206):
        raise Failure(f"it answers {status}")
    kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
    if kind in ("text/html", "application/xhtml+xml"):
        raise Failure("what it sends is not the archive but a web page")
    if status == 206:
        found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", headers.get("Content-Range", "").strip())
        if found is None or int(found[1]) != have:
            raise Failure("it sends another part than the requested one")
        total, at = found[2], have
    else:
        total, at = headers.get("Content-Length", "*"), 0
    if total.isdecimal() and int(total) != archive.bytes:
        raise Failure(f"what it sends is not the archive: {total} bytes instead of {archive.bytes}")
    return at


def _read(response: requests.Response, patience: Patience) -> bytes:
    """Read what has arrived without waiting for a full chunk: a trickle must not delay the check of the pace.

    Return b"" at the end, and if the connection is cut.
    """
    from urllib3.exceptions import HTTPError, ReadTimeoutError

    read = getattr(response.raw, "read1", response.raw.read)  # urllib3 < 2.1 has no read1
    try:
        return bytes(read(_CHUNK_BYTES))
    except (ReadTimeoutError, TimeoutError) as error:
        raise Failure(f"no byte came for {patience.stall_seconds:g} s") from error
    except (HTTPError, OSError):
        return b""


def _slow(pace: Pace, have: int, patience: Patience) -> str:
    rate, minutes, limit = (pace.rate or 0.0) / 1e3, pace.left_seconds(have) / 60, patience.limit_seconds / 60
    return f"it sends {rate:.0f} kB/s, which takes {minutes:.0f} min more (the limit is {MINUTES}={limit:g})"
