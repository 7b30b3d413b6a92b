"""The smoke test's product in TensorFlow 2, and what its memory limit refuses."""
import tensorflow as tf


def multiply(network, a, b):
    """Return the product as numpy, which waits for the device, and its device. By default TensorFlow would move an
    operation to another device silently."""
    tf.config.set_soft_device_placement(False)
    with tf.device(network.on):
        product = tf.matmul(tf.constant(a), tf.constant(b))
    return product.numpy(), product.device


def refuses(network, count):
    """Return whether TensorFlow refuses to allocate this many bytes on the card; in rows, as a tensor's side has a
    limit."""
    row = 1 << 20
    try:
        with tf.device(network.on):
            tf.fill((count // row, row // 4), 1.0)
    except tf.errors.ResourceExhaustedError:
        return True
    return False
