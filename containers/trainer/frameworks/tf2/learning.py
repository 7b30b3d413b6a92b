"""The optimisers of recipe.py in TensorFlow 2, and how gradients are unscaled."""
import tensorflow as tf


def unscaled(scale, gradients):
    """Return the unscaled gradients, and whether all of them are finite."""
    gradients = [gradient / scale for gradient in gradients]
    return gradients, tf.math.is_finite(tf.linalg.global_norm(gradients))


def sgd(words, weights, slots, rate, gradient):
    weights.assign_sub(rate * gradient)


def momentum(words, weights, slots, rate, gradient):
    tf.raw_ops.ResourceApplyMomentum(var=weights.handle, accum=slots[0], lr=rate, grad=gradient,
                                     momentum=words["share"])


def adam(words, weights, slots, rate, gradient):
    # its own bias correction by the powers of b1 and b2 is disabled, because the rate includes it already
    tf.raw_ops.ResourceApplyAdam(
        var=weights.handle, m=slots[0], v=slots[1], beta1_power=0.0, beta2_power=0.0, lr=rate, beta1=words["b1"],
        beta2=words["b2"], epsilon=words["epsilon"], grad=gradient)


OPTIMISERS = {"sgd": sgd, "momentum": momentum, "adam": adam}
