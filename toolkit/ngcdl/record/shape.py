"""Reads a dataclass's fields from JSON, and raises TypeError if a value has the wrong type."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")
_types = cache(get_type_hints)


def make(kind: type[T], data: Mapping[str, Any]) -> T:
    """Make a `kind` of the fields in `data`. Raise TypeError as `known_of` does."""
    return kind(**known_of(kind, data))


def known_of(kind: type[T], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `kind` that `data` has, except null ones. Raise TypeError if a value has the wrong type, or
    is NaN or infinite."""
    wanted = _types(kind)  # type: ignore[arg-type]  # mypy considers a dataclass unhashable
    known = {name: value for name, value in data.items() if name in wanted and value is not None}
    for name, value in known.items():
        if not _fits(value, wanted[name]) and not (isinstance(value, list) and get_origin(wanted[name]) is tuple):
            raise TypeError(f"{name} is {str(value)[:60]!r}")
    return known


def _fits(value: object, hint: Any) -> bool:
    hints = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if isinstance(value, Mapping):
        kept = [get_args(one)[1] for one in hints if get_origin(one) is Mapping]
        return any(one is Any or all(_fits(inner, one) for inner in value.values()) for one in kept)
    kinds = tuple(get_origin(one) or one for one in hints)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))
    # NaN and the infinities are not JSON, and a number beyond float can't be shown.
    return (float in kinds or (int in kinds and isinstance(value, int))) and -1e300 < value < 1e300
