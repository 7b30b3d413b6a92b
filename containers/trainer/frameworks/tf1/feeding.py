"""How batches reach the device in TensorFlow 1, for each of feed.py's feeds: generators of what Network's train()
and infer() take.

A batch is what is fed to Network.inputs; its last part is as long as the batch.
"""
from __future__ import absolute_import, division, print_function

import numpy as np
import tensorflow as tf

from ... import feed
from ...ahead import ahead, upto


def made_ahead(network, source, first, last):
    return ahead(source, first, last)


def plain(network, source, first, last):
    return (source(step) for step in upto(first, last))


def resident(network, source, first, last):
    """Gather on the device; the row indices are fed with each step, as the learning rate is."""
    held = feed.held(source)
    with network.graph.as_default(), tf.device(network.on):
        chosen = tf.placeholder(tf.int64, [None])
        examples = tf.gather(put(network, held.examples), chosen)
        labels = tf.gather(put(network, held.labels), chosen)
        if held.divisor:
            examples /= held.divisor
        labels = tf.cast(labels, tf.int32)
    network.feed_from((chosen,), examples, labels)
    return ((rows,) for rows in feed.chosen(source, first, last, np.asarray))


def constant(network, source, first, last):
    examples, labels = source(first)
    with network.graph.as_default(), tf.device(network.on):
        on_device = tf.cast(put(network, examples), tf.int32 if network.model.tokens else tf.float32)
        wanted = tf.cast(put(network, labels), tf.int32)
    network.feed_from((), on_device, wanted)
    return ((labels,) for _ in upto(first, last))


def put(network, array):
    """Copy an array to the device, as floats: neither bytes nor int32 can be gathered on a GPU here
    (https://github.com/tensorflow/tensorflow/issues/5445), and all values are small enough to be exact."""
    start = tf.placeholder(tf.float32, array.shape)
    variable = tf.Variable(start, trainable=False, collections=[])
    network.session.run(variable.initializer, {start: array})
    return variable


FEEDS = {"ahead": made_ahead, "plain": plain, "resident": resident, "constant": constant, "input": made_ahead}
