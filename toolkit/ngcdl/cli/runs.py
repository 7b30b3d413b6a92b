"""`ngcdl runs`, `show`, `logs` and `wait`: lists and shows what the records say, and waits for runs."""

from __future__ import annotations

import codecs
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from typing import IO

from ngcdl import console
from ngcdl.cli import listed, lookup
from ngcdl.cli.shown import how_it_ended, show_summary
from ngcdl.errors import BadOption, NgcdlError, NoLog, RecordBroken
from ngcdl.folder import LOG, opened
from ngcdl.record import Run
from ngcdl.running import silence
from ngcdl.running.reconcile import RECORDS, is_left_alone, reconcile, standing, unread_output
from ngcdl.spec import kind_of
from ngcdl.storing.store import Store

NEWEST = 20  # runs that are listed without --all
_BEGUN = re.compile(r"\x1b(?:\][^\x07\x1b]*\x1b?|\[[0-?]*[ -/]*)?\Z")  # an escape sequence without its end
_LONGEST = 4096  # characters of one to hold back; a longer one counts as text
_BLOCK = 65536  # bytes of a log that are read at once
UNREAD = "no ngcdl watches this run any more, so nothing more comes into its log"


def runs(as_json: bool, everything: bool = False) -> None:
    """List the newest runs, or all. An unreadable record is named on stderr and hides no other."""
    store, found = lookup.open_store(), []
    ids = store.ids()
    shown = ids if everything or as_json else ids[:NEWEST]
    with lookup.asking() as away:
        for run_id in shown:
            try:
                found.append(lookup.with_figures(store, reconcile(store, store.load(run_id), away)))
            except NgcdlError as error:
                console.show_error(error)
    if as_json:
        console.result_json([run.as_json() for run in found])
        return
    if not found:
        console.say(f"there are no runs in {store.root} yet:  ngcdl run --train cifar10")
        return
    silent = {run.id: seconds for run in found if (seconds := silence.silent_seconds(run, store.folder(run.id)))}
    for line in listed.table(found, silent, ids, console.columns(sys.stdout), time.time()):
        console.result(line)
    if any(lookup.RECENT in run.notes for run in found):
        console.say(f"* {lookup.RECENT}")
    for run in found:
        if run.id in silent:
            console.say(silence.with_advice(run, silent[run.id]))
    if len(ids) > len(shown):
        console.say(f"{len(ids) - len(shown)} older runs:  ngcdl runs --all")


def show(name: str, as_json: bool, watch_seconds: float | None = None) -> None:
    """Show one run; with `watch_seconds`, show what it does now, at that interval, until it ends. Raise NoSuchRun or
    RecordBroken."""
    store = lookup.open_store()
    if watch_seconds is not None:
        from ngcdl.cli import live

        live.watch(store, lookup.id_of(name, store), watch_seconds, as_json)
        return
    with lookup.asking() as away:
        run = reconcile(store, store.load(lookup.id_of(name, store)), away)
    if as_json:
        console.result_json(lookup.with_figures(store, run).as_json())
        return
    show_summary(store, run)
    if seconds := silence.silent_seconds(run, store.folder(run.id)):
        console.say(silence.with_advice(run, seconds))
    lookup.say_how_to_go_on(store, run)


def logs(name: str, follow: bool, tail: int | None = None) -> None:
    """Print log.txt, or its last `tail` lines, in a pipe as it was written; with `follow`, go on until the run has
    ended. If no ngcdl watches the run any more, `follow` prints what its container writes, or, if it has no container,
    only waits for its end. Raise BadOption, NoLog, EngineError or RunElsewhere."""
    if tail is not None and tail < 0:
        raise BadOption(f"--tail {tail}: must be a whole number, 0 or more.")
    store = lookup.open_store()
    run_id = lookup.id_of(name, store)
    path = store.folder(run_id) / LOG
    write = _writer(console.result_stream())
    away: dict[str, NgcdlError] = {}
    is_told = is_followed = False
    try:
        with opened(path) as file:
            for run in standing(store, run_id, away=away):
                away.pop(RECORDS, None)  # a log can be read all the same
                if tail is not None:  # not before: a cluster's answer may have made the log longer
                    _to_last(tail, file)
                    tail = None
                while data := file.read(_BLOCK):
                    write(data)
                if run.status != "running":
                    return
                is_unwatched, has_containers = is_left_alone(run), kind_of(run.engine).has_containers
                is_unheard = is_unwatched and has_containers
                if is_unheard and not follow:
                    console.say(
                        f"no ngcdl watches this run any more; with what it wrote since then:  ngcdl logs -f {run_id}"
                    )
                if not follow:
                    return
                if is_unheard and not away and not is_followed:
                    _follow_container(run, file, write)
                    is_followed = True  # until it ended: only closing the record can still fail
                news = [f"{error.message} What became of the run is not known yet." for error in away.values()]
                if is_unwatched and not has_containers:
                    news = [f"{UNREAD}; waiting for its end. To stop it:  ngcdl stop {run_id}"]
                for line in () if is_told else news:
                    console.say(line)
                is_told = is_told or bool(news)
    except FileNotFoundError as error:
        raise NoLog(run_id) from error
    except OSError as error:
        if error.filename is None:  # stdout can't be written to
            raise
        raise RecordBroken(path, error.strerror or str(error)) from error


