"""The smoke test's product in TensorFlow 1, and what its memory limit refuses.

As in the article's test there is no soft placement: an operation that the device can't do fails instead of moving.
"""
from __future__ import absolute_import, division, print_function

import tensorflow as tf


def multiply(network, a, b):
    """Return the product as numpy, and the device on which TensorFlow placed it."""
    told = tf.RunMetadata()
    with network.graph.as_default(), tf.device("/device:%s:0" % network.device.upper()):
        left, right = (tf.placeholder(tf.float32, value.shape) for value in (a, b))  # constants would be folded away
        product = tf.matmul(left, right)
    values = {left: a, right: b}
    found = network.session.run(product, values, tf.RunOptions(output_partition_graphs=True), told)
    (place,) = {node.device for graph in told.partition_graphs for node in graph.node if node.name == product.op.name}
    return found, place


def refuses(network, count):
    """Return whether TensorFlow refuses to allocate this many bytes on the card; in rows, as a tensor's side has a
    limit."""
    row = 1 << 20
    with network.graph.as_default(), tf.device("/device:%s:0" % network.device.upper()):
        sides = tf.placeholder(tf.int32, [2])
        total = tf.reduce_sum(tf.fill(sides, 1.0))
    try:
        network.session.run(total, {sides: [count // row, row // 4]})
    except tf.errors.ResourceExhaustedError:
        return True
    return False
