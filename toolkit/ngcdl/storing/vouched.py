"""Which records are as ngcdl wrote them: digests, kept where no container can write. A run can write its own record."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ngcdl import whole

_FOLDER = "vouched"  # beside the folder of all runs, which docker compose mounts
# Made from files that the run writes, sometimes when they are read, or said about these.
_MEASURED = ("summary", "diagnosis", "findings", "notes")


def put(root: Path, name: str, record: Mapping[str, Any], is_last: bool = False) -> None:
    """Vouch for a record of `name`, besides those before: whichever is found after a crash is ngcdl's. `is_last`: it is
    to stay, also after a power cut. If that fails, nothing vouches for it."""
    path = _path(root, name)
    with contextlib.suppress(OSError):
        path.parent.mkdir(exist_ok=True, mode=0o700)
        with path.open("ab") as file:
            file.write(_digest(record) + b"\n")
            if is_last:
                file.flush()
                whole.sync(file.fileno())
        if is_last:
            whole.sync_folder(path.parent)


def has(root: Path, name: str, record: Mapping[str, Any]) -> bool:
    with contextlib.suppress(OSError):
        return _digest(record) in _path(root, name).read_bytes().split()
    return False


def drop(root: Path, name: str) -> None:
    with contextlib.suppress(OSError):
        _path(root, name).unlink()


def _path(root: Path, name: str) -> Path:
    return root.with_name(_FOLDER) / name


def _digest(record: Mapping[str, Any]) -> bytes:
    """Return a digest that a later ngcdl, whose records have more fields, finds too: those are null in older ones."""
    import hashlib  # 5 ms, which a list of runs does not need

    told = {name: value for name, value in record.items() if name not in _MEASURED}
    text = json.dumps(_without_nulls(told), sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest().encode()


def _without_nulls(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return [_without_nulls(one) for one in value] if isinstance(value, list | tuple) else value
