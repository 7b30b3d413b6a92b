"""`ngcdl report`: runs as a page, an image, a table for a pull request, or rows for a spreadsheet."""

from __future__ import annotations

import contextlib
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ngcdl import console, whole
from ngcdl.cli import lookup
from ngcdl.errors import BadOption, NoSuchComparison, NoSuchRun, NotWritten
from ngcdl.folder import EVENTS, lines
from ngcdl.frozen import dataclass
from ngcdl.record import Run
from ngcdl.storing.nodesamples import samples
from ngcdl.storing.store import Store

if TYPE_CHECKING:
    from ngcdl.report.compared.comparison import Comparison
    from ngcdl.report.shown.story import Story

_STDOUT = "-"
_OF_FILES = {".html": "--html", ".png": "--png", ".md": "--markdown", ".csv": "--csv"}


@dataclass(frozen=True)
class Asked:
    """The files to write; - is stdout. If none is named, a page is written into the first run's folder."""

    html: str | None = None
    png: str | None = None
    markdown: str | None = None
    csv: str | None = None
    open: bool = False

    def going_to(self, target: str) -> list[str]:
        """Return the names of the options that send their document to `target`."""
        typed = {"--html": self.html, "--png": self.png, "--markdown": self.markdown, "--csv": self.csv}
        return [option for option, named in typed.items() if named == target]

    def tell(self, path: Path) -> None:
        """Print a file's path on stdout, or on stderr if a document is on stdout."""
        if self.going_to(_STDOUT):
            console.say(f"written: {path}")
        else:
            console.result_exact(str(path))


def report(names: Sequence[str], asked: Asked) -> None:
    """Write what was asked for, and print the path of each file. Raise NoSuchRun, NotWritten or NoBrowser."""
    from ngcdl.report.shown.story import LETTERS

    if nowhere := asked.going_to(""):
        from ngcdl.cli.typed import empty

        raise empty(f"{nowhere[0]}: the name of the file")
    shown = asked.going_to(_STDOUT)
    if len(shown) > 1:
        hint = f"    ngcdl report ... {shown[0]} FILE {shown[1]} -"
        raise BadOption(f"{' and '.join(shown)}: stdout takes one document.", hint)
    store = lookup.open_store()
    comparison = _comparison(names, store)
    if comparison:
        names = _runs_of(comparison)
    if len(names) > len(LETTERS):
        raise BadOption(f"{len(names)} runs: a report holds at most {len(LETTERS)}, as two letters name each.")
    runs = lookup.each(names or ("last",), lambda name: _loaded(store, name))
    twice = {run.id for run in runs if sum(other.id == run.id for other in runs) > 1}
    if twice:
        raise BadOption(f"{', '.join(sorted(twice))} is named twice.")
    if asked.csv:
        _write(asked, asked.csv, _sheets(store, runs))
    wants_page = asked.html or asked.open or not (asked.png or asked.markdown or asked.csv)
    if wants_page or asked.png or asked.markdown:
        _pages(store, runs, asked, bool(wants_page), comparison)


def _loaded(store: Store, name: str) -> Run:
    """Raise NoSuchRun, with the line to type if a file to write was named like a run."""
    try:
        return lookup.loaded(store, name)
    except NoSuchRun as error:
        option, words = _OF_FILES.get(Path(name).suffix), sys.argv[1:]
        if option and name in words:
            from ngcdl.cli.typed import again

            at = words.index(name)
            error.hint = f"To write that file:\n{again([*words[:at], option, *words[at:]])}"
        raise


def _comparison(names: Sequence[str], store: Store) -> Comparison | None:
    """Return the comparison that a single name means, or None if it means a run."""
    if len(names) != 1 or names[0] == "last" or store.has(names[0]):
        return None
    from ngcdl.comparing import compare
    from ngcdl.storing import comparisons

    try:
        found = comparisons.find(names[0], store)
    except NoSuchComparison:
        return None
    with contextlib.suppress(NoSuchRun):
        if names[0] != found and not comparisons.is_named(names[0], store) and store.find(names[0]):
            return None  # it is also the beginning or end of a run's id
    return compare.compared(lookup.comparison(store, found), store)


def _runs_of(comparison: Comparison) -> list[str]:
    """Return the comparison's runs that still exist. Raise BadOption if none does."""
    runs = [run for arm in comparison.arms for run in arm.runs]
    if not runs:
        raise BadOption("None of its runs exists any more, or none was started.", "    ngcdl compare --show ID")
    return runs


def _pages(store: Store, runs: Sequence[Run], asked: Asked, wants_page: bool, comparison: Comparison | None) -> None:
    from ngcdl.report.shown.page import page

    stories = _stories(store, runs, comparison)
    document = page(stories, comparison) if wants_page or asked.png else ""
    if asked.markdown:
        from ngcdl.report.shown.markdown import markdown

        _write(asked, asked.markdown, [markdown(stories, comparison)])
    if wants_page:
        name = "report.html" if len(runs) == 1 else f"report-of-{len(runs)}.html"
        target = asked.html or str(store.folder(runs[0].id) / name)
        _write(asked, target, [document], is_typed=bool(asked.html))
        if asked.open:
            _open(target)
    if asked.png:  # last: it alone needs a browser, which may be missing
        from ngcdl.report.shown.browser import picture

        drawn = picture(document)
        _write(asked, asked.png, [drawn.png])
        if drawn.share < 1:
            console.say(f"the image has the first {100 * drawn.share:.0f} % of the page; --html has all of it")


def _stories(store: Store, runs: Sequence[Run], comparison: Comparison | None) -> list[Story]:
    from ngcdl.reading import story_of
    from ngcdl.report.shown.story import LETTERS

    arms = {run: (arm.name, at) for at, arm in enumerate(comparison.arms if comparison else ()) for run in arm.runs}
    stories = []
    for run, letter in zip(runs, LETTERS, strict=False):
        story = story_of(run, store.folder(run.id))
        name, colour = arms.get(run.id, (None, None))
        stories.append(replace(story, letter=letter, arm=name, colour=colour))
    return stories


def _sheets(store: Store, runs: Sequence[Run]) -> Iterator[str]:
    from ngcdl.report.shown.sheet import sheet

    for number, run in enumerate(runs):
        folder = store.folder(run.id)
        yield from sheet(run, lines(folder / EVENTS), samples(folder), head=not number)


def _write(asked: Asked, target: str, parts: Iterable[str | bytes], is_typed: bool = True) -> None:
    """Write a file whole or not at all, readable by its owner only, and print its path. Raise NotWritten.

    If the path was typed, a link or pipe there is meant and is written to. A link or pipe in a run's folder may have
    been left by the run, and is replaced.
    """
    if target == _STDOUT:
        stream = console.result_stream()
        for part in parts:
            stream.write(_bytes(part))
        return
    path = Path(target)
    try:
        if is_typed and path.exists() and not stat.S_ISREG(path.stat().st_mode):
            with path.open("wb") as file:  # a pipe, or /dev/stdout
                file.writelines(_bytes(part) for part in parts)
        else:
            with whole.written(path.resolve() if is_typed else path, sync=False) as file:
                file.writelines(_bytes(part) for part in parts)
    except OSError as error:
        raise NotWritten(target, error.strerror or str(error)) from error
    asked.tell(path.absolute())


def _bytes(part: str | bytes) -> bytes:
    return part.encode("utf-8", "replace") if isinstance(part, str) else part


def _open(target: str) -> None:
    import webbrowser

    if target == _STDOUT or not webbrowser.open(Path(target).resolve().as_uri()):
        console.say("could not start a browser here: open the file by hand")
