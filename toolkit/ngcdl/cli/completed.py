"""Shell completion of runs, images and trainings that this machine knows, and of options' values; asks no registry, and
reads records only to offer what is running.

If anything goes wrong, nothing is completed: a message would land in the middle of the line that is being typed. What
is not loaded anyway is imported inside the functions, as start-up imports this module.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ngcdl.storing.store import Store

_NEWEST = 50


def _quietly(those: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    @functools.wraps(those)
    def quiet(incomplete: str) -> list[str]:
        import re
        import warnings

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = [one for one in those(incomplete) if one.startswith(incomplete)]
                # A folder may have any name; bash would split it at blanks, zsh evaluates it, and a terminal obeys it.
                return [one for one in found if re.fullmatch(r"[\w.:/@-]+", one, re.ASCII)]
        except Exception:
            return []

    return quiet


@_quietly
def runs(incomplete: str) -> list[str]:
    """Return `last` and the ids of the newest runs; also their last words, as `ngcdl runs` shows them, and their names,
    once one is begun."""
    return _newest(_store().ids(), incomplete)


@_quietly
def running(incomplete: str) -> list[str]:
    """Return what runs() does, but only of runs that have not ended; their records are read."""
    store = _store()
    ids = store.ids()[:_NEWEST]
    left = [one for one in ids if not store.is_ended(one)]
    return [one for one in _newest(left, incomplete) if one != "last" or left[0] == ids[0]]


@_quietly
def comparisons(incomplete: str) -> list[str]:
    """Return `last` and the ids of the newest comparisons, as `runs` does those of runs."""
    from ngcdl.storing import comparisons

    found = _newest(comparisons.ids(_store())[::-1], incomplete)
    word = f"{comparisons.KIND}-"
    return [*found, *(one.removeprefix(word) for one in found if one.startswith(word))]


def runs_and_comparisons(incomplete: str) -> list[str]:
    """Return what runs() does, and the newest comparisons' ids, by which commands tell them from runs."""
    from ngcdl.storing.comparisons import KIND

    return list(dict.fromkeys([*runs(incomplete), *(one for one in comparisons(incomplete) if KIND in one)]))


def images(incomplete: str) -> list[str]:
    """Return the catalogue's frameworks, and, after a framework's name, also its tags; nothing for the words of a
    command after --, where the shell's own completion offers files."""
    from ngcdl.cli import PARTED

    # bash's line, or zsh's and fish's: https://github.com/fastapi/typer/blob/master/typer/_completion_shared.py
    typed = (os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or "").split()
    if "--" in typed and typed[1] in PARTED:
        return []
    return _images(incomplete)


def tags(ctx: Any, incomplete: str) -> list[str]:
    """Return the tags of the framework before a colon: bash splits words at colons, and completes what follows."""
    if list(ctx.params.get("stray") or ()) != [":"]:
        return []
    head = f"{ctx.params.get('image')}:"
    return [one.removeprefix(head) for one in _images(head + incomplete)]


@_quietly
def trainings(incomplete: str) -> list[str]:
    del incomplete
    from ngcdl.trainings import names

    return list(names())


def one_of(metavar: str) -> Callable[[str], list[str]]:
    """Return what completes the value of an option whose metavar names values, as auto|synthetic|DIR does."""
    words = [word for word in metavar.split("|") if word.islower()]
    return lambda incomplete: [word for word in words if word.startswith(incomplete)]


def variations(incomplete: str) -> list[str]:
    from ngcdl.cli.varied import VALUES

    found = [f"{name}={values}" for name, values in VALUES.items() if ":" not in values]
    return [one for one in found if one.startswith(incomplete)]


@contextlib.contextmanager
def apostrophes() -> Iterator[None]:
    """If zsh asks in the block, write apostrophes as it reads them: it leaves out typer's, which are ''."""
    if os.environ.get("_NGCDL_COMPLETE") != "complete_zsh":
        yield
        return
    written = io.StringIO()
    try:
        with contextlib.redirect_stdout(written):
            yield
    finally:
        sys.stdout.write(written.getvalue().replace("''", "'\\''"))


def _store() -> Store:
    from ngcdl import settings
    from ngcdl.storing.store import Store

    return Store(settings.load().runs)


def _newest(ids: list[str], incomplete: str) -> list[str]:
    from ngcdl.storing.store import called, short

    ids = ids[:_NEWEST]
    names = dict.fromkeys(map(called, ids))
    return ["last", *ids, *([*map(short, ids), *names] if incomplete else ())] if ids else []


@_quietly
def _images(incomplete: str) -> list[str]:
    from ngcdl.catalog import releases

    name = incomplete.partition(":")[0]
    found = list(releases.frameworks())
    return found + [f"{name}:{tag}" for tag in releases.tags(name)] if name in found else found
