"""Which errors of a run's cards the kernel logged during the run. None are known if this user may not read the kernel's
log.

An Xid is the NVIDIA driver's number for such an error: https://docs.nvidia.com/deploy/xid-errors/
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from ngcdl.errors import NvmlUnavailable
from ngcdl.frozen import dataclass
from ngcdl.telemetry import driver, gpu
from ngcdl.telemetry.card import Probe, is_mig, whole_cards

KERNEL_MESSAGES = Path("/dev/kmsg")  # https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg
PATIENCE_SECONDS = 2.0
_JOURNAL_SECONDS = 1.5
_RECORD_BYTES = 1 << 14  # more than the longest record: a shorter read fails
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-f]+:[0-9a-f]+:[0-9a-f]+)[^)]*\): (\d+)[, ]*(.*)", re.IGNORECASE)
_WHOSE = re.compile(r"(?:pid='?<?\w*>?'?|name=[^,]*), *")  # a program's name is its own text
_UUID = re.compile(r"^GPU UUID:\s*(\S+)", re.MULTILINE)
_LONGEST, _MOST = 120, 3  # characters of the driver's text about an error, and errors


@dataclass(frozen=True)
class CardError:
    """`card` is the card's PCI address as the driver writes it: 0000:44:00."""

    card: str
    xid: int
    text: str

    @property
    def kernel_line(self) -> str:
        """Return it as the kernel logs it."""
        return f"NVRM: Xid (PCI:{self.card}): {self.xid}, {self.text}".rstrip(", ")

    def __str__(self) -> str:
        return f"Xid {self.xid} of the card {self.card}{f': {self.text}' if self.text else ''}"


class KernelLog:
    """What the kernel logs within `with`."""

    def __init__(
        self,
        messages: Path = KERNEL_MESSAGES,
        cards: Path = driver.CARDS,
        journal: str = "journalctl",
        probe: Callable[[], Probe] = gpu.probe,
    ) -> None:
        self._messages, self._cards, self._journal, self._probe = messages, cards, journal, probe
        self._begun = time.time()
        self._file: IO[bytes] | None = None

    def __enter__(self) -> Self:
        self._begun = time.time()
        with suppress(OSError):  # who may read it is the host's choice (kernel.dmesg_restrict)
            self._file = open(self._messages, "rb", buffering=0, opener=_without_waiting)
            self._file.seek(0, os.SEEK_END)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def whole(self, uuids: Collection[str]) -> Collection[str]:
        """Return `uuids` with the cards in place of their MIG devices, because the kernel logs errors of cards only.
        Call this before there are errors: the driver lists no MIG devices of a card that has fallen off the bus."""
        return whole_cards(uuids, self._probe().cards) if any(map(is_mig, uuids)) else uuids

    def errors_of(self, uuids: Collection[str]) -> tuple[CardError, ...]:
        """Return the first errors of these cards, each kind once; () also if they can't be known within
        PATIENCE_SECONDS."""
        with suppress(NvmlUnavailable):  # a driver that hangs holds up whoever reads its files
            return driver.within(lambda: self._errors(uuids), PATIENCE_SECONDS)
        return ()

    def _errors(self, uuids: Collection[str]) -> tuple[CardError, ...]:
        addresses = {address for address, uuid in _cards(self._cards) if uuid in uuids}
        found: dict[tuple[str, int], CardError] = {}
        for match in _XID.finditer(self._text()) if addresses else ():
            card, xid = _address(match[1]), int(match[2])
            if card in addresses:
                found.setdefault((card, xid), CardError(card, xid, _WHOSE.sub("", match[3]).strip()[:_LONGEST]))
        return tuple(found.values())[:_MOST]

    def _text(self) -> str:
        return b"".join(_records(self._file)).decode(errors="replace") if self._file else self._journalled()

    def _journalled(self) -> str:
        words = [self._journal, "--dmesg", "--no-pager", "--output=cat", f"--since=@{self._begun:.0f}"]
        with suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                timeout=_JOURNAL_SECONDS, check=False,
            )  # fmt: skip
            return done.stdout.decode(errors="replace")
        return ""


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)


def _records(file: IO[bytes]) -> Iterator[bytes]:
    """Yield what has come since the last read."""
    while True:
        try:
            record = file.read(_RECORD_BYTES)
        except BrokenPipeError:  # the kernel has overwritten the next record: read the one after it
            continue
        except OSError:
            return
        if not record:
            return
        yield record


def _cards(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield address and UUID of each card that the driver has."""
    with suppress(OSError):
        for card in folder.iterdir():
            if uuid := _UUID.search((card / "information").read_text(errors="replace")):
                yield _address(card.name.partition(".")[0]), uuid[1]


def _address(text: str) -> str:
    """Return a PCI address in one form: some drivers write the domain with eight digits."""
    domain, bus, device = (int(part, 16) for part in text.split(":"))
    return f"{domain:04x}:{bus:02x}:{device:02x}"
