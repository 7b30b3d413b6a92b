"""3 x 3 convolutions on a CPU by trainer/winograd.c in TensorFlow 2, with their backward pass."""
import tensorflow as tf

from ... import host, layers, winograd
from . import calls


def begin(words):
    """Start to compile what TensorFlow needs to call winograd.c, if that can compute one of these words."""
    if any(winograd.can_be(word) for word in words):
        calls.begin()


def library(words):
    """Return the winograd.Library for these words if TensorFlow can call it, else None."""
    found = winograd.library(words)
    return found if found and calls.operation() else None


def can_be(word, x, weights, at):
    """Return whether this would be faster, and can be had here: not in 16 bits, nor for batches of unknown sizes."""
    return (at.winograd is not None and None not in x.shape and x.dtype == weights.dtype == tf.float32
            and winograd.pays(word, threads(), *x.shape[:3]))


def conv(word, x, weights, biases, library):
    """x [n, height, width, inputs], weights [3, 3, inputs, outputs]; biases [outputs], or None."""
    inputs, outputs = word["shape"][2:]
    shape = winograd.shaped(threads(), x.shape[:3], word, (1, 3 * inputs * outputs, inputs * outputs, outputs))
    after = [x.shape[0], *layers.sides_after(word, x.shape[1:3]), outputs]

    def call(name, given, *sides):
        return calls.operation()(given, library.address(name), shape, sides)

    @tf.custom_gradient
    def convolved(x, weights, *biases):
        def back(gradient):
            pulled, = call("input_gradient", [gradient, weights], x.shape)
            with tf.control_dependencies([pulled]):  # one after the other: each uses all processors
                moved, sums = call("filter_gradient", [x, gradient], weights.shape, [outputs])
            return [pulled, moved, sums][:2 + len(biases)]

        return call("output", [x, weights, *biases], after)[0], back

    return convolved(x, *(tf.convert_to_tensor(one) for one in (weights, biases) if one is not None))


def threads():
    return tf.config.threading.get_intra_op_parallelism_threads() or host.usable_cores()
