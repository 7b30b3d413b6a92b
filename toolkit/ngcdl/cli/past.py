"""`ngcdl runs diff`, `replay`, `export` and `import`: compares, repeats and moves runs that are over."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ngcdl import console, settings
from ngcdl.cli import lookup
from ngcdl.errors import BadOption, BlobMissing, NoGpu, NoSuchRun, NotRepeatable, UnknownRepository, UnknownTag
from ngcdl.figures import NOT_AVAILABLE, size
from ngcdl.folder import EVENTS, lines
from ngcdl.report.compared.unlike import MeasuredRun
from ngcdl.report.measured import retyped
from ngcdl.report.measured.words import Written, written
from ngcdl.report.shown.difference import Difference, Figure, called, difference
from ngcdl.report.shown.likeness import kept_apart
from ngcdl.running.context import Context
from ngcdl.terminal_text import plain, table

if TYPE_CHECKING:
    from ngcdl.planning.asked import Asked
    from ngcdl.storing.comparisons import StoredComparison
    from ngcdl.storing.store import Store

_STDOUT = "-"  # stdin, for what is read
_LONGEST = 48  # characters of a cell
_LABEL = 32  # characters of a figure's name on a terminal; a longer one goes without what is in parentheses
_BEFORE = 8  # the fewest characters shown before a difference


def diff(one: str, other: str, as_json: bool) -> None:
    """Show what differs. Raise NoSuchRun or RecordBroken."""
    store = lookup.open_store()
    a, b = lookup.each((one, other), lambda name: lookup.loaded(store, name))
    refused = kept_apart({run.id: MeasuredRun.of(run, lines(store.folder(run.id) / EVENTS)) for run in (a, b)})
    found = difference(a, b, refused)
    if as_json:
        console.result_json(found.as_json())
        return
    shown = laid_out(found, console.columns(sys.stdout))
    console.result("\n".join([*shown, *(console.wrapped(line, sys.stdout) for line in _remarks(found))]))
    if a.id == b.id:
        console.say("both are the same run")
    elif not (found.data or found.differs or found.figures):
        console.say("nothing differs")


def _remarks(found: Difference) -> Iterator[str]:
    if found.refused:
        yield f"The figures can't be compared: {'; '.join(found.refused)}."
    if any(figure.change for figure in found.figures.values()):
        yield "Each figure comes from a single run: the spread is unknown."


def laid_out(found: Difference, width: int | None) -> list[str]:
    """Return one table, or, if `width` is too narrow, what was asked as stacked lines and the figures in columns."""
    asked = [("data", *found.data, "")] if found.data else []
    left = {name: two for name, two in found.differs.items() if name != "dataset" or not asked}
    asked += [(called(name), *_cells(name, *two), "") for name, two in left.items()]
    said = [(one, it) for name, it in found.figures.items() if (one := written(name))]
    if width is not None:
        said = [((name.partition(" (")[0] if len(name) > _LABEL else name, how), it) for (name, how), it in said]
    figures = [(name, *_figures(it, how)) for (name, how), it in said]
    whole = table([("", found.a, found.b, ""), *asked, *figures])
    if width is None or max(map(len, whole)) <= width:
        return whole
    pairs = [("", found.a, found.b, ""), *asked]
    stacked = [line for name, a, b, _ in pairs for line in ([name] if name else []) + [f"    A  {a}", f"    B  {b}"]]
    return [*stacked, "", *table([("", "A", "B", ""), *figures], width)]


def _cells(name: str, a: object, b: object) -> tuple[str, str]:
    """Format two values so that their difference shows: long values are cut, and start at a word before it."""
    here, there = _text(name, a), _text(name, b)
    if here == there:  # sizes that are equal when rounded
        here, there = _text("", a), _text("", b)
    if max(len(here), len(there)) <= _LONGEST:
        return here, there
    pairs = zip(here, there, strict=False)
    same = next((at for at, (one, other) in enumerate(pairs) if one != other), min(len(here), len(there)))
    start = max(here.rfind(" ", 0, same - _BEFORE) + 1, same - _LONGEST // 2) if same > _LONGEST // 2 else 0
    return _cut(here, start), _cut(there, start)


def _cut(text: str, start: int) -> str:
    text = f"...{text[start:]}" if start else text
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _text(name: str, value: object) -> str:
    if value is None:
        return NOT_AVAILABLE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("_bytes"):
        return size(value)
    if isinstance(value, list):
        words = [str(one) for one in value]
        value = (shlex.join(words) if name == "spec.command" else "; ".join(words)) or "none"
    return plain(str(value)).replace("\n", " ")


def _figures(figure: Figure, how: Written) -> tuple[str, str, str]:
    """Return both values, and what changed of what is shown: of 0.02 and 0.04 cores, both "0.0 cores", nothing."""
    a, b = (NOT_AVAILABLE if value is None else how(value) for value in (figure.a, figure.b))
    return a, b, "" if figure.change is None else "the same" if a == b else f"{figure.change * 100:+.1f} %"


def export(words: Sequence[str]) -> None:
    """Write runs and comparisons to a file: the last of `words` is its path, - for stdout; the others name what to
    write."""
    from ngcdl.storing import archive

    *names, target = words
    store = lookup.open_store()
    is_run = _is_run(target, store)
    if is_run or not names:
        line = [*words, "runs.tar"] if is_run else ["last", target]
        raise BadOption(f"{target}: needs runs, and a file to write.", f"    ngcdl runs export {shlex.join(line)}")
    if target == _STDOUT and console.result_stream().isatty():
        raise BadOption("-: stdout is a terminal.", f"    ngcdl runs export {shlex.join(names)} runs.tar")
    ids, compared = lookup.runs_and_comparisons(names, store)
    _say_gone(compared, ids)
    runs = [lookup.loaded(store, run_id) for run_id in ids]
    going = [run.id for run in runs if run.status == "running"]
    if going:
        are = "is" if len(going) == 1 else "are"
        raise BadOption(
            f"{', '.join(going)} {are} still running: only ended runs can be exported.",
            "\n".join(f"    ngcdl stop {one}" for one in going),
        )
    if target == _STDOUT:
        archive.write(store, runs, compared, console.result_stream())
        return
    archive.export(store, runs, Path(target), compared)
    console.result_exact(str(Path(target).absolute()))


def _is_run(name: str, store: Store) -> bool:
    """Return whether `name` means a run or a comparison, and does not look like a file's."""
    from ngcdl.storing import comparisons

    with contextlib.suppress(NoSuchRun):
        return not {*"./"} & {*name} and (comparisons.is_named(name, store) or bool(store.find(name)))
    return False


