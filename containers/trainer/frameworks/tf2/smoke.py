"""The smoke test's product in TensorFlow 2, and what its memory limit refuses."""
import tensorflow as tf


def multiply(network, a, b):
    """Give the product as numpy, which waits for the device, and where it lay: by default it would move in silence."""
    tf.config.set_soft_device_placement(False)
    with tf.device(network.on):
        product = tf.matmul(tf.constant(a), tf.constant(b))
    return product.numpy(), product.device


def refuses(network, count):
    """Try to take so many bytes of the card, in rows, for one side of a tensor has its limits."""
    row = 1 << 20
    try:
        with tf.device(network.on):
            tf.fill((count // row, row // 4), 1.0)
    except tf.errors.ResourceExhaustedError:
        return True
    return False
