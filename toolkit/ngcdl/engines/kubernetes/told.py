"""What a pod wrote: lines for people, and at its end the record, packed, which pod.sh prints. Kept in the run's folder.

log.txt has the pods one after the other, each below a line that names it. What a pod wrote has one place there, so that
two of us may bring it.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import io
import logging
import re
import tarfile
from pathlib import Path

log = logging.getLogger(__name__)
BEGIN, END = b"ngcdl: the record, for ngcdl to read\n", b"ngcdl: end of the record\n"
_KEPT = re.compile(r"events\.jsonl|exit\.json|trace\.json|samples-[\w.-]+\.jsonl")
LOG = "log.txt"


class Told:
    """What one pod writes, as it comes: `take` gives what is for people; the record is unpacked into the folder."""

    def __init__(self, folder: Path, pod: str, keep_log: bool = True) -> None:
        self._folder, self._pod, self._keep_log = folder, pod, keep_log
        self._rest = b""  # a line that may become the record's first
        self._packed: list[bytes] | None = None
        self._place: int | None = None

    def take(self, data: bytes) -> bytes:
        lines = (self._rest + data).splitlines(keepends=True)
        self._rest = lines.pop() if lines and self._waits(lines[-1]) else b""
        shown = b"".join(line for line in lines if not self._is_packed(line))
        self._keep(shown)
        return shown

    def end(self) -> bytes:
        rest, self._rest = (b"" if self._packed is not None else self._rest), b""
        self._keep(rest)
        return rest

    def _waits(self, line: bytes) -> bool:
        return not line.endswith(b"\n") and (self._packed is not None or BEGIN.startswith(line))

    def _is_packed(self, line: bytes) -> bool:
        if line == BEGIN:
            self._packed = []
        elif line == END and self._packed is not None:
            unpack(b"".join(self._packed), self._folder)
            self._packed = None
        elif self._packed is not None:
            self._packed.append(line)
        else:
            return False
        return True

    def _keep(self, data: bytes) -> None:
        if not data or not self._keep_log:
            return
        try:
            if self._place is None:
                self._place = place(self._folder / LOG, self._pod)
            with (self._folder / LOG).open("r+b", buffering=0) as file:
                file.seek(self._place)
                file.write(data)
            self._place += len(data)
        except OSError as error:  # the run goes on without it
            log.warning("%s can't be written: %s", self._folder / LOG, error.strerror)


def place(path: Path, pod: str) -> int:
    """Give where in the log a pod's words begin; below a new line with its name where they are not there yet."""
    title = f"ngcdl: pod {pod}\n".encode()
    with contextlib.suppress(FileNotFoundError):
        content = path.read_bytes()
        if title in content:
            return content.index(title) + len(title)
    with path.open("ab", buffering=0) as file:
        file.write(title)
        return file.tell()


def unpack(packed: bytes, folder: Path) -> None:
    """Write the files of a record that are known by name, whole; one that is broken is left."""
    try:
        with tarfile.open(fileobj=io.BytesIO(base64.b64decode(packed)), mode="r:gz") as archive:
            for entry in archive:
                content = archive.extractfile(entry) if entry.isreg() and _KEPT.fullmatch(entry.name) else None
                if content:
                    draft = folder / f".{entry.name}.new"
                    draft.write_bytes(content.read())
                    draft.replace(folder / entry.name)
    except (tarfile.TarError, binascii.Error, EOFError, OSError) as error:
        log.warning("the record of a pod can't be read: %s", error)
