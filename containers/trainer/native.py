"""C of this project's own, compiled by gcc for this processor when a training begins. Without gcc there is none."""
from __future__ import absolute_import, division, print_function

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
    folder = tempfile.mkdtemp()
    try:
        path = os.path.join(folder, "compiled.so")
        words = COMPILER + flags + ("-o", path) + tuple(os.path.join(HERE, one) for one in sources) + LIBRARIES
        with open(os.devnull, "r+b") as null:
            if subprocess.call(words, stdin=null, stdout=null, stderr=null):
                return None
        with open(path, "rb") as file:
            return file.read()
    except EnvironmentError:
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def opened(content, load=ctypes.CDLL):
    """Return what load returns for the path of a file with this content, which exists no longer than that; None if
    there is no content, or it can't be loaded: load raises EnvironmentError."""
    folder = tempfile.mkdtemp()
    try:
        path = os.path.join(folder, "compiled.so")
        with open(path, "wb") as file:
            file.write(content or b"")
        return load(path)
    except EnvironmentError:
        return None
    finally:
        shutil.rmtree(folder, ignore_errors=True)
