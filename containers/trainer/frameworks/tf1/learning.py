"""The optimisers of recipe.py in TensorFlow 1: each returns the operations that update a weight."""
from __future__ import absolute_import, division, print_function

import tensorflow as tf


def sgd(words, weights, slots, rate, gradient):
    return [tf.assign_sub(weights, rate * gradient)]


def momentum(words, weights, slots, rate, gradient):
    velocity = tf.assign(slots[0], words["share"] * slots[0] + gradient)
    return [tf.assign_sub(weights, rate * velocity)]


def adam(words, weights, slots, rate, gradient):
    first = tf.assign(slots[0], words["b1"] * slots[0] + (1 - words["b1"]) * gradient)
    second = tf.assign(slots[1], words["b2"] * slots[1] + (1 - words["b2"]) * tf.square(gradient))
    return [tf.assign_sub(weights, rate * first / (tf.sqrt(second) + words["epsilon"]))]


OPTIMISERS = {"sgd": sgd, "momentum": momentum, "adam": adam}
