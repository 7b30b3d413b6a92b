"""A convolution as a product of spectra (trainer/spectra.py) in TensorFlow 2, with its backward pass."""
import tensorflow as tf

from ... import kernels, spectra
from . import tiled


def can_be(word, x, weights, at):
    """Return whether spectra would be faster, and can be had here."""
    return tiled.is_plain(x, weights, at) and spectra.pays(word, *x.shape[:3])


def conv(word, x, weights, biases, library):
    """x [n, height, width, inputs], weights [..., inputs, outputs]; biases [outputs], or None."""
    call = tiled.calling(word, x, library, kernels.shaped_spectra)

    @tf.custom_gradient
    def convolved(x, weights, *biases):
        def back(gradient):
            found = call("spectral_gradients", [x, weights, gradient], x.shape, weights.shape, weights.shape[3:])
            return found[:2 + len(biases)]

        return call("spectral", [x, weights, *biases], tiled.after(word, x))[0], back

    return convolved(x, *tiled.given(weights, biases))
