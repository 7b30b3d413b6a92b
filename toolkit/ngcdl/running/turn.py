"""Waits until it is a run's turn and the cards that it needs are free: first come, first served.

Each run that waits has a ticket in the store: a file that its process has locked, so the line forgets a process that
was killed. The file has the UUIDs of the cards that would do: runs that wait for other cards are not in each other's
way. Another host that shares the home has other cards, and a line of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from ngcdl import processes, waiting
from ngcdl.folder import MOST_BYTES, opened
from ngcdl.given_cards import Need
from ngcdl.running.gpu_claims import choosing_lock, claimed
from ngcdl.storing.store import Store
from ngcdl.telemetry import free_cards
from ngcdl.telemetry.looks import Looks

PAUSE_SECONDS = 3.0  # between two looks
_TICKETS = ".*turn-*"  # also .new.turn-*, whose process was killed before it stood in line
_LEFT_SECONDS = 7 * 86400.0  # after which a ticket of another host, or of another boot, is removed


@contextlib.contextmanager
def awaited(
    need: Need,
    store: Store,
    say: Callable[[str], None],
    in_line: Callable[[], None] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[tuple[str, ...]]:
    """Wait for the cards, and yield their UUIDs. While the block lasts, no other ngcdl takes them: it records the run
    that holds them. `in_line` is called when the run's place in line is certain. Raise NvmlUnavailable if the driver
    gives no answer for minutes (looks.py)."""
    with _in_line(store, need.names) as ahead:
        in_line()
        while True:
            with contextlib.closing(Looks(say)) as looks:
                free = _free(need, ahead, lambda: looks.look(need.names, claimed(store)), say, sleep)
            with choosing_lock(store, say):
                if claimed(store).keys().isdisjoint(free):
                    yield free
                    return
            say("another run took the GPU meanwhile: waiting again")


def foreseen(need: Need, store: Store) -> str:
    """Say what a run would wait for now."""
    with _in_line(store, need.names) as ahead:
        others = ahead()
    look = free_cards.look(need.names, claimed(store))
    if _must_wait(need, look, others):
        return f"--wait: it would wait for {_words(need, look, others)}"
    return "--wait: its GPUs are free now"


def _free(
    need: Need,
    ahead: Callable[[], int],
    look_again: Callable[[], free_cards.Look],
    say: Callable[[str], None],
    sleep: Callable[[float], None],
) -> tuple[str, ...]:
    """Return the cards once they are free at two looks in a row: between two programs of somebody's script a card is
    free for a moment."""
    what: str | None = None
    before: Collection[str] = ()
    with waiting.telling(say, lambda: what):
        while True:
            others = ahead()  # before the claims are read: who leaves the line has recorded a run by then
            look = look_again()
            stayed = [uuid for uuid in look.free if uuid in before]
            if not others and len(stayed) >= need.count:
                # if all are needed, in the order in which they were asked for
                return tuple(need.names if need.count == len(need.names) else stayed[: need.count])
            if _must_wait(need, look, others):
                is_news, what = what is None, _words(need, look, others)
                if is_news:
                    say(f"waiting for {what}; Ctrl-C cancels")
            before = look.free
            sleep(PAUSE_SECONDS)


def _must_wait(need: Need, look: free_cards.Look, ahead: int) -> bool:
    return ahead > 0 or len(look.free) < need.count


def _words(need: Need, look: free_cards.Look, ahead: int) -> str:
    """Say what is waited for, who uses it, and which place in line the run has."""
    place = f"place {ahead + 1} in line" if ahead else ""
    return "; ".join(filter(None, (cards(need), look.users, place)))


def cards(need: Need) -> str:
    """Say how many cards are waited for."""
    return f"{need.count} free GPU{'s' if need.count > 1 else ''}"


@contextlib.contextmanager
def _in_line(store: Store, wanted: Collection[str]) -> Iterator[Callable[[], int]]:
    """Stand in line while the block lasts. The function that it gets returns how many in front want one of the same
    cards. Without file locks there is no line."""
    # By the clock that nobody can set; the boot tells this host from others that share the home.
    begins = f".turn-{processes.boot_id()}-"
    ticket = store.root / f"{begins}{time.clock_gettime_ns(time.CLOCK_BOOTTIME):020}"

    def ahead() -> int:
        with contextlib.suppress(OSError):
            os.utime(ticket, follow_symlinks=False)  # other hosts see that it is not left over
        tickets = list(store.root.glob(_TICKETS))
        here = [one for one in tickets if one.name.startswith(begins)]
        for one in set(tickets).difference(here):
            _remove_if_left(one)
        return sum(_is_rival(one, wanted) and one.name < ticket.name for one in here)

    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            fresh = ticket.with_name(f".new{ticket.name}")
            lock = stack.enter_context(fresh.open("x"))
            stack.callback(fresh.unlink, missing_ok=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
            lock.write("\n".join(wanted))
            lock.flush()
            fresh.rename(ticket)  # so nobody ever sees it without lock and content
            stack.callback(ticket.unlink, missing_ok=True)
        yield ahead


def _remove_if_left(ticket: Path) -> None:
    """Remove the ticket of another host, or boot, if nobody has touched it for long. Its lock says nothing: on some
    file systems a lock is seen on its own host only."""
    with contextlib.suppress(OSError):
        if time.time() - ticket.stat().st_mtime > _LEFT_SECONDS:
            ticket.unlink()


def _is_rival(ticket: Path, wanted: Collection[str]) -> bool:
    """Return whether a process waits there for one of the cards `wanted`. Remove the ticket of a process that ended."""
    try:
        with opened(ticket) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return not set(file.read(MOST_BYTES).decode(errors="replace").split("\n")).isdisjoint(wanted)
            ticket.unlink()
    except OSError:  # it has just left the line
        pass
    return False
