"""Dropout, and Adam's update, on a CPU by trainer/elementwise.c in TensorFlow 2."""
import tensorflow as tf

from . import calls
from .tiled import threads


def dropout(library, x, rate, key):
    """x of known sizes; key: two int32, which decide what is dropped."""
    about = threads(), x.shape.num_elements(), round(rate * 2**16)
    given = [tf.bitcast(key, tf.float32), tf.constant([1 / (1 - rate)])]

    def once(x):
        return calls.operation()([x, *given], library.address("dropout"), about, [x.shape])[0]

    return tf.custom_gradient(lambda x: (once(x), once))(x)


def adam(library, words, weights, slots, rate, gradient):
    said = tf.stack([rate, words["b1"], words["b2"], words["epsilon"]])
    about, updated = (threads(), weights.shape.num_elements()), [weights, *slots]
    found = calls.operation()([*updated, gradient, said], library.address("adam"), about, [weights.shape] * 3)
    for variable, value in zip(updated, found):
        variable.assign(value)
