"""TensorFlow's operation that calls a C function: what is given and found, and what becomes of a failure."""

import ctypes
import importlib

import pytest
from convolutions import word_of

from trainer import kernels, native

pytestmark = pytest.mark.tensorflow
FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.POINTER(ctypes.POINTER(ctypes.c_float)),
    ctypes.POINTER(ctypes.POINTER(ctypes.c_float)),
)


@pytest.fixture(scope="module")
def calls():
    return importlib.import_module("trainer.frameworks.tf2.calls")


def address(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def test_it_gives_the_tensors_and_takes_those_found(calls):
    import tensorflow as tf

    @FUNCTION
    def scaled(about, given, found):
        for k in range(6):
            found[0][k] = about[1] * given[0][k] + given[1][0]
        found[1][0] = bool(given[2])  # there is no third tensor
        return 0

    @tf.function(autograph=False)
    def called(x):
        return calls.operation()([x, [0.5]], address(scaled), [7, 3], [[2, 3], [1]])

    one, other = called(tf.reshape(tf.range(6.0), (2, 3)))
    assert (one.shape, other.numpy().tolist()) == ((2, 3), [0])
    assert one.numpy().tolist() == [[0.5, 3.5, 6.5], [9.5, 12.5, 15.5]]


def test_what_fails_in_c_fails_in_tensorflow(calls):
    import tensorflow as tf

    failing = FUNCTION(lambda *_: 1)
    with pytest.raises(tf.errors.ResourceExhaustedError, match="no memory"):
        calls.operation()([tf.ones(2)], address(failing), [], [[2]])


def test_a_tensorflow_that_has_no_such_operations_computes_its_own_convolutions(calls, monkeypatch):
    tiled = importlib.import_module("trainer.frameworks.tf2.tiled")
    words, library = [word_of(3, None, 32, 32)], object()
    monkeypatch.setattr(kernels, "begun", [lambda: None])
    monkeypatch.setattr(kernels, "loaded", [library])
    assert tiled.library(words) is library
    monkeypatch.setattr(calls, "loaded", [])
    monkeypatch.setattr(calls, "begun", [lambda: b"no library"])
    assert tiled.library(words) is None


def test_what_lacks_a_function_is_not_loaded(calls, monkeypatch, tmp_path):
    monkeypatch.setattr(native, "HERE", str(tmp_path))
    (tmp_path / "lacking.c").write_text(
        "void TF_NoSuch(void); __attribute__((constructor)) void load(void) { TF_NoSuch(); }"
    )
    content = native.compiled(["lacking.c"])
    assert content
    assert native.opened(content, calls.load) is None
