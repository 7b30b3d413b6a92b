"""What people see: results on stdout, everything else on stderr, and how an error is shown.

No colour with NO_COLOR or without a terminal; control characters are removed from what containers and registries send.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import termios
from collections.abc import Mapping
from typing import IO, TYPE_CHECKING, Any

from ngcdl.command_lines import typable, unbroken
from ngcdl.errors import NgcdlError, is_to_type
from ngcdl.terminal_text import folded, plain

if TYPE_CHECKING:
    from rich.console import Console


def out() -> Console:
    """Return the console for results. It is made on each call, because the streams may have been replaced."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())


def err() -> Console:
    from rich.console import Console

    return Console(file=sys.stderr, highlight=False, soft_wrap=not sys.stderr.isatty())


def say(text: str) -> None:
    """Print a message on stderr. If stderr is closed or full, the message is lost: nothing depends on messages."""
    _write(sys.stderr, wrapped(f"ngcdl: {typable(plain(text))}", sys.stderr) + "\n")


def end_line() -> None:
    """End a line on stderr that a run has begun, so that a message gets one of its own."""
    _write(sys.stderr, "\n")


def wrapped(text: str, stream: Any, indent: int = 2, lead: str = "") -> str:
    """Wrap `text` if `stream` is a terminal, with continuation lines indented; lines with commands stay whole. `lead`
    stands before the text, and does not make a command of it."""
    width = columns(stream)
    if width is None:
        return lead + text
    first, *more = text.splitlines() or [""]
    lines = [(lead, first), *(("", line) for line in more)]
    return "\n".join(
        before + line if is_to_type(line) else folded(unbroken(before + line), width, indent) for before, line in lines
    )


def columns(stream: Any) -> int | None:
    """Return the terminal's width, at least 40; None if `stream` is not a terminal, and lines must not be wrapped."""
    if not stream or stream.closed or not stream.isatty():
        return None
    import shutil

    try:
        own = os.get_terminal_size(stream.fileno()).columns  # shutil looks at stdout alone, which may be a pipe
    except OSError:
        own = 0
    return max(shutil.get_terminal_size((own or 80, 24)).columns, 40)


def result_stream() -> IO[bytes]:
    """Return stdout for bytes. Raise OSError if it was closed (`>&-`)."""
    if sys.stdout is None:
        raise OSError(errno.EBADF, "stdout is closed")
    return sys.stdout.buffer


def discard(descriptor: int) -> None:
    """Let whatever is written to `descriptor` from now on go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def result(text: str, styled: bool = False) -> None:
    """Write a result for people to stdout. Control characters are removed unless ngcdl itself has `styled` the text,
    because records hold what containers wrote. Raise OSError if stdout can't be written."""
    _result(typable(text if styled else plain(text)))


def result_exact(text: str) -> None:
    """Write a result that programs read, such as a script or a path: unchanged, unless stdout is a terminal."""
    result(text, styled=columns(sys.stdout) is None)


def _result(text: str) -> None:
    if sys.stdout is None:
        raise OSError(errno.EBADF, "stdout is closed")
    encoding = sys.stdout.encoding or "ascii"
    try:
        text.encode(encoding, sys.stdout.errors or "strict")
    except UnicodeEncodeError:  # LANG=C, or a file name that is not valid text
        text = text.encode(encoding, "backslashreplace").decode(encoding)
    print(text, flush=True)  # noqa: T201


def result_json(data: Mapping[str, Any] | list[Any]) -> None:
    _result(json.dumps(data, indent=1, ensure_ascii=True, allow_nan=False))


def show_error(error: NgcdlError) -> None:
    lines = [wrapped(f"ngcdl: {typable(plain(error.message))}", sys.stderr)]
    if error.hint:
        lines += [wrapped(f"  {line}", sys.stderr) for line in typable(plain(error.hint)).splitlines()]
    _write(sys.stderr, "\n".join(lines) + "\n")


def _write(stream: Any, text: str) -> None:
    try:
        stream.write(text.replace("\n", "\r\n") if _is_raw(stream) else text)
        stream.flush()
    except UnicodeEncodeError:
        stream.write(text.encode("ascii", "replace").decode())
    except (OSError, ValueError, AttributeError):
        pass


def _is_raw(stream: Any) -> bool:
    """Whether `stream` is a terminal that a run in a container has: a newline does not go back to the first column."""
    if not stream.isatty():
        return False
    with contextlib.suppress(termios.error, OSError):
        return not termios.tcgetattr(stream)[1] & termios.OPOST
    return False


def on_terminal(stream: Any) -> bool:
    """Whether `stream` is a terminal on which the cursor can be moved."""
    return bool(stream and stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb"))
