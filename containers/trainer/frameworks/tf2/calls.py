"""A TensorFlow operation that calls a C function (calls.c)."""
import ctypes

import tensorflow as tf

from ... import native
from ...ahead import meanwhile

SOURCE = "frameworks/tf2/calls.c"

begun, loaded = [], []  # at most one each, as TensorFlow registers an operation once: what returns the compiled
#                         library, and the module of the operation or None


def begin():
    """Start to compile in a thread."""
    if not begun:
        begun.append(meanwhile(native.compiled, [SOURCE]))


def operation():
    """Return the operation: a function of `given`, a list of float32 tensors; `function`, an address; `about`, a list
    of integers for it; and `sides`, a list of the shapes of the results. None where it can't be had."""
    begin()
    if not loaded:
        loaded.append(native.opened(begun[0](), load))
    return loaded[0]


def load(path):
    try:
        ctypes.CDLL("libtensorflow_framework.so.2", mode=ctypes.RTLD_GLOBAL)  # it is loaded, but not for others to see
        made = tf.load_op_library(path).ngcdl_call
    except tf.errors.NotFoundError as error:  # as where this TensorFlow's C API lacks a function
        raise OSError(str(error))

    def call(given, function, about, sides):
        flat = [number for one in sides for number in [len(one), *one]]
        found = made(given=given, outputs=len(sides), function=function, about=list(about), sides=flat)
        return [tf.ensure_shape(one, side) for one, side in zip(found, sides)]

    return call
