"""Reads which Python packages --pip adds to an image: names for pip, or files that list them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from ngcdl.errors import BadOption
from ngcdl.spec import REDACTED, redacted_words

_FILES = (".txt", ".in")
_NAMES = re.compile(r"[\w.-]+(?:\s+[\w.-]+)+")  # several packages in one word
_HERE = re.compile(r"(?:-e|--editable)?[ =]*(?:(?:\.{0,2}|~)/|\.{1,2}\Z|file:)|[^@\[]*@\s*file:|-e\b(?!\s*[\w+]+://)")
_MOST_DEEP = 20  # files that name files


def listed(typed: Sequence[str], folder: Path) -> tuple[str, ...]:
    """Return the lines of one requirements file that asks for all that was typed. Files are read, from `folder` on: a
    record then has what they said.

    https://pip.pypa.io/en/stable/reference/requirements-file-format/

    Raise BadOption for what a record can't repeat: a path of this machine, or a secret."""
    lines: list[str] = []
    for word in typed:
        path = folder / word
        if path.suffix in _FILES or path.is_file():
            lines += _file(path, word, 0)
        else:
            lines.append(_checked(word, word))
    return tuple(dict.fromkeys(lines))


def _file(path: Path, said: str, depth: int) -> Iterator[str]:
    if path.name == "pyproject.toml":
        raise BadOption(
            f"--pip {said}: must be a requirements file.",
            f"One with what the project depends on:\n    uv pip compile {shlex.quote(said)} -o requirements.txt\n"
            "    ngcdl run ... --pip requirements.txt",
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise BadOption(f"--pip {said}: {path} can't be read: {why}.") from error
    for line in re.sub(r"\\\r?\n", " ", text).splitlines():
        line = re.sub(r"(?:\A|\s+)#.*", "", line).strip()
        if nested := re.match(r"(?:-r|--requirement)[ =]*(.+)", line):
            if depth == _MOST_DEEP:
                raise BadOption(f"--pip {said}: {path} names files that name each other.")
            yield from _file(path.parent / nested[1], said, depth + 1)
        elif line:
            yield _checked(line, f"{said}: {line}")


def _checked(line: str, said: str) -> str:
    """Return a line for pip as it is. `said` names it for people."""
    if redacted_words((line,)) != (line,):
        raise BadOption(
            f"--pip: {redacted_words((said,))[0]} has a secret in it, which would be recorded in place of {REDACTED}.",
            "In a requirements file name a variable, and give the run its value:\n"
            "    --extra-index-url https://${TOKEN}@example.com/simple\n"
            "    ngcdl run ... --pip requirements.txt -e TOKEN",
        )
    if re.match(r"(?:-c|--constraint)\b", line):
        raise BadOption(f"--pip {said}: no constraints file is read here.", "Write the versions into the list itself.")
    if _HERE.match(line):
        raise BadOption(
            f"--pip {said}: a package in a folder may change, and what is installed is kept for later runs.",
            "Your code in this folder is found without an installation:\n    ngcdl run ... -e PYTHONPATH=/work/src",
        )
    if _NAMES.fullmatch(line):
        raise BadOption(f"--pip {said}: one package each.", "    " + " ".join(f"--pip {one}" for one in line.split()))
    return line
