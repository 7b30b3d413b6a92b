"""Becomes a program that has its terminal, stdin, as its controlling terminal; a program of its own.

    leader.py DESCRIPTOR

Started as the leader of a session. From DESCRIPTOR, a socket, it reads what to become; it answers with the number of
the error if that fails. Between fork and exec no Python may run in a process with threads, and a shell drops variables
whose names are not identifiers, such as exported functions of bash.
"""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import sys
import termios
from collections.abc import Mapping, Sequence


def become(child: socket.socket, program: str, words: Sequence[str], environment: Mapping[str, str]) -> None:
    """Tell the `child`, which runs this file, what to become, and wait until it has. Raise OSError."""
    variables = (f"{name}={value}" for name, value in environment.items())
    child.sendall(b"\0".join(map(os.fsencode, (program, str(len(words)), *words, *variables))))
    child.shutdown(socket.SHUT_WR)
    if answer := child.recv(16):
        raise OSError(int(answer), os.strerror(int(answer)), program)


def main(descriptor: int) -> None:
    with socket.socket(fileno=descriptor) as parent:
        parent.set_inheritable(False)  # its end tells that this has become the program
        with parent.makefile("rb") as told:
            program, count, *rest = told.read().split(b"\0")
        words, variables = rest[: int(count)], rest[int(count) :]
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these, and so would the program
            signal.signal(number, signal.SIG_DFL)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
        try:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            os.execve(program, words, dict(variable.split(b"=", 1) for variable in variables))
        except OSError as error:
            parent.sendall(str(error.errno).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]))
