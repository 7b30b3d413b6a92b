"""Finds the program of a command on this host, and starts it, with pipes or with a terminal of its own."""

from __future__ import annotations

import contextlib
import errno
import os
import pty
import shutil
import socket
import stat
import subprocess
import sys
import termios
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from ngcdl.engines.local import leader
from ngcdl.errors import CannotInvoke, CommandNotFound, LocalUnavailable, StartError
from ngcdl.frozen import dataclass
from ngcdl.there import exists

_SHELL = "/bin/sh"
_FIRST_LINE_BYTES = 256  # the kernel reads no more of it


@dataclass(frozen=True)
class Command:
    """A program and what it is started with. `words` is its argv as typed: the first word is the program's name."""

    program: str
    words: tuple[str, ...]
    folder: str
    environment: Mapping[str, str]


def find(word: str, folder: str | None, path: str | None) -> str:
    """Return the path of the program that `word` names for a shell in `folder`, the current one if None. `path` is the
    PATH that the program gets, if not this process's. Raise CommandNotFound or CannotInvoke."""
    entries = (os.environ.get("PATH", os.defpath) if path is None else path).split(os.pathsep)
    here = Path(folder or "").absolute()
    path = os.pathsep.join(str(here / entry) for entry in entries)  # an entry may be relative
    if os.sep not in word and (named := shutil.which(word, path=path)):
        return named  # not resolved: a virtual environment's python is a link that leads out of that environment
    there = here / word
    try:
        is_there = os.sep in word and exists(there)
    except OSError as error:  # in a folder that may not be entered, or too long
        raise CannotInvoke(word, error.strerror) from error
    if not is_there:
        raise CommandNotFound(word, "This host")
    if there.is_dir() or not os.access(there, os.X_OK):
        raise CannotInvoke(word)
    return str(there)


def is_fed() -> bool:
    """Whether this process's stdin is a pipe, a socket or a file. A program on this host then inherits it."""
    try:
        mode = os.fstat(0).st_mode if sys.stdin else 0  # None: it was closed, and something else may be there now
    except OSError:
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)


def started(command: Command, *, tty: bool, stdin: bool) -> tuple[subprocess.Popen[bytes], int | None]:
    """Start a program in a session of its own. Return its process, and our end of its terminal, None without one.

    With pipes, Ctrl-C reaches ngcdl alone, which passes it on or asks the program to stop. With a terminal, ngcdl only
    passes on what is typed, and Ctrl-C reaches the program. Raise StartError."""
    try:
        try:
            return _on_terminal(command) if tty else (_with_pipes(command, stdin), None)
        except OSError as error:
            if error.errno != errno.ENOEXEC or b"\0" in _first_line(command):
                raise
            # As a shell does for a script without #!:
            # https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html#tag_19_09_01_04
            script = command.words[0] if os.sep in command.words[0] else command.program
            return started(
                replace(command, program=_SHELL, words=(_SHELL, script, *command.words[1:])), tty=tty, stdin=stdin
            )
    except OSError as error:
        raise _refused(command, error) from error


def _with_pipes(command: Command, stdin: bool) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command.words,
        executable=command.program,
        cwd=command.folder,
        env=command.environment,
        stdin=subprocess.DEVNULL if not stdin else None if is_fed() else subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _on_terminal(command: Command) -> tuple[subprocess.Popen[bytes], int]:
    ours, theirs = pty.openpty()
    with contextlib.suppress(termios.error):  # ngcdl itself has no terminal
        termios.tcsetwinsize(theirs, termios.tcgetwinsize(0))
    mine, its = socket.socketpair()
    with contextlib.ExitStack() as left:  # cleans up if an error is raised
        left.callback(os.close, ours)
        with mine, its:
            try:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", leader.__file__, str(its.fileno())],
                    cwd=command.folder,
                    stdin=theirs,
                    stdout=theirs,
                    stderr=theirs,
                    start_new_session=True,
                    pass_fds=[its.fileno()],
                )
            finally:
                os.close(theirs)
            left.callback(process.wait)
            left.callback(process.kill)
            its.close()
            leader.become(mine, command.program, command.words, command.environment)
        left.pop_all()
    return process, ours


def _refused(command: Command, error: OSError) -> StartError:
    """Return the error that says why the command could not be started, as a shell would."""
    word, path = command.words[0], Path(command.folder, command.program)
    # os.access is False where Path.exists raises: in a folder that may not be entered.
    if os.access(path, os.F_OK) and os.access(command.folder, os.F_OK) and Path(command.folder).is_dir():
        line = _first_line(command)
        if error.errno == errno.ENOENT and line.startswith(b"#!"):
            interpreter = os.fsdecode(line[2:].strip(b" \t").partition(b" ")[0])
            windows = " and a carriage return: its lines end as on Windows"
            needs = interpreter.removesuffix("\r") + (windows if interpreter.endswith("\r") else "")
            return CommandNotFound(word, "This host", needs=needs)
        if error.errno == errno.ENOENT:
            return CommandNotFound(word, "This host", needs="a loader for programs of another system")
        if error.errno == errno.ENOEXEC:
            return CannotInvoke(word, "it was built for another kind of machine, or is damaged")
        if error.errno == errno.EACCES and os.access(command.folder, os.X_OK):
            return CannotInvoke(word)
    return LocalUnavailable(f"{command.program} can't be started in {command.folder}: {error.strerror or error}")


def _first_line(command: Command) -> bytes:
    try:
        with Path(command.folder, command.program).open("rb") as file:
            return file.read(_FIRST_LINE_BYTES).partition(b"\n")[0]
    except OSError:
        return b""
