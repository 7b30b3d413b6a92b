"""3 x 3 convolutions on a CPU by trainer/winograd.c in TensorFlow 2, with their backward pass."""
import numpy
import tensorflow as tf

from ... import host, layers, winograd

ALIGNED = 64  # bytes: TensorFlow takes an array over if it begins at a multiple, else copies it


def can_be(word, x, weights, at):
    """Return whether this would be faster, and can be had here: not in 16 bits, nor for batches of unknown sizes."""
    return (at.winograd is not None and None not in x.shape and x.dtype == weights.dtype == tf.float32
            and winograd.pays(word, threads(), *x.shape[:3]))


def conv(word, x, weights, library):
    """x [n, height, width, inputs], weights [3, 3, inputs, outputs]."""
    inputs, outputs = word["shape"][2:]
    shape = winograd.shaped(threads(), x.shape[:3], word, (1, 3 * inputs * outputs, inputs * outputs, outputs))
    after = [x.shape[0], *layers.sides_after(word, x.shape[1:3]), outputs]

    def forward(x, weights):
        found = empty(after)
        library.output(shape, address(x), address(weights), None, address(found))
        return found

    def backward(x, weights, gradient):
        pulled, moved = empty(x.shape), empty(weights.shape)
        library.input_gradient(shape, address(gradient), address(weights), address(pulled))
        library.filter_gradient(shape, address(x), address(gradient), address(moved))
        return pulled, moved

    @tf.custom_gradient
    def convolved(x, weights):
        def back(gradient):
            found = tf.numpy_function(backward, [x, weights, gradient], [tf.float32] * 2)
            return [tf.ensure_shape(one, like.shape) for one, like in zip(found, (x, weights))]

        return tf.ensure_shape(tf.numpy_function(forward, [x, weights], tf.float32), after), back

    return convolved(x, weights)


def threads():
    return tf.config.threading.get_intra_op_parallelism_threads() or host.usable_cores()


def address(array):
    return array.ctypes.data


def empty(shape):
    """Return an array that TensorFlow takes over."""
    count = int(numpy.prod(shape))
    whole = numpy.empty(4 * count + ALIGNED, numpy.uint8)
    first = -whole.ctypes.data % ALIGNED
    return whole[first:first + 4 * count].view(numpy.float32).reshape(shape)
