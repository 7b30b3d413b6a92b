"""Plain values as YAML that people read and keep in git, limited to what manifests and compose files contain."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# What YAML 1.1 and 1.2 read as a string without quotes, except words such as yes and null, below.
_PLAIN = re.compile(r"[A-Za-z_/][\w./-]*(?: [\w./-]+)*", re.ASCII)
_NOT_STRINGS = {"y", "n", "yes", "no", "on", "off", "true", "false", "null"}


def document(value: Mapping[str, Any]) -> str:
    return "\n".join(_lines(value)) + "\n"


def documents(values: Sequence[Mapping[str, Any]]) -> str:
    return "---\n".join(document(value) for value in values)


def _lines(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping) and value:
        for key, item in value.items():
            yield from _entry(f"{_scalar(str(key))}:", item)
    elif isinstance(value, list | tuple) and value:
        for item in value:
            first, *rest = _lines(item)
            yield f"- {first}"
            yield from (f"  {line}" if line else "" for line in rest)
    else:
        yield _scalar(value)


def _entry(key: str, value: Any) -> Iterator[str]:
    if isinstance(value, str) and _is_block(value):
        yield f"{key} |"
        yield from (f"  {line}" if line else "" for line in value.removesuffix("\n").split("\n"))
    elif isinstance(value, Mapping | list | tuple) and value:
        yield key
        yield from (f"  {line}" if line else "" for line in _lines(value))
    else:
        yield f"{key} {_scalar(value)}"


def _is_block(text: str) -> bool:
    """Whether `text` can be written as a block of lines that reads back exactly."""
    lines = text.removesuffix("\n").split("\n")
    if not text.endswith("\n") or "" in (lines[0], lines[-1]) or lines[0][:1].isspace():
        return False
    return len(lines) > 1 and all(line.isascii() and line.replace("\t", " ").isprintable() for line in lines)


def _scalar(value: Any) -> str:
    if not isinstance(value, str):
        return json.dumps(value)  # JSON is YAML: https://yaml.org/spec/1.2.2/#12-overview-of-yaml
    if _PLAIN.fullmatch(value) and value.lower() not in _NOT_STRINGS:
        return value
    # JSON's escapes, except where JSON would write a pair of surrogates
    return '"' + "".join(json.dumps(one)[1:-1] if one < "\U00010000" else f"\\U{ord(one):08x}" for one in value) + '"'
