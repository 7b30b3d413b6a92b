"""The bash that a job is made of: the *.sh files beside this module, whose @NAMES@ stand for values."""

from __future__ import annotations

import re
from pathlib import Path

_FOR_READERS = re.compile(r"^ *## .*\n", re.MULTILINE)
_NAME = re.compile(r"@([A-Z_]+)@")


def bash(part: str, **values: str) -> str:
    """Return the text of PART.sh with each @NAME@ replaced by its value, without comments that begin with ## and
    without the last newline. A line that consists of the @NAME@ of an empty value is left out. A value that contains
    @NAME@ stays as it is."""
    text = _FOR_READERS.sub("", (Path(__file__).parent / f"{part}.sh").read_text(encoding="utf-8"))
    for name in (name for name, value in values.items() if not value):
        text = re.sub(rf"^ *@{name}@\n", "", text, flags=re.MULTILINE)
    return _NAME.sub(lambda found: values[found[1]], text).removesuffix("\n")
