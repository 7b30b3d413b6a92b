"""A convolution as a product of spectra (trainer/spectra.py) in TensorFlow 2, with its backward pass."""
import tensorflow as tf

from ... import layers, spectra


def can_be(word, x, weights):
    """Return whether spectra would be faster. With a GPU cuDNN chooses by itself, and 16 bits are too few for a
    spectrum."""
    return (None not in x.shape and x.dtype == weights.dtype == tf.float32
            and not tf.config.experimental.list_physical_devices("GPU") and spectra.pays(word, *x.shape[:3]))


def conv(word, x, weights):
    """x [n, height, width, inputs], weights [..., inputs, outputs]. A spectrum is a pair of its real and its imaginary
    parts, each [frequencies, ..., channels]."""
    sides = x.shape[1:3]
    count, into, taps, out = spectra.tables(word, *sides)
    into, taps, out = ((table[:count], table[count:]) for table in (into, taps, out))

    @tf.custom_gradient
    def convolved(x, weights):
        spectrum, windows = spectral(into, tf.transpose(x, (1, 2, 0, 3))), spectral(taps, weights)

        def back(gradient):
            pull = spectral(out, tf.transpose(gradient, (1, 2, 0, 3)))
            moved = spatial(taps, times(spectrum, pull, True, transpose_a=True), word["shape"][:2])
            pulled = spatial(into, times(pull, windows, False, transpose_b=True), sides)
            return tf.transpose(pulled, (2, 0, 1, 3)), moved

        found = spatial(out, times(spectrum, windows, True), layers.sides_after(word, sides))
        return tf.transpose(found, (2, 0, 1, 3)), back

    return convolved(x, weights)


def spectral(tables, array):
    """Return the spectrum of [height, width, a, b]."""
    a, b = array.shape[2:]
    flat = tf.reshape(array, (-1, a * b))
    return [tf.reshape(tf.matmul(table, flat), (-1, a, b)) for table in tables]


def spatial(tables, spectrum, sides):
    """Return [height, width, a, b] of a spectrum."""
    a, b = spectrum[0].shape[1:]
    found = [tf.matmul(table, tf.reshape(part, (-1, a * b)), transpose_a=True) for table, part in zip(tables, spectrum)]
    return tf.reshape(found[0] + found[1], (*sides, a, b))


def times(a, b, is_conjugate, **turned):
    """Return a times b, or b's complex conjugate."""
    one, two, three, four = (tf.matmul(a[k], b[m], **turned) for k, m in ((0, 0), (1, 1), (1, 0), (0, 1)))
    return [one + two, three - four] if is_conjugate else [one - two, three + four]
