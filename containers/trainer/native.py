"""C of this project's own, compiled by gcc for this processor when a training begins. Without gcc there is none."""
from __future__ import absolute_import, division, print_function

import contextlib
import ctypes
import os
import shutil
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
COMPILER = "gcc", "-O3", "-march=native", "-fno-math-errno", "-fopenmp", "-shared", "-fPIC"
# Not linked with an OpenMP library: a process must have a single one, or idle threads of one keep the other's from the
# processors.
LIBRARIES = "-nodefaultlibs", "-lc"


def compiled(sources, *flags):
    """Return the content of a shared library; None without gcc, or if it fails. sources: paths below this folder."""
    try:
        with room() as path, open(os.devnull, "r+b") as null:
            words = COMPILER + flags + ("-o", path) + tuple(os.path.join(HERE, one) for one in sources) + LIBRARIES
            if subprocess.call(words, stdin=null, stdout=null, stderr=null):
                return None
            with open(path, "rb") as file:
                return file.read()
    except EnvironmentError:
        return None


def opened(content, load=ctypes.CDLL):
    """Return what load returns for the path of a file with this content, which exists no longer than that; None if
    there is no content, or it can't be loaded: load raises EnvironmentError."""
    try:
        with room() as path:
            with open(path, "wb") as file:
                file.write(content or b"")
            return load(path)
    except EnvironmentError:
        return None


@contextlib.contextmanager
def room():
    """Yield the path of a library to be, in a folder that exists no longer than the context. Raise EnvironmentError
    where no temporary folder can be written to, as in a container with --read-only, or if the disk is full."""
    folder = tempfile.mkdtemp()
    try:
        yield os.path.join(folder, "compiled.so")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
