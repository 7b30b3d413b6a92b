"""Layers on a CPU by C of trainer/kernels.py in TensorFlow 2, with their backward pass."""
import tensorflow as tf

from ... import host, kernels, layers
from . import calls


def begin(words):
    """Start to compile what TensorFlow needs to call winograd.c, if that can compute one of these words."""
    if kernels.any_of(words):
        calls.begin()


def library(words):
    """Return the kernels.Library for these words if TensorFlow can call it, else None."""
    found = kernels.library(words)
    return found if found and calls.operation() else None


def can_be(word, x, weights, at):
    """Return whether this would be faster, and can be had here."""
    return is_plain(x, weights, at) and kernels.pays(word, threads(), *x.shape[:3])


def can_pool(word, x, weights, at):
    """Return the same of a joined word (layers.joined)."""
    return "pooled" in word and is_plain(x, weights, at) and kernels.pools(word, threads(), *x.shape[:3])


def is_plain(x, weights, at):
    """Return whether x is neither in 16 bits nor of an unknown size, and there is a library."""
    return at.library is not None and None not in x.shape and x.dtype == weights.dtype == tf.float32


def conv(word, x, weights, biases, library):
    """x [n, height, width, inputs], weights [3, 3, inputs, outputs]; biases [outputs], or None."""
    call = calling(word, x, library)

    @tf.custom_gradient
    def convolved(x, weights, *biases):
        def back(gradient):
            return gradients(call, gradient, x, weights)[:2 + len(biases)]

        return call("output", [x, weights, *biases], after(word, x))[0], back

    return convolved(x, *given(weights, biases))


def pooled(word, x, weights, biases, library):
    """The same, its max pool and relu. Of a first convolution x has no gradient."""
    call, is_first = calling(word, x, library), kernels.is_first(word)

    @tf.custom_gradient
    def convolved(x, weights, *biases):
        def back(gradient):
            if is_first:
                found = call("first_filter_gradient", [x, gradient, choices], weights.shape, weights.shape[3:])
                return [None, *found[:1 + len(biases)]]
            whole, = call("unpooled", [gradient, choices], after(word, x))
            return gradients(call, whole, x, weights)[:2 + len(biases)]

        sides = [x.shape[0], *layers.pooled_sides(word, x.shape[1:3]), word["shape"][3]]
        found, choices = call("first_pooled" if is_first else "pooled", [x, weights, *biases], sides, sides)
        return found, back

    return convolved(x, *given(weights, biases))


def can_normalise(word, x, at):
    return is_plain(x, x, at) and kernels.normalises(word, x.shape[-1])


def normalised(word, x, library):
    """Local response normalisation of x [n, height, width, channels]."""
    shape = kernels.shaped_rows(threads(), x.shape.num_elements() // x.shape[-1], x.shape[-1], word)

    def call(name, *given):
        return calls.operation()(given, library.address(name), shape, [x.shape])[0]

    @tf.custom_gradient
    def divided(x):
        return call("normalised", x), lambda gradient: call("normalised_gradient", x, gradient)

    return divided(x)


def calling(word, x, library, shaped=None):
    """Return a function that calls one of the library's for this word and x."""
    side, inputs, outputs = word["shape"][1:]
    strides = 1, side * inputs * outputs, inputs * outputs, outputs
    shape = (shaped or kernels.shaper(word))(threads(), x.shape[:3], word, strides)
    return lambda name, given, *sides: calls.operation()(given, library.address(name), shape, sides)


def gradients(call, gradient, x, weights):
    """Return the gradients of x, weights and biases."""
    pulled, = call("input_gradient", [gradient, weights, x], x.shape)
    with tf.control_dependencies([pulled]):  # one after the other: each uses all processors
        return [pulled, *call("filter_gradient", [x, gradient], weights.shape, weights.shape[3:])]


def after(word, x):
    """Return the shape of the convolution's output."""
    return [x.shape[0], *layers.sides_after(word, x.shape[1:3]), word["shape"][3]]


def given(*arrays):
    return [tf.convert_to_tensor(one) for one in arrays if one is not None]


def threads():
    return tf.config.threading.get_intra_op_parallelism_threads() or host.usable_cores()
