"""The layers of layers.py in TensorFlow 2: {op: function of a word, x and the pass}."""
import binascii

import tensorflow as tf

from ... import layers
from . import spectral, tiled


DRAWS_BITS = hasattr(tf.raw_ops, "StatelessRandomUniformFullInt")  # integers of the whole range


def conv(word, x, at):
    vertical, horizontal = word["padding"]
    padding = [[0, 0], [vertical, vertical], [horizontal, horizontal], [0, 0]]
    if vertical == horizontal == 0:
        padding = "VALID"
    elif layers.keeps_size(word):
        padding = "SAME"
    weights, biases = at.get(word, "weights"), at.get(word, "biases") if len(word["arrays"]) == 2 else None
    if tiled.can_pool(word, x, weights, at):
        return tiled.pooled(word, x, weights, biases, at.library)
    is_spectral = spectral.can_be(word, x, weights, at)
    is_tiled = not is_spectral and tiled.can_be(word, x, weights, at)
    if "relued" in word and not is_tiled:
        x = tf.nn.relu(x)
    if is_spectral:
        x, biases = spectral.conv(word, x, weights, biases, at.library), None
    elif is_tiled:
        x, biases = tiled.conv(word, x, weights, biases, at.library), None
    else:
        x = tf.nn.conv2d(tf.cast(x, weights.dtype), weights, strides=word["stride"], padding=padding)
    x = x if biases is None else tf.nn.bias_add(x, biases)
    return layers.through(word.get("pooled", ()), x, at, LAYERS)


def dense(word, x, at):
    weights = at.get(word, "weights")
    return tf.matmul(tf.cast(tf.reshape(x, (-1, word["shape"][0])), weights.dtype), weights) + at.get(word, "biases")


def max_pool(word, x, at):
    before, after = word["padding"]
    if layers.hanging_over(x.shape[1], word["size"], word["stride"]) == (before, after):
        return tf.nn.max_pool2d(x, word["size"], word["stride"], "SAME")
    if before or after:
        x = tf.pad(x, [[0, 0], [before, after], [before, after], [0, 0]], constant_values=x.dtype.min)
    return tf.nn.max_pool2d(x, word["size"], word["stride"], "VALID")


def lrn(word, x, at):
    """Compute in float32: 16 bits lose what the sum adds to the bias, and GPUs have no kernel for them. Without a GPU,
    avoid TensorFlow's own layer, which is slow there."""
    if tiled.can_normalise(word, x, at):
        return tiled.normalised(word, x, at.library)
    single = tf.cast(x, tf.float32)
    if tf.config.experimental.list_physical_devices("GPU"):
        y = tf.nn.lrn(single, word["radius"], word["bias"], word["alpha"], word["beta"])
    else:
        y = tf.reshape(normalised(word, tf.reshape(single, (-1, x.shape[-1]))), tf.shape(x))
    return tf.cast(y, x.dtype)


def normalised(word, x):
    """Return x [n, channels] / (bias + x * x times a symmetric band) ** beta, with its backward pass written out."""
    places, bias, beta = tf.range(x.shape[1]), word["bias"], word["beta"]
    band = tf.cast(tf.abs(places[:, None] - places) <= word["radius"], tf.float32) * word["alpha"]

    @tf.custom_gradient
    def divided(x):
        scale = tf.matmul(x * x, band) + bias
        root = tf.math.rsqrt(scale)
        power = root * tf.sqrt(root) if beta == 0.75 else scale ** -beta  # a power takes as long as several roots

        def back(gradient):
            own = gradient * power
            return own + x * tf.matmul(own * x / scale, -2 * beta * band)

        return x * power, back

    return divided(x)


