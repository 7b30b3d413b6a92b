"""How a file is written whole or not at all, and a folder locked for one trainer."""
from __future__ import absolute_import, division, print_function

import errno
import fcntl
import os
import sys

from .events import Stop


def write_whole(path, content):
    """Write a file so that, whenever power or process fails, either the old or the new content is there, whole."""
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
    """Make a folder and what it lies in. It may be there already, or another process may make it at this moment."""
    try:
        os.makedirs(path)
    except EnvironmentError:
        if not os.path.isdir(path):
            raise


def lock(folder):
    """Hold DIR/lock until the process ends; return the file, which is the lock. Raise Stop if another trainer does."""
    file = open(os.path.join(folder, "lock"), "a")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except EnvironmentError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            file.close()
            raise Stop("bad_argument", "another trainer works in %s" % folder)
        print("%s cannot be locked (%s): make sure that only one trainer works there" % (folder, error.strerror),
              file=sys.stderr)
    return file
