"""What a pod wrote: lines for people and then the packed record, which pod.sh prints in up to two parts. Kept in the
run's folder.

log.txt has the pods one after the other, each below a line that names it. A pod's output has one place there, so that
two ngcdl processes may fetch it. A node keeps only the end of a long log (10 MiB); log.txt is searched for the place
where that end belongs. Nothing is ever overwritten, and output that is not found is appended: better twice than never.
"""

from __future__ import annotations

import base64
import errno
import io
import re
import tarfile
import warnings
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from ngcdl import whole
from ngcdl.folder import EVENTS, EXIT, LOG, TRACE

BEGIN, END = b"ngcdl: the record, for ngcdl to read\n", b"ngcdl: end of the record\n"
_KEPT = re.compile("|".join([*map(re.escape, (EVENTS, EXIT, TRACE)), r"samples-[\w.-]+\.jsonl"]))
_PACKED = re.compile(rb"[A-Za-z0-9+/]{1,76}={0,2}\n?")  # a line of base64, or its beginning
_WHOLE_BYTES = 77  # of all of its lines but the last one
_SOUGHT_BYTES = 4096
_BLOCK_BYTES = 1 << 20
# What fits into a node's usual log of 10 MiB is some 100 MiB unpacked: samples and events shrink to a tenth or less.
_MOST_BYTES = 1 << 29
_MOST_PACKED_BYTES = 1 << 27  # as printed


class PodOutput:
    """One pod's output as it arrives: `take` returns what is for people, and unpacks the record into the folder.

    `place` is the offset in the log where the output returned so far ends."""

    def __init__(self, folder: Path, pod: str, keep_log: bool = True) -> None:
        self._folder, self._pod, self._keep_log = folder, pod, keep_log
        self._rest = b""  # an incomplete line that may become the record's first
        self._gap = b""  # an empty line, such as pod.sh prints before the record
        self._is_within = False  # did the last shown output end within a line?
        self._packed: list[bytes] | None = None
        self._packed_bytes = 0
        # The first lines, while they may be the end of a record whose beginning went with the node's older file.
        self._cut: list[bytes] | None = []
        self._begin: int | None = None  # the offset in the log of this pod's output
        self.place = 0

    def take(self, data: bytes) -> bytes:
        lines, self._rest = (self._rest + data).splitlines(keepends=True), b""
        shown = b"".join(map(self._shown, lines))
        self._keep(shown)
        return shown

    def _shown(self, line: bytes) -> bytes:
        if self._waits(line):
            self._rest = line
            return b""
        if self._is_cut(line):
            return b""
        before = self._not_cut()
        if self._is_packed(line):
            self._gap = b""
            return before
        is_gap = line == b"\n" and not self._is_within
        shown, self._gap = (self._gap, line) if is_gap else (self._gap + line, b"")
        self._is_within = not line.endswith(b"\n")
        return before + shown

    def end(self) -> bytes:
        rest = b"" if self._packed is not None else self._not_cut() + self._gap + self._rest
        self._gap = self._rest = b""
        self._keep(rest)
        return rest

    def _waits(self, line: bytes) -> bool:
        if line.endswith(b"\n"):
            return False
        may_be_cut = self._cut is not None and _PACKED.fullmatch(line) is not None
        is_within = self._packed is not None and len(line) < _WHOLE_BYTES
        return is_within or BEGIN.startswith(line) or END.startswith(line) or may_be_cut

    def _is_cut(self, line: bytes) -> bool:
        """Whether a line may belong to a record whose beginning is lost. At the record's last line, drop it all."""
        if line == END and self._packed is None:
            self._cut = None
            warnings.warn("the record of a pod can't be read: its node kept only the end of it", stacklevel=1)
            return True
        if self._cut is None or not _PACKED.fullmatch(line):
            return False
        if len(line) != _WHOLE_BYTES and not self._cut:
            return False  # a single word: better shown at once than held back
        if len(self._cut) * _WHOLE_BYTES > _MOST_PACKED_BYTES:
            return False
        self._cut.append(line)
        return True

    def _not_cut(self) -> bytes:
        """Return the lines that were no record after all."""
        lines, self._cut = b"".join(self._cut or ()), None
        return lines

    def _is_packed(self, line: bytes) -> bool:
        if line == BEGIN:
            self._packed, self._packed_bytes = [], 0
        elif line == END and self._packed is not None:
            unpack(b"".join(self._packed), self._folder)
            self._packed = None
        elif self._packed is not None:
            self._packed_bytes += max(len(line), _WHOLE_BYTES)
            if self._packed_bytes <= _MOST_PACKED_BYTES:  # of more the end is missing, and `unpack` says so
                self._packed.append(line)
        else:
            return False
        return True

    def _keep(self, data: bytes) -> None:
        if not data or not self._keep_log:
            return
        try:
            if self._begin is None:
                self._begin = self.place = place(self._folder / LOG, self._pod)
            with (self._folder / LOG).open("r+b", buffering=0) as file:
                file.seek(self.place)
                if not data.startswith(file.read(len(data))):
                    self.place = self._elsewhere(file, self._begin, data)
                file.seek(self.place)
                file.write(data)
        except OSError as error:
            said = f"{self._folder / LOG} can't be written ({error.strerror}); the run goes on without it."
            warnings.warn(said, stacklevel=1)
        self.place += len(data)

    def _elsewhere(self, file: io.FileIO, begin: int, data: bytes) -> int:
        """Return the offset of `data` in the log, where it is whole or cut by the log's end; if it is not found, append
        the pod's title and return the log's new end."""
        key = data[:_SOUGHT_BYTES]
        # a few words may occur anywhere by chance
        found = deque(_places(file, key, begin, bytes.rfind) if len(key) == _SOUGHT_BYTES else (), maxlen=1)
        if found and data.startswith(_read(file, found[0], len(data))):
            return found[0]
        end = file.seek(0, io.SEEK_END)
        last = _read(file, max(begin, end - len(key)), len(key))
        at_end = next((size for size in range(len(key), 0, -1) if last.endswith(key[:size])), 0)
        if at_end:
            return end - at_end
        file.write(_title(self._pod))
        return file.tell()


