"""The layers of layers.py in TensorFlow 1: {op: function of a word, x and the pass}."""
from __future__ import absolute_import, division, print_function

import tensorflow as tf

from ... import layers
from ...recipe import chance


def conv(word, x, at):
    stride, (vertical, horizontal) = word["stride"], word["padding"]
    padding = "SAME" if layers.keeps_size(word) else "VALID"
    if padding == "VALID" and vertical + horizontal:
        x = tf.pad(x, [[0, 0], [vertical, vertical], [horizontal, horizontal], [0, 0]])
    x = tf.nn.conv2d(x, at.get(word, "weights"), [1, stride, stride, 1], padding)
    return tf.nn.bias_add(x, at.get(word, "biases")) if len(word["arrays"]) == 2 else x


def dense(word, x, at):
    flat = tf.reshape(x, [-1, word["shape"][0]])
    return tf.matmul(flat, at.get(word, "weights")) + at.get(word, "biases")


def max_pool(word, x, at):
    size, stride, (before, after) = word["size"], word["stride"], word["padding"]
    padding = "VALID"
    if layers.hanging_over(int(x.shape[1]), size, stride) == (before, after):
        padding = "SAME"
    elif before + after:
        x = tf.pad(x, [[0, 0], [before, after], [before, after], [0, 0]], constant_values=x.dtype.min)
    return tf.nn.max_pool(x, [1, size, size, 1], [1, stride, stride, 1], padding)


def avg_pool(word, x, at):
    size, stride = word["size"], word["stride"]
    return tf.nn.avg_pool(x, [1, size, size, 1], [1, stride, stride, 1], "VALID")


def smooth(word, x, at):
    return tf.nn.avg_pool(x, [1, word["size"], word["size"], 1], [1, 1, 1, 1], "SAME")


def batch_norm(word, x, at):
    mean, variance, offset = (at.get(word, which) for which in ("mean", "variance", "offset"))
    scale = at.get(word, "scale") if word["scaled"] else tf.ones([word["channels"]])
    if not at.is_training:
        return tf.nn.batch_normalization(x, mean, variance, offset, scale, word["epsilon"])
    flat = tf.reshape(x, [-1, 1, 1, word["channels"]]) if x.shape.ndims == 2 else x
    y, batch_mean, batch_variance = tf.nn.fused_batch_norm(flat, scale, offset, epsilon=word["epsilon"])
    if x.shape.ndims == 2:
        count = tf.cast(tf.shape(x)[0], tf.float32)
        batch_variance *= (count - 1) / count
    at.moved += [(running, running - (1 - word["momentum"]) * (running - batch))
                 for running, batch in ((mean, batch_mean), (variance, batch_variance))]
    return tf.reshape(y, tf.shape(x))


def dropout(word, x, at):
    """Draw by at.drawn and by how often the session has run: a resumed training draws other numbers."""
    return tf.nn.dropout(x, 1 - word["rate"], seed=chance(word["name"], *at.drawn)) if at.is_training else x


def lstm(word, x, at):
    size, outputs, steps = word["inputs"], word["outputs"], int(x.shape[1])
    weights, states = at.get(word, "weights"), [at.get(word, "hidden"), at.get(word, "cell")]
    hidden, cell = states if at.is_training else [tf.zeros([tf.shape(x)[0], outputs])] * 2
    known = tf.matmul(tf.reshape(x, [-1, size]), weights[:size]) + at.get(word, "biases")
    known, found = tf.reshape(known, [-1, steps, 4 * outputs]), []
    for step in range(steps):
        take, forget, new, give = tf.split(known[:, step] + tf.matmul(hidden, weights[size:]), 4, axis=1)
        cell = tf.sigmoid(forget) * cell + tf.sigmoid(take) * tf.tanh(new)
        hidden = tf.sigmoid(give) * tf.tanh(cell)
        found.append(hidden)
    at.moved += zip(states, (hidden, cell)) if at.is_training else []
    return tf.stack(found, axis=1)


def pad_channels(word, x, at):
    return tf.pad(x, [[0, 0], [0, 0], [0, 0], [word["before"], word["after"]]])


LAYERS = {
    "conv": conv,
    "dense": dense,
    "relu": lambda word, x, at: tf.nn.relu(x),
    "sigmoid": lambda word, x, at: tf.sigmoid(x),
    "max_pool": max_pool,
    "avg_pool": avg_pool,
    "smooth": smooth,
    "global_avg_pool": lambda word, x, at: tf.reduce_mean(x, [1, 2]),
    "pad_channels": pad_channels,
    "lrn": lambda word, x, at: tf.nn.lrn(x, word["radius"], word["bias"], word["alpha"], word["beta"]),
    "batch_norm": batch_norm,
    "dropout": dropout,
    "residual": lambda word, x, at: layers.added(word, x, at, LAYERS),
    "concat": lambda word, x, at: tf.concat(layers.branches(word, x, at, LAYERS), axis=-1),
    "embedding": lambda word, x, at: tf.gather(at.get(word, "weights"), x),
    "lstm": lstm,
}