def _say_gone(compared: Iterable[StoredComparison], ids: Container[str]) -> None:
    """Say which runs of these comparisons no longer exist, and so are not among `ids`."""
    for one in compared:
        for trial in one.trials:
            if trial.run not in ids:
                console.say(f"{trial.run}, of {one.id}, no longer exists")


def take_in(file: str) -> None:
    """Import the runs and comparisons of an archive and print their ids. Raise ArchiveBroken or BadOption."""
    from ngcdl.storing import archive

    path, stream = Path(file), None
    if file == _STDOUT and sys.stdin:  # not by its path: a socket, or another user's pipe, can't be opened again
        path, stream = Path("stdin"), sys.stdin.buffer
        if stream.isatty():
            raise BadOption("-: stdin is a terminal.", "    ngcdl runs import FILE.tar")
    for run_id in archive.take_in(lookup.open_store(), path, console.say, stream):
        console.result(run_id)


def replay(name: str, dry_run: bool, detach: bool, as_json: bool, trust: bool = False) -> int:
    """Repeat a run and return the exit code; repeat an imported one only with `trust`.

    Raise NotRepeatable, and all that `ngcdl run` does."""
    from ngcdl.cli import run as starting
    from ngcdl.cli.screen import Screen
    from ngcdl.cli.typed import NAME
    from ngcdl.running import repeat
    from ngcdl.storing.store import called

    config, store = settings.load(), lookup.open_store()
    before = lookup.loaded(store, name)
    if repeat.strange(before, store):
        config = replace(config, inside=None)  # a stranger's command must not read or change other runs' cache
    screen = Screen(output_to_stderr=as_json, is_training=bool(before.workload))
    with screen:
        again = repeat.request_again(before, Context(config, store, screen), dry=dry_run, trust=trust)
    for remark in again.remarks:
        console.say(remark)
    word = called(before.id)  # what --name was, if there was one
    asked = replace(_on_this_terminal(again.asked, detach), name=word if NAME.fullmatch(word) else None)
    try:
        if dry_run:
            return starting.dry_run(asked, config, store, screen, as_json)
        code, again_id = starting.carry_out(asked, config, store, screen, detach=detach, as_json=as_json)
    except (UnknownTag, UnknownRepository, BlobMissing) as error:
        raise NotRepeatable(before.id, f"its image is no longer available: {error.message}") from error
    except NoGpu as error:
        if error.is_busy or not before.gpus:
            raise
        others = replace(before, spec={**(before.spec or {}), "gpus": str(len(before.gpus))})
        hint = f"With others:\n    {retyped.command(others)}"
        raise NotRepeatable(before.id, f"its GPUs are not here: {error.found}", hint) from error
    console.say(f"what differs:  ngcdl runs diff {before.id} {again_id}")
    return code


def _on_this_terminal(asked: Asked, detach: bool) -> Asked:
    """If there is no terminal now, return `asked` without the terminal that its command had."""
    from ngcdl.cli import terminal

    if not asked.own or not asked.own.tty or (terminal.is_here() and not detach):
        return asked
    console.say("its command had a terminal; this time it has none, and no stdin")
    return replace(asked, own=replace(asked.own, tty=False, stdin=False))
