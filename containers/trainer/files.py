"""How a file is written whole or not at all, and a folder locked for one trainer."""
from __future__ import absolute_import, division, print_function

import errno
import fcntl
import os

from .events import Stop, complain


def write_whole(path, content):
    """Write a file atomically: whenever power or the process fails, it has either the old content or the new, whole."""
    temporary = "%s.%d.tmp" % (path, os.getpid())
    try:
        with open(temporary, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
    except BaseException:
        if os.path.exists(temporary):
            os.remove(temporary)
        raise
    folder = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
    try:
        os.fsync(folder)
    except EnvironmentError:
        pass  # some network file systems have no fsync for folders; the file itself is safe
    finally:
        os.close(folder)


def make_folder(path):
    """Make a folder and its parents. It may exist already, or another process may make it at the same moment."""
    try:
        os.makedirs(path)
    except EnvironmentError:
        if not os.path.isdir(path):
            raise


def lock(folder):
    """Lock DIR/lock until the process ends or closes the returned file. Raise Stop if another trainer holds the
    lock."""
    file = open(os.path.join(folder, "lock"), "a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except EnvironmentError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            file.close()
            raise Stop("bad_argument", "another trainer works in %s" % folder)
        complain("%s cannot be locked (%s): make sure that only one trainer works there" % (folder, error.strerror))
    return file
