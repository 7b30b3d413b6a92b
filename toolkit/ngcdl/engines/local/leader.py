"""Makes the terminal on its stdin its controlling terminal, then replaces itself with another program (exec).

    leader.py DESCRIPTOR

Started as a program of its own and as the leader of a session. It reads from DESCRIPTOR, a socket, which program to
execute, and answers with the errno if that fails. It is needed because no Python may run between fork and exec in a
process with threads. A shell could not do it: it drops variables whose names are not identifiers, such as functions
exported by bash.
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
    """Send the process behind `child`, which runs this file, the program to execute, and wait until it runs. Raise
    OSError."""
    variables = (f"{name}={value}" for name, value in environment.items())
    child.sendall(b"\0".join(map(os.fsencode, (program, str(len(words)), *words, *variables))))
    child.shutdown(socket.SHUT_WR)
    if answer := child.recv(16):
        raise OSError(int(answer), os.strerror(int(answer)), program)


def main(descriptor: int) -> None:
    with socket.socket(fileno=descriptor) as parent:
        parent.set_inheritable(False)  # exec closes it, which tells the parent that the program runs
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
