"""The table of `ngcdl runs`: which run, when, how long, how it ended, how fast, what was busy, and what was run."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from ngcdl import terminal_text
from ngcdl.cli import lookup
from ngcdl.figures import NOT_AVAILABLE, measured, number
from ngcdl.record import Run
from ngcdl.report.measured import naming
from ngcdl.report.measured.words import duration
from ngcdl.storing.store import called
from ngcdl.terminal_text import CUT, cells, cut, plain

HEAD = ("RUN", "WHEN", "TOOK", "STATUS", "EXAMPLES/S", "BUSY", "WHAT")
# The columns that a narrow terminal always gets, and those that it gets in this order while there is room.
_ALWAYS, _WANTED = ("RUN", "STATUS", "WHAT"), ("WHEN", "EXAMPLES/S", "TOOK", "BUSY")
_NAMING = 70  # the least columns of a terminal on which a --name is beside the end of its run's id
_LEAST = 12  # the fewest characters of WHAT
_ID = re.compile(r"\d{8}-\d{6}-.+-([0-9a-f]{6})")  # storing/store.py
_OF_NAMES = re.compile(r"[:@]")  # what ends an image's name
_DAY = 86400


def table(
    found: Sequence[Run], said: Mapping[str, str], ids: Sequence[str], width: int | None, now: float
) -> list[str]:
    """Return a line for each run. `said`: what stands after a run's status, by id. `ids`: those of all runs. If `width`
    is None, nothing is cut, and times are absolute, as the output may be read later."""
    rows = [
        (run.id, _when(run, now, is_absolute=width is None), *_cells(run, said[run.id], now), _line(*_what(run)))
        for run in found
    ]
    whole = terminal_text.table([HEAD, *rows])
    if width is None or max(map(cells, whole)) <= width:
        return whole
    ends = _ends(found, ids, longest=width // 4 if width >= _NAMING else 0)
    rows = [(ends[row[0]], *row[1:]) for row in rows]
    needed = max(cells(name) + (len(CUT) if more else 0) for name, more in map(_what, found))
    return _narrow(rows, needed, width)


def _narrow(rows: Sequence[Sequence[str]], needed: int, width: int) -> list[str]:
    """Return the lines of the columns that there is room for. WHAT gets the rest of the width. EXAMPLES/S is shown only
    if WHAT then has `needed` characters, so that no speed appears without the data set that it was reached on."""
    rows = [(*row[:3], re.sub(", no step for .*", ", silent", row[3]), *row[4:]) for row in rows]
    wide = {name: max(map(cells, column)) + 2 for name, column in zip(HEAD, zip(HEAD, *rows, strict=True), strict=True)}
    left, shown, least = width - wide["RUN"] - wide["STATUS"], set(_ALWAYS), _LEAST
    for name in _WANTED:
        beside = max(needed, least) if name == "EXAMPLES/S" else least
        if left - wide[name] >= beside:
            left, least = left - wide[name], beside
            shown.add(name)
    rows = [(*row[:-1], cut(row[-1], max(left, least))) for row in rows]
    return terminal_text.table(
        [[cell for name, cell in zip(HEAD, row, strict=True) if name in shown] for row in (HEAD, *rows)], width
    )


def _ends(found: Sequence[Run], ids: Sequence[str], longest: int) -> dict[str, str]:
    """Return the end of each run's id, by id, with its --name if that is not longer than `longest`; the whole id if the
    end also names another run of `ids`."""
    count, known = Counter(run_id[-6:] for run_id in ids), {}
    for run in found:
        end = _ID.fullmatch(run.id)
        begins_one = end and end[1].isdecimal() and any(run_id.startswith(end[1]) for run_id in ids)
        word = called(run.id)
        named = f"{word}-" if end and _is_named(run) and len(word) <= longest else ""
        known[run.id] = f"{named}{end[1]}" if end and count[end[1]] == 1 and not begins_one else run.id
    return known


def _is_named(run: Run) -> bool:
    """Return whether --name gave a run's id its word."""
    image = _OF_NAMES.split((run.image.reference or "run").rpartition("/")[2])[0]
    return bool(run.spec) and called(run.id) not in (run.workload.get("name"), image)


def _when(run: Run, now: float, *, is_absolute: bool) -> str:
    """Say when the run began: 2 h ago; or the date, if that was over 30 days ago or lies in the future."""
    seconds = now - run.started
    if is_absolute or not 0 <= seconds < 30 * _DAY:
        try:
            return time.strftime("%Y-%m-%d %H:%M" if is_absolute else "%Y-%m-%d", time.localtime(run.started))
        except (ValueError, OverflowError, OSError):  # not a possible time
            return NOT_AVAILABLE
    for unit, size, most in (("s", 1, 60), ("min", 60, 3600), ("h", 3600, 2 * _DAY)):
        if seconds < most:
            return f"{seconds // size:.0f} {unit} ago"
    return f"{seconds // _DAY:.0f} d ago"


def _cells(run: Run, said: str, now: float) -> tuple[str, ...]:
    """Return the cells TOOK, STATUS, EXAMPLES/S and BUSY."""
    seconds = now - run.started if run.status == "running" and now >= run.started else run.seconds
    status = "waiting" if run.is_waiting else run.status
    status += f" {run.exit_code}" if run.exit_code else ""
    # with exit code 0, and a reason: a trial that ran out of memory on the search for the largest batch is none
    status += ", OOM" if run.status == "finished" and run.oom_killed and run.reason else ""
    speed = run.summary.examples_per_second
    has_speed = bool(run.workload or run.dataset or speed is not None)
    return (
        duration(seconds),
        f"{status}{said}",
        _marked(run, measured(speed)) if has_speed else "-",
        _busy(run),
    )


def _busy(run: Run) -> str:
    """Name the device that the run computed on, and how busy it was. If the device is unknown, as for a command, name
    the GPU if its use was read, else the CPU."""
    figures = run.summary
    of = {"gpu": figures.gpu_percent_mean, "cpu": figures.cpu_percent_mean}
    device = (
        run.device if run.device in of else next((name for name, percent in of.items() if percent is not None), None)
    )
    if device is None:
        return NOT_AVAILABLE
    return f"{device.upper()} {_marked(run, number(of[device], 0, '%'))}"


def _marked(run: Run, figure: str) -> str:
    """Mark a figure that covers only a part of the run; a note below the table explains the mark."""
    return f"{figure}*" if lookup.RECENT in run.notes and figure != NOT_AVAILABLE else figure


def _what(run: Run) -> tuple[str, str]:
    """Return what was run, in two parts: the training, with its data if that is not CIFAR-10; and the rest, which may
    be cut."""
    image = _short(run.image.reference) if run.image.reference else ""
    name = run.workload.get("name")
    label = "synthetic" if run.is_synthetic else run.dataset if run.dataset != "cifar10" else None
    if name or label:
        return f"{name or 'a training'}{f' ({label})' if label else ''}", f" in {image}" if image else ""
    if command := naming.typed(run):
        return "", f"{command} in {image}" if image else command
    return "", image or f"({run.engine})"


def _line(*parts: str) -> str:
    return plain("".join(parts)).replace("\n", " ")


def _short(reference: str) -> str:
    """Shorten a reference to fit a row: tensorflow:18.01-py2, or pytorch@sha256:8a90117865db..."""
    name, at, digest = reference.rpartition("/")[2].partition("@")
    return f"{name}@{digest[:19]}..." if at else name
