"""What people see: results on stdout, everything else on stderr, and how an error is shown.

No colour with NO_COLOR or without a terminal; control characters are removed from what containers and registries send.
"""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import re
import shlex
import sys
import termios
from collections.abc import Container, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ngcdl.errors import NgcdlError, is_to_type

if TYPE_CHECKING:
    import textwrap

    from rich.console import Console

# The last two ranges change the direction of the text that follows: gpj.exe would look like exe.jpg.
# https://www.unicode.org/reports/tr9/#Explicit_Directional_Embeddings
_CONTROL = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b\[[0-?]*[ -/]*[@-~]|"
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]"
)
NOT_AVAILABLE = "n/a"
_BELOW = "    "
CUT = "..."  # at the end of a text that was cut
_FILLER, JOINT = "\0", "\1"  # `plain` leaves none; at a joint, which is shown as a space, no line ends
# The variable in which scripts/ngcdl passes on the path by which it was called, before it replaces itself with Python.
TYPED = "NGCDL_TYPED"
COMMANDS = (  # in the order of --help: as a newcomer needs them
    *("run", "compare", "doctor", "gpu", "check", "images", "resolve", "pull", "login", "logout"),
    *("runs", "show", "logs", "exec", "wait", "stop", "report", "workloads", "suite", "export"),
)
_COMMAND_LINE = re.compile(rf"(?<![\w./-])ngcdl(?= (?:{'|'.join(COMMANDS)}|--help|--version)(?![\w-]))")

# A line to type that ends a text, after a colon.
_TO_TYPE = re.compile(rf"(?<=[: ] )(?:'[^']*/ngcdl'|\S*ngcdl) (?:{'|'.join(COMMANDS)})(?![\w-])((?!: ).)*(?<!\.)$")


def out() -> Console:
    """Return the console for results. It is made on each call, because the streams may have been replaced."""
    from rich.console import Console

    return Console(file=sys.stdout, highlight=False, soft_wrap=not sys.stdout.isatty())


def err() -> Console:
    from rich.console import Console

    return Console(file=sys.stderr, highlight=False, soft_wrap=not sys.stderr.isatty())


def plain(text: str, kept: str = "") -> str:
    """Remove control characters and escape sequences, but not newlines, tabs and the characters in `kept`."""
    return _CONTROL.sub(lambda found: found[0] if found[0] in kept else "", text) if kept else _CONTROL.sub("", text)


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


def say(text: str) -> None:
    """Print a message on stderr. If stderr is closed or full, the message is lost: nothing depends on messages."""
    _write(sys.stderr, wrapped(f"ngcdl: {typable(plain(text))}", sys.stderr) + "\n")


def wrapped(text: str, stream: Any, indent: int = 2, lead: str = "") -> str:
    """Wrap `text` if `stream` is a terminal, with continuation lines indented; lines with commands stay whole. A word
    that is longer than an indented line, such as an address, has a line of its own, not indented. `lead` stands before
    the text, and does not make a command of it."""
    width = columns(stream)
    if width is None:
        return lead + text
    import textwrap

    folded = textwrap.TextWrapper(
        width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False, drop_whitespace=True
    )
    first, *more = text.splitlines() or [""]
    lines = [(lead, first), *(("", line) for line in more)]
    return "\n".join(before + line if is_to_type(line) else _folded_by(folded, before + line) for before, line in lines)


def _folded_by(folded: textwrap.TextWrapper, line: str) -> str:
    whole = _TO_TYPE.sub(lambda found: found[0].replace(" ", JOINT), line)  # one word, so that it can be copied
    first, *more = folded.wrap(_filled(whole)) or [""]
    words = [one.strip() for one in more]
    lines = [first, *(w if len(one) > folded.width else one for one, w in zip(more, words, strict=True))]
    return "\n".join(lines).replace(_FILLER, "").replace(JOINT, " ")


def _filled(text: str) -> str:
    """Put a filler after each character that is two columns wide, because textwrap counts characters."""
    return text if text.isascii() else "".join(one + _FILLER * (cells(one) - 1) for one in text)


