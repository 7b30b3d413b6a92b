"""`ngcdl exec`: a shell, or a command, in the container of a run that goes on."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from ngcdl import console
from ngcdl.cli import lookup, terminal
from ngcdl.cli.screen import Screen
from ngcdl.engines.base import Visit
from ngcdl.engines.values import Chunk
from ngcdl.errors import NgcdlError
from ngcdl.running.entering import entered
from ngcdl.running.reconcile import reconcile
from ngcdl.running.signals import PASSED_ON, heard


def visit(name: str, command: Sequence[str]) -> int:
    """Start `command`, or a shell, in a run, and connect it to the caller's streams until it ends. Return its exit
    code. Raise NoSuchRun, or as `entered` does."""
    store = lookup.open_store()
    run = reconcile(store, store.load(lookup.id_of(name, store)))
    has_terminal = terminal.is_here()
    its = entered(run, command, has_terminal)
    with _heard_by(its), Screen() as screen:
        for chunk in _connected(its, has_terminal):
            _show(chunk, screen)
        ended = its.wait()
    if ended.reason:
        console.say(f"{ended.reason}:  ngcdl show {run.id}")
    return ended.code or 0


def _connected(its: Visit, has_terminal: bool) -> Iterator[Chunk]:
    if has_terminal:
        return terminal.RawTerminal().pump(its, its.output())
    if sys.stdin and sys.stdin.isatty() and not terminal.may_read():
        its.close_input()
        return its.output()
    return terminal.Pipe().pump(its, its.output())


def _show(chunk: Chunk, screen: Screen) -> None:
    """Pass on what the command wrote: to a terminal as a run's own output is, elsewhere as it is. Raise OSError."""
    stream = sys.stderr if chunk.stream == "stderr" else sys.stdout
    if stream and not stream.isatty():
        stream.buffer.write(chunk.data)
        stream.flush()
    else:
        screen.chunk(chunk)


@contextlib.contextmanager
def _heard_by(its: Visit) -> Iterator[None]:
    """While the block lasts, let the command hear Ctrl-C, SIGUSR1 and SIGUSR2. A second Ctrl-C kills it. If the block
    is left before the command has ended, it is told so by SIGHUP, as by a terminal that is closed."""
    came: list[int] = []

    def on_signal(number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT and number in came:
            raise KeyboardInterrupt
        came.append(number)
        # In a thread: the signal may have come in the middle of a request to the engine.
        threading.Thread(target=_told, args=(its.pass_on, number), daemon=True).start()

    numbers = [number for number in heard() if number in (signal.SIGINT, *PASSED_ON)]
    before: dict[int, Any] = {number: signal.signal(number, on_signal) for number in numbers}
    try:
        yield
    except NgcdlError:
        raise
    except BaseException as error:
        _told(its.leave, signal.SIGKILL if isinstance(error, KeyboardInterrupt) else signal.SIGHUP)
        raise
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _told(tell: Callable[[int], None], number: int) -> None:
    try:
        tell(number)
    except NgcdlError as error:
        console.say(error.message)
