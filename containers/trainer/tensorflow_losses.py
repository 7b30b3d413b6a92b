"""The losses of recipe.py, in operations that TensorFlow 1 and 2 share."""
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


LOSSES = {"softmax": softmax_loss, "sigmoid": sigmoid_loss, "distill": distill_loss}