def place(path: Path, pod: str) -> int:
    """Return where a pod's output begins in the log, below a line with its name, which is appended if missing."""
    title = _title(pod)
    with path.open("ab+", buffering=0) as file:
        at = next(_places(file, title), None)
        if at is not None:
            return at + len(title)
        file.write(title)
        return file.tell()


def _places(
    file: io.FileIO, words: bytes, begin: int = 0, among: Callable[[bytes, bytes], int] = bytes.find
) -> Iterator[int]:
    """Yield the offset of `words` from `begin` on, one of each block that has them, `among` several the first or last.
    A log may not fit into memory."""
    while block := _read(file, begin, _BLOCK_BYTES):
        if (at := among(block, words)) >= 0:
            yield begin + at
        if len(block) < len(words):
            return
        begin += len(block) - len(words) + 1


def _read(file: io.FileIO, at: int, size: int) -> bytes:
    file.seek(at)
    return file.read(size)


def _title(pod: str) -> bytes:
    return f"ngcdl: pod {pod}\n".encode()


def unpack(packed: bytes, folder: Path) -> None:
    """Write those files of a record that have known names, each atomically; skip a broken record, and one of more than
    _MOST_BYTES: whatever runs in the pod can print one."""
    try:
        inflating = zlib.decompressobj(wbits=31)  # gzip, of one member
        content = inflating.decompress(base64.b64decode(packed), _MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise OSError(errno.EFBIG, f"it has more than {_MOST_BYTES >> 20} MiB")
        if not inflating.eof:  # whole, and its checksum right, before any of it is kept
            raise EOFError("its end is missing")
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for entry in archive:
                is_kept = entry.isreg() and entry.sparse is None and _KEPT.fullmatch(entry.name)
                file = archive.extractfile(entry) if is_kept else None
                if file:
                    with whole.written(folder / entry.name, mode=0o666, sync=False) as kept:
                        kept.write(file.read())
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError, OverflowError) as error:  # also base64's
        warnings.warn(f"the record of a pod can't be read: {error}", stacklevel=1)
