"""The lines that call ngcdl: where they stand in a text, and how the caller can type them."""

from __future__ import annotations

import os
import re
import shlex
import sys
from pathlib import Path

from ngcdl.terminal_text import JOINT

# The variable in which scripts/ngcdl passes on the path by which it was called, before it replaces itself with Python.
TYPED = "NGCDL_TYPED"
COMMANDS = (  # in the order of --help: as a newcomer needs them
    *("run", "compare", "doctor", "gpu", "check", "images", "resolve", "pull", "login", "logout"),
    *("runs", "show", "logs", "exec", "wait", "stop", "report", "workloads", "suite", "export"),
)
_COMMAND_LINE = re.compile(rf"(?<![\w./-])ngcdl(?= (?:{'|'.join(COMMANDS)}|--help|--version)(?![\w-]))")

# A line to type that ends a text, after a colon.
_TO_TYPE = re.compile(rf"(?<=[: ] )(?:'[^']*/ngcdl'|\S*ngcdl) (?:{'|'.join(COMMANDS)})(?![\w-])((?!: ).)*(?<!\.)$")


def program() -> str:
    """Return ngcdl's name as the caller can type it: if it is not on PATH, the path that was typed."""
    import shutil

    typed = os.environ.get(TYPED) or sys.argv[0]
    if Path(typed).name != "ngcdl" or os.sep not in typed or shutil.which("ngcdl"):
        return "ngcdl"
    return shlex.quote(typed)


def typable(text: str) -> str:
    """Replace `ngcdl` with the result of `program` in the command lines of a text for people."""
    return _COMMAND_LINE.sub(lambda _: program(), text)


def unbroken(text: str) -> str:
    """Join the words of the line to type that ends `text`, so that it is not folded and can be copied."""
    return _TO_TYPE.sub(lambda found: found[0].replace(" ", JOINT), text)
