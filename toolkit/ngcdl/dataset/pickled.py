"""Does a pickled batch hold only images and labels? Answered without unpickling it.

A pickle is a program. This module reads it opcode by opcode before the training loads it, and refuses whatever could
call anything but numpy's own array reconstruction: https://docs.python.org/3/library/pickle.html
"""

from __future__ import annotations

import pickletools
from collections.abc import Iterator
from pathlib import Path

from ngcdl.dataset.official import CLASSES, RECORD_BYTES

_ARRAY = frozenset(
    {
        "numpy.core.multiarray _reconstruct",
        "numpy._core.multiarray _reconstruct",
        "numpy ndarray",
        "numpy dtype",
        "_codecs encode",  # how Python 3 writes bytes in protocol 2
    }
)
_LIST = frozenset({"EMPTY_LIST", "MARK", "APPEND", "APPENDS", "BINPUT", "LONG_BINPUT", "PUT", "MEMOIZE"})
_NUMBERS = frozenset({"BININT1", "BININT2", "BININT", "INT", "LONG1"})
# Calls whose target a single opcode does not name.
_CALLS = frozenset(
    {"INST", "OBJ", "NEWOBJ", "NEWOBJ_EX", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4", "PERSID", "BINPERSID"}
)


def fault(path: Path, records: int) -> str | None:
    """Return what is wrong with a batch of `records` records, or None."""
    labels, images = 0, False
    in_labels = False
    try:
        for name, value in _opcodes(path):
            if name in _CALLS or (name == "GLOBAL" and value not in _ARRAY):
                return f"it is a pickle that could run code ({name} {value or ''})".replace(" )", ")")
            if isinstance(value, str | bytes):
                in_labels = value in ("labels", b"labels")
                images = images or len(value) == records * (RECORD_BYTES - 1)
            elif in_labels and name in _NUMBERS:
                if not isinstance(value, int) or not 0 <= value < CLASSES:
                    return f"it has the label {value}"
                labels += 1
            elif name not in _LIST:
                in_labels = False
    except (ValueError, IndexError, OverflowError, UnicodeError) as error:
        return f"it is not a complete pickle: {error}"
    if not images:
        return f"it holds no array of {records} images"
    return None if labels == records else f"it holds {labels} labels instead of {records}"


def _opcodes(path: Path) -> Iterator[tuple[str, object]]:
    with path.open("rb") as file:
        for opcode, value, _ in pickletools.genops(file):
            yield opcode.name, value
