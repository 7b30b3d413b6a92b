"""Reads which Python packages --pip adds to an image: names for pip, or files that list them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from ngcdl.errors import BadOption
from ngcdl.spec import redacted

_LISTS, _ARCHIVES = (".txt", ".in"), (".whl", ".tar.gz", ".zip")
_NAMES = re.compile(r"[\w.-]+(?:\s+[\w.-]+)+")  # several packages in one word
_FILE = re.compile(r"(?:-r|--requirement)[ =]*(.+)")
_VARIABLE = re.compile(r"\$\{[A-Z0-9_]+\}")  # that pip fills in
_MOST_DEEP = 20  # files that name files


def listed(typed: Sequence[str], folder: Path, within: Path | None = None) -> tuple[str, ...]:
    """Return the lines of one requirements file that asks for all that was typed. Files are read, from `folder` on, so
    that a record has what they said; only those `within` a folder, if one is given.

    https://pip.pypa.io/en/stable/reference/requirements-file-format/

    Raise BadOption for what a record can't repeat: something that only this machine has, or a secret."""
    lines: list[str] = []
    for word in (own[1] if (own := _FILE.match(word)) else word for word in typed):
        path = folder / word
        if path.suffix in _LISTS or path.name == "pyproject.toml" or (word.count("/") and _is_list(path)):
            lines += _file(path, word, within, 0)
            continue
        if not word.startswith("-") and _NAMES.fullmatch(word):
            more = " ".join(f"--pip {one}" for one in word.split())
            raise BadOption(f"--pip {word}: one package each.", f"    {more}")
        lines.append(_checked(word, word))
    return tuple(dict.fromkeys(lines))


def _is_list(path: Path) -> bool:
    return path.is_file() and not path.name.endswith(_ARCHIVES)


def _file(path: Path, said: str, within: Path | None, depth: int) -> Iterator[str]:
    if path.name == "pyproject.toml":
        raise BadOption(
            f"--pip {said}: must be a requirements file.",
            f"One with what the project depends on:\n    uv pip compile {shlex.quote(said)} -o requirements.txt\n"
            "    ngcdl run ... --pip requirements.txt",
        )
    if within and not path.resolve().is_relative_to(within.resolve()):
        raise BadOption(f"--pip {said}: {path} is not in {within}, and only files there are read.")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise BadOption(f"--pip {said}: {path} can't be read: {why}.") from error
    for line in _lines(text):
        if nested := _FILE.match(line):
            if depth == _MOST_DEEP:
                raise BadOption(f"--pip {said}: {path} names files that name each other.")
            yield from _file(path.parent / nested[1], said, within, depth + 1)
        else:
            yield _checked(line, f"{said}: {line}")


def _lines(text: str) -> Iterator[str]:
    """Yield what pip takes for one line each: without comments, and continued after a backslash, but not a comment's.

    https://pip.pypa.io/en/stable/reference/requirements-file-format/#line-continuations"""
    begun = ""
    for line in text.splitlines():
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            begun += line.removesuffix("\\")
            continue
        if whole := re.sub(r"(?:\A|\s+)#.*", "", begun + line).strip():
            yield whole
        begun = ""


def _checked(line: str, said: str) -> str:
    """Return a line for pip as it is. `said` names it for people."""
    plain = _VARIABLE.sub("", line)
    if redacted("", plain) != plain:
        raise BadOption(
            f"--pip {redacted('', said)}: that secret would be in the record.",
            "In a requirements file name a variable, and give the run its value:\n"
            "    --extra-index-url https://${TOKEN}@example.com/simple\n"
            "    ngcdl run ... --pip requirements.txt -e TOKEN",
        )
    if line.startswith(("-c", "--constraint")):
        raise BadOption(f"--pip {said}: no constraints file is read here.", "Write the versions into the list itself.")
    if re.match(r"-e|--editable", line):
        raise BadOption(
            f"--pip {said}: what is installed is read-only.",
            "Leave -e out. Your code in this folder is found without an installation:\n"
            "    ngcdl run ... -e PYTHONPATH=/work/src",
        )
    if _is_of_this_machine(line):
        raise BadOption(
            f"--pip {said}: that file may change unnoticed, and pip in the container does not see it there.",
            "Packages that lie in this folder, by its place inside, in a requirements file:\n"
            "    --no-index\n    --find-links /work/wheels\n    NAME==VERSION\n"
            "Code in this folder is found without an installation:\n    ngcdl run ... -e PYTHONPATH=/work/src",
        )
    return line


def _is_of_this_machine(line: str) -> bool:
    """Return whether a line names a file or a folder, other than one to find packages in by its place inside."""
    if option := re.match(r"(?:-f|--find-links)[ =]*(\S+)", line):
        return not (option[1].startswith("/") or "://" in option[1])
    if line.startswith("-"):
        return False
    name, at, place = line.partition("@")
    first = (place if at and "://" not in name else line).strip().strip("\"'").split(" ")[0].split(";")[0]
    if "://" in first:
        return first.startswith("file:")
    return first.startswith((".", "/", "~", "file:")) or "/" in first or first.endswith(_ARCHIVES)