def cells(text: str) -> int:
    """Return how many columns of a terminal `text` fills: Chinese characters, for example, are two wide."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def cut(text: str, width: int) -> str:
    """Cut `text`, with a mark, if it is wider than `width` columns of a terminal."""
    if cells(text) <= width:
        return text
    from rich.cells import set_cell_size

    return set_cell_size(text, width - len(CUT)).rstrip() + CUT


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


def table(rows: Sequence[Sequence[str]], width: int | None = None, right: Container[int] = ()) -> list[str]:
    """Return the lines of a table of `rows`, the head first. Columns that don't fit into `width` go on an indented line
    below; of the last one, only the cells that don't fit, if they are few. `right` has the indices of the right-aligned
    columns. Newlines in a cell become spaces."""
    rows = [[plain(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(cells(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = []
    beside = _beside(rows, widths, width)
    for row in rows:
        room = [" " * (w - cells(cell)) for cell, w in zip(row, widths, strict=True)]
        padded = [r + cell if at in right else cell + r for at, (cell, r) in enumerate(zip(row, room, strict=True))]
        for first, end in _spans([*widths[:-1], min(widths[-1], max(beside, cells(row[-1])))], width):
            line = ((_BELOW if first else "") + "  ".join(padded[first:end])).rstrip()
            lines += [line] if width is None or cells(line) <= width else _folded(line, width)
    return lines


def _beside(rows: Sequence[Sequence[str]], widths: Sequence[int], width: int | None) -> int:
    """Return how wide a cell of the last column may be that stays beside the others: any one may if all fit, or if so
    many don't that a line for each would look torn."""
    room = widths[-1] if width is None else width - sum(widths[:-1]) - 2 * len(widths[:-1])
    fit = [cells(row[-1]) <= room for row in rows]
    return room if fit[0] and 2 * sum(fit[1:]) > len(fit[1:]) else widths[-1]


def _folded(line: str, width: int) -> list[str]:
    import textwrap

    folded = textwrap.wrap(
        _filled(line), width, subsequent_indent=_BELOW + "  ", break_long_words=False, break_on_hyphens=False
    )
    return [one.replace(_FILLER, "") for one in folded]


def _spans(widths: Sequence[int], width: int | None) -> list[tuple[int, int]]:
    """Return which columns share a line, as (first, end)."""
    spans, first, used = [], 0, 0
    for at, wide in enumerate(widths):
        if width is not None and at > first and used + wide > width:
            spans.append((first, at))
            first, used = at, len(_BELOW)
        used += wide + 2
    return [*spans, (first, len(widths))]


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


def size(value: float | None) -> str:
    """1536 -> 1.5 KiB; None -> n/a."""
    if value is None:
        return NOT_AVAILABLE
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def operations(flops: float, share: float | None, source: str | None = None, recalled: bool | None = None) -> str:
    """2.4e12, 0.31 -> 2.40 TFLOP/s, 31 % of the card's peak [the source of that peak]."""
    size, unit = (1e12, "T") if flops >= 1e12 else (1e9, "G")
    text = f"{flops / size:.2f} {unit}FLOP/s"
    if share is None:
        return text
    mark = "from memory: no source" if recalled else source
    percent = measured(100 * share, 0)  # a small network on a large card reaches 0.15 %, which is not 0
    return f"{text}, {percent} % of the card's peak{f' [{mark}]' if mark else ''}"


def activity(of: Mapping[str, Any], suffix: str = "") -> str:
    """Say how much of a card worked, from its fields, each with the `suffix`: SMs active 12 %, occupancy 5.0 %, ...

    "" if none of them is known."""
    percents = {said: of[name + suffix] for name, said in _ACTIVITY.items()}
    if all(percent is None for percent in percents.values()):
        return ""
    return ", ".join(f"{said} {measured(percent, 0, ' %')}" for said, percent in percents.items())


_ACTIVITY = {
    "sm_active_percent": "SMs active",
    "sm_occupancy_percent": "occupancy",
    "tensor_active_percent": "tensor cores",
    "dram_bandwidth_percent": "DRAM",
}


def number(value: float | None, digits: int = 1, unit: str = "") -> str:
    """Format a figure with its unit; None -> n/a."""
    return NOT_AVAILABLE if value is None else f"{value:,.{digits}f}{unit}"


def measured(value: float | None, digits: int = 1, unit: str = "") -> str:
    """Format a figure as `number` does, but with at least two significant digits: 0.93 and not 0.9; 0.0 only for 0."""
    if value and math.isfinite(value):
        digits = max(digits, 1 - math.floor(math.log10(abs(value))))
    return number(value, digits, unit)


def milliseconds(seconds: float | None) -> str:
    """0.0412 -> 41.2 ms; None -> n/a."""
    return measured(None if seconds is None else 1e3 * seconds, 1, " ms")


def on_terminal(stream: Any) -> bool:
    """Whether `stream` is a terminal on which the cursor can be moved."""
    return bool(stream and stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb"))
