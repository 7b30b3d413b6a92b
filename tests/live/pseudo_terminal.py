"""ngcdl in the foreground of a pseudo-terminal."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import termios
from collections.abc import Iterator

from house import until
from ngcdl_child import User


class Terminal:
    """A child of this process, and what it shows."""

    def __init__(self, user: User, *words: str, rows: int = 24, columns: int = 80) -> None:
        self.shown, self.code = b"", None
        self._descriptor, its = pty.openpty()
        self.first_modes = self.modes()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._descriptor)
            os.login_tty(its)
            os.chdir(user.here)
            os.execve(user.words[0], [*user.words, *words], user.environment | {"TERM": "xterm"})
        os.close(its)
        self.resize(rows, columns)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def read(self) -> bytes:
        with contextlib.suppress(OSError):
            while select.select([self._descriptor], [], [], 0)[0]:
                data = os.read(self._descriptor, 65536)
                if not data:
                    break
                self.shown += data
        return self.shown

    def until(self, text: str, seconds: float = 240) -> None:
        try:
            until(lambda: text.encode() in self.read(), repr(text), seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; it shows {self.shown!r}") from error

    def ask(self, command: str, answer: str) -> None:
        """Type `command` and wait for `answer`; the command's echo does not count."""
        self.shown = b""
        self.type(command + "\r")
        self.until(answer)

    def end(self, seconds: float = 240) -> int:
        def ended() -> bool:
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
                self.read()
            return bool(pid)

        until(ended, f"the end; it shows {self.shown[-2000:]!r}", seconds)
        assert self.code is not None
        return self.code

    def modes(self) -> list[object]:
        return termios.tcgetattr(self._descriptor)[:4]

    def close(self) -> None:
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._descriptor)


@contextlib.contextmanager
def terminal(user: User, *words: str, rows: int = 24, columns: int = 80) -> Iterator[Terminal]:
    one = Terminal(user, *words, rows=rows, columns=columns)
    try:
        yield one
    finally:
        one.close()
