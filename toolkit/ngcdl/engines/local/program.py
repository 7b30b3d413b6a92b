"""Finds the program of a command on this host, and starts it, with pipes or with a terminal of its own."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ngcdl.engines.local.job import LocalJob
from ngcdl.errors import CannotInvoke, CommandNotFound

# In a session without a terminal, the first one that its leader opens becomes the controlling one: Ctrl-C then reaches
# the program. `sh` does that and becomes the program, with the same PID. https://man7.org/linux/man-pages/man4/tty.4.html
_ON_TERMINAL = ("/bin/sh", "-c", 'exec "$@" <>"$0" >&0 2>&0')


def found(word: str, folder: str | None) -> str:
    """Return the path of the program that `word` names for a shell in `folder`, the current one if None. Raise
    CommandNotFound or CannotInvoke."""
    if os.sep not in word and (named := shutil.which(word)):
        return str(Path(named).absolute())  # an entry of PATH may be relative; a link leads to another environment
    path = Path(folder or "", word)
    if os.sep not in word or not path.exists():
        instead = "python3" if word == "python" and shutil.which("python3") else None  # as on Debian
        raise CommandNotFound(word, "This host", instead)
    if path.is_dir() or not os.access(path, os.X_OK):
        raise CannotInvoke(word)
    return str(path)


def started(argv: Sequence[str], folder: str, environment: Mapping[str, str], *, tty: bool, stdin: bool) -> LocalJob:
    """Start a program in a session of its own: Ctrl-C reaches ngcdl alone, which asks it to stop; on a terminal of its
    own, where ngcdl only passes bytes on, it reaches the program. Raise OSError."""
    if not tty:
        return LocalJob(
            subprocess.Popen(
                argv,
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        )
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [*_ON_TERMINAL, os.ttyname(theirs), *argv],
            cwd=folder,
            env=environment,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    return LocalJob(process, screen=ours)
