"""Work in a forked process: its result comes back, or nothing does; one that can't be killed holds up nobody."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from house import until

from ngcdl.forked import meanwhile

pytestmark = pytest.mark.usefixtures("own_threads")


def children() -> str:
    """Return the processes that this thread has started and not waited for: another test may have left some."""
    return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text()


class Deadly:
    """Kills the process pickling it."""

    def __reduce__(self) -> Any:
        os.kill(os.getpid(), signal.SIGKILL)


def _killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _failing() -> None:
    raise MemoryError


@pytest.mark.parametrize("way", [_killed, _failing, lambda: [b"x" * 500_000, Deadly()]])
def test_a_process_that_dies_has_no_result_and_says_nothing(way: Callable[[], object], capfd: Any) -> None:
    with meanwhile(way) as process:
        assert process.pid is not None
        assert process.result() is None
    assert capfd.readouterr() == ("", "")


def test_no_process_is_forked_off_several_threads() -> None:
    wait = threading.Event()
    other = threading.Thread(target=wait.wait)
    other.start()
    try:
        with meanwhile(os.getpid) as process:
            assert (process.pid, process.result()) == (None, None)
    finally:
        wait.set()
        other.join()
    with meanwhile(os.getpid) as process:
        assert process.result() == process.pid != os.getpid()


def test_a_block_that_is_left_takes_its_process_along() -> None:
    before = children()
    with pytest.raises(KeyboardInterrupt), meanwhile(lambda: time.sleep(600)):
        signal.raise_signal(signal.SIGINT)
    assert children() == before


def test_a_signal_that_comes_just_before_the_fork_leaves_none_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    real = signal.pthread_sigmask

    def handling(how: int, numbers: Any) -> set[signal.Signals | int]:
        before = real(how, numbers)
        if how == signal.SIG_BLOCK and numbers:
            raise KeyboardInterrupt
        return before

    before = real(signal.SIG_BLOCK, ())
    monkeypatch.setattr(signal, "pthread_sigmask", handling)
    with pytest.raises(KeyboardInterrupt), meanwhile(os.getpid):
        pass
    assert real(signal.SIG_SETMASK, before) == before


def test_it_has_no_file_of_its_parent(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with meanwhile(lambda: {fd: str(Path(f"/proc/self/fd/{fd}").readlink()) for fd in range(3)}) as process:
            assert process.result() == dict.fromkeys(range(3), "/dev/null")
        with meanwhile(lambda: ((tmp_path / "up").touch(), time.sleep(600))) as process:
            until((tmp_path / "up").exists, "the process")
            with pytest.raises(TimeoutError):
                process.result(0.05)
            file.close()
            with (tmp_path / "lock").open("w") as again:
                fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


STUCK = """
import os, signal, sys, time
from ngcdl import forked
os.kill, killed = (lambda *_: None), os.kill  # as if it were stuck in the kernel, where no signal reaches it
with forked.meanwhile(lambda: time.sleep(600)) as process:
    try:
        process.result(0.05)
    except TimeoutError:
        print(process.pid)
"""


def test_one_that_can_t_be_killed_keeps_neither_its_parent_nor_who_reads_its_output() -> None:
    ended = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, check=True, timeout=240)
    assert ended.stderr == ""
    os.kill(int(ended.stdout), signal.SIGKILL)