def _to_last(count: int, file: IO[bytes]) -> None:
    """Move to where the last `count` lines begin, reading no more than them: a log can have gigabytes."""
    at = end = file.seek(0, os.SEEK_END)
    while at and count:
        begin = max(at - _BLOCK, 0)
        file.seek(begin)
        data = file.read(at - begin)
        newline = len(data) - (at == end)  # the one that ends the last line begins none
        while (newline := data.rfind(b"\n", 0, newline)) >= 0 and (count := count - 1):
            pass
        at = begin
        file.seek(begin + newline + 1 if newline >= 0 else begin)


def _follow_container(run: Run, file: IO[bytes], write: Callable[[bytes], None]) -> None:
    """Print what the run's container writes, and move the position in `file` past it: `reconcile` will add the same
    bytes to the log."""
    at = file.tell()
    for data in unread_output(run, file):
        write(data)
        at += len(data)
    file.seek(at)


def _writer(stream: IO[bytes]) -> Callable[[bytes], None]:
    """Return a function that writes to `stream` and flushes it; on a terminal, without control characters, and of a
    line that was rewritten with \\r, as progress bars do, the last state."""
    if not sys.stdout.isatty():

        def pass_on(data: bytes) -> None:
            stream.write(data)
            stream.flush()

        return pass_on
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    back = "\r\x1b[K" if console.on_terminal(sys.stdout) else "\r"
    unfinished = ""

    def last_state(line: str) -> str:
        _, was_rewritten, state = line.rstrip("\r").rpartition("\r")
        return back + state if was_rewritten else state

    def write(data: bytes) -> None:
        nonlocal unfinished
        text = unfinished + decode(data)
        begun = _BEGUN.search(text)
        end = begun.start() if begun and len(begun[0]) <= _LONGEST else len(text)
        clean = console.plain(text[:end], kept="\r")
        shown = clean.rstrip("\r")  # what follows decides whether the line ends or is rewritten
        unfinished = "\r" * (shown != clean) + text[end:]  # one \r does what many do
        stream.write("\n".join(last_state(line) for line in shown.split("\n")).encode())
        stream.flush()

    return write


def wait(names: Sequence[str], everything: bool) -> int:
    """Wait until these runs have ended, or all that go on now, and say how each did. Return the exit code of the first
    of them that failed, else 0. Raise BadOption, NoSuchRun or RecordBroken."""
    if everything and names:
        raise BadOption("Name runs, or say --all, and only one of the two.", f"    ngcdl wait {shlex.join(names)}")
    store = lookup.open_store()
    if everything:
        ids = [run.id for run in lookup.running(store, store.ids()[::-1])]
        console.say(f"waiting for {', '.join(ids)}" if ids else "nothing is running")
    else:
        ids = [lookup.id_of(name, store) for name in names or ["last"]]
    codes = [_waited(store, run_id) for run_id in dict.fromkeys(ids)]
    return next(filter(None, codes), 0)


def _waited(store: Store, run_id: str) -> int:
    from ngcdl.cli.run import exit_code

    away, is_told = dict[str, NgcdlError](), False
    states = standing(store, run_id, away=away)
    while (run := next(states)).status == "running":
        for error in () if is_told else away.values():
            console.say(f"{error.message} What became of the run is not known yet.")
            is_told = True
    console.say(f"{run.id}: {how_it_ended(run)}")
    return exit_code(run)
