"""`ngcdl logs`: prints what a run has written."""

from __future__ import annotations

import codecs
import os
import re
import sys
from collections.abc import Callable
from typing import IO

from ngcdl import console
from ngcdl.cli import lookup
from ngcdl.errors import BadOption, NoLog, RecordBroken
from ngcdl.folder import LOG, opened
from ngcdl.record import Run
from ngcdl.running.reconcile import Obstacles, is_left_alone, standing
from ngcdl.running.recorded_job import last_output, unread_output
from ngcdl.storing.store import Store
from ngcdl.terminal_text import plain

_BEGUN = re.compile(r"\x1b(?:\][^\x07\x1b]*\x1b?|\[[0-?]*[ -/]*)?\Z")  # an escape sequence without its end
_LONGEST = 4096  # characters of one to hold back; a longer one counts as text
_BLOCK = 65536  # bytes of a log that are read at once
_UNWATCHED = "no ngcdl watches this run any more, so nothing more comes into its log"
Write = Callable[[bytes], None]


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
    try:
        with opened(path) as file:
            _print(store, run_id, file, write, follow, tail)
    except FileNotFoundError as error:
        raise NoLog(run_id) from error
    except OSError as error:
        if error.filename is None:  # stdout can't be written to
            raise
        raise RecordBroken(path, error.strerror or str(error)) from error


def _print(store: Store, run_id: str, file: IO[bytes], write: Write, follow: bool, tail: int | None) -> None:
    obstacles = Obstacles()
    said = set[str]()
    is_followed = is_shown = False
    for run in standing(store, run_id, obstacles=obstacles):
        away = obstacles.engines  # if records can't be written, a log can be read all the same
        is_unwatched, has_containers = is_left_alone(run), run.kind.has_containers
        is_unheard = run.status == "running" and is_unwatched and has_containers
        if tail is not None:  # not before: a cluster's answer may have made the log longer
            last = last_output(run, tail) if is_unheard and follow and not away else None
            for data in last or ():
                write(data)
            is_followed = is_shown = last is not None
            if not is_shown:
                _to_last(tail, file)
            tail = None
        while not is_shown and (data := file.read(_BLOCK)):
            write(data)
        if run.status != "running":
            return
        if not follow:
            if is_unheard:
                console.say(
                    f"no ngcdl watches this run any more; with what it wrote since then:  ngcdl logs -f {run_id}"
                )
            return
        if is_unheard and not away and not is_followed:
            _follow_container(run, file, write)
            is_followed = True  # until it ended: only closing the record can still fail
        what, line = "", next((lookup.unheard(error) for error in away.values()), "")
        if is_unwatched and not has_containers:
            line = f"{_UNWATCHED}; waiting for its end. To stop it:  ngcdl stop {run_id}"
        elif run.reason and not away:  # a cluster's next try says the same again, with another id after the colon
            what, line = run.reason.partition(":")[0], f"waiting: {run.reason}"
        if line and what not in said:
            console.say(line)
            said.add(what)


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


def _follow_container(run: Run, file: IO[bytes], write: Write) -> None:
    """Print what the run's container writes, and move the position in `file` past it: `reconcile` will add the same
    bytes to the log."""
    at = file.tell()
    for data in unread_output(run, file):
        write(data)
        at += len(data)
    file.seek(at)


def _writer(stream: IO[bytes]) -> Write:
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
        clean = plain(text[:end], kept="\r")
        shown = clean.rstrip("\r")  # what follows decides whether the line ends or is rewritten
        unfinished = "\r" * (shown != clean) + text[end:]  # one \r does what many do
        stream.write("\n".join(last_state(line) for line in shown.split("\n")).encode())
        stream.flush()

    return write