def batch_norm(word, x, at):
    flat = x[:, None, None, :] if len(x.shape) == 2 else x
    mean, variance = at.get(word, "mean"), at.get(word, "variance")
    scale = at.get(word, "scale") if word["scaled"] else tf.ones((word["channels"],))
    said = {"scale": scale, "offset": at.get(word, "offset"), "epsilon": word["epsilon"]}
    if not at.is_training:
        y = tf.raw_ops.FusedBatchNormV3(x=flat, mean=mean, variance=variance, is_training=False, **said)[0]
    else:
        y, *found = tf.raw_ops.FusedBatchNormV3(x=flat, mean=[], variance=[], is_training=True, **said)[:3]
        if len(x.shape) == 2:
            count = tf.cast(tf.shape(x)[0], tf.float32)
            found[1] *= (count - 1) / count
        for running, batch in zip((mean, variance), found):
            running.assign_sub((1 - word["momentum"]) * (running - batch))
    return tf.reshape(y, tf.shape(x))


def dropout(word, x, at):
    """On a CPU draw 16 bits per value instead of 32, as in ../pytorch/ops.py: half the work."""
    if not at.is_training:
        return x
    own = binascii.crc32(word["name"].encode()) & 0x7FFFFFFF  # each layer draws from its own stream
    key, rate = tf.stack([tf.bitwise.bitwise_xor(at.key[0], own), at.key[1]]), word["rate"]
    if tf.config.experimental.list_physical_devices("GPU") or not DRAWS_BITS:
        kept = tf.random.stateless_uniform(tf.shape(x), key) >= rate
    else:
        count = tf.size(x)
        pairs = tf.random.stateless_uniform([(count + 1) // 2], key, minval=None, maxval=None, dtype=tf.int32)
        drawn = tf.reshape(tf.bitcast(pairs, tf.int16), [-1])[:count]
        kept = tf.reshape(drawn >= round(rate * 2**16) - 2**15, tf.shape(x))
    return x * (tf.cast(kept, x.dtype) * (1 / (1 - rate)))


def lstm(word, x, at):
    size, steps = word["inputs"], x.shape[1]
    weights, states = at.get(word, "weights"), [at.get(word, "hidden"), at.get(word, "cell")]
    hidden, cell = states if at.is_training else [tf.zeros((tf.shape(x)[0], word["outputs"]))] * 2
    x = tf.cast(tf.reshape(x, (-1, size)), weights.dtype)
    known = tf.reshape(tf.matmul(x, weights[:size]) + at.get(word, "biases"), (-1, steps, 4 * word["outputs"]))
    found = []
    for step in range(steps):
        gates = known[:, step] + tf.matmul(tf.cast(hidden, weights.dtype), weights[size:])
        take, forget, new, give = tf.split(tf.cast(gates, tf.float32), 4, axis=1)
        cell = tf.sigmoid(forget) * cell + tf.sigmoid(take) * tf.tanh(new)
        hidden = tf.sigmoid(give) * tf.tanh(cell)
        found.append(hidden)
    if at.is_training:
        for state, value in zip(states, (hidden, cell)):
            state.assign(value)
    return tf.stack(found, axis=1)


def pad_channels(word, x, at):
    return tf.pad(x, [[0, 0], [0, 0], [0, 0], [word["before"], word["after"]]])


LAYERS = {
    "conv": conv,
    "dense": dense,
    "relu": lambda word, x, at: tf.nn.relu(x),
    "sigmoid": lambda word, x, at: tf.sigmoid(x),
    "max_pool": max_pool,
    "avg_pool": lambda word, x, at: tf.nn.avg_pool2d(x, word["size"], word["stride"], "VALID"),
    "smooth": lambda word, x, at: tf.nn.avg_pool2d(x, word["size"], 1, "SAME"),
    "global_avg_pool": lambda word, x, at: tf.reduce_mean(x, [1, 2]),
    "pad_channels": pad_channels,
    "lrn": lrn,
    "batch_norm": batch_norm,
    "dropout": dropout,
    "residual": lambda word, x, at: layers.added(word, x, at, LAYERS),
    "concat": lambda word, x, at: tf.concat(layers.branches(word, x, at, LAYERS), axis=-1),
    "embedding": lambda word, x, at: tf.gather(at.get(word, "weights"), x),
    "lstm": lstm,
}
