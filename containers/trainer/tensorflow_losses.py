"""The losses of recipe.py, and how right guesses are counted, in operations that TensorFlow 1 and 2 share."""
from __future__ import absolute_import, division, print_function

import tensorflow as tf

from .recipe import SHARE, TEMPERATURE


def softmax_loss(logits, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def sigmoid_loss(logits, labels):
    labels = tf.cast(labels, tf.float32)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits[:, 0]))


def distill_loss(logits, labels, answers):
    wanted = tf.nn.log_softmax(answers / TEMPERATURE)
    apart = tf.exp(wanted) * (wanted - tf.nn.log_softmax(logits / TEMPERATURE))
    soft = TEMPERATURE ** 2 * tf.reduce_mean(tf.reduce_sum(apart, 1))
    return SHARE * softmax_loss(logits, labels) + (1 - SHARE) * soft


def right(model, logits, labels):
    """Return how many guesses are right. Compare int64 and add up floats (exact to 2**24): with int32 a step on a GPU
    would wait, because TensorFlow compares and adds those on the host."""
    guesses = tf.argmax(logits, 1) if model.loss != "sigmoid" else tf.cast(logits[:, 0] > 0, tf.int64)
    return tf.reduce_sum(tf.cast(tf.equal(guesses, tf.cast(tf.reshape(labels, [-1]), tf.int64)), tf.float32))


LOSSES = {"softmax": softmax_loss, "sigmoid": sigmoid_loss, "distill": distill_loss}
