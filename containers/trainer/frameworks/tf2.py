"""How TensorFlow 2 trains: one traced function a step, fed by tf.data."""
import binascii
import multiprocessing

import tensorflow as tf

from .. import layers
from ..events import Stop

# Python 3 takes any folder of that name on the path for an empty package: our own containers/tensorflow has no version
if not getattr(tf, "__version__", "").startswith("2."):
    raise ImportError(f"this is for TensorFlow 2, here is {getattr(tf, '__version__', 'none')}")


class Network:
    """The contract is in frameworks/__init__.py."""

    def __init__(self, model, device, memory_fraction=None, threads=None):
        if threads:  # before anything else wakes the runtime, which never changes them
            tf.config.threading.set_intra_op_parallelism_threads(threads)
        gpus = tf.config.experimental.list_physical_devices("GPU")
        if device == "gpu" and not gpus:
            raise Stop("no_gpu", f"TensorFlow {tf.__version__} sees no GPU")
        self.version = tf.__version__
        self.device = "gpu" if gpus and device != "cpu" else "cpu"
        self.devices = name(gpus[:1]) if self.device == "gpu" else []
        if self.device == "gpu" and memory_fraction:
            limit(gpus[0], memory_fraction)
        self.model, self.on = model, f"/{self.device.upper()}:0"
        with tf.device(self.on):
            self.kept = {name: tf.Variable(tf.zeros(shape), trainable=name in model.weights, name=name)
                         for name, shape in model.kept().items()}
        # autograph has nothing to rewrite here, and in early releases it complains about the lambdas
        self.step = tf.function(self.descend, autograph=False)
        self.guess = tf.function(lambda examples: self.forward(examples, Testing(self.kept, model)), autograph=False)

    def load(self, values):
        for name, variable in self.kept.items():
            variable.assign(values[name])

    def values(self):
        return {name: variable.numpy() for name, variable in self.kept.items()}

    def batches(self, source, first, last):
        kind = tf.int32 if self.model.tokens else tf.float32

        def take(step):
            examples, labels = tf.numpy_function(lambda n: source(int(n)), [step], (kind, tf.int32))
            return (tf.ensure_shape(examples, (None, *self.model.shape)),
                    tf.ensure_shape(labels, (None, *self.model.labels)))

        workers = min(4, multiprocessing.cpu_count())
        with tf.device("/CPU:0"):
            return iter(tf.data.Dataset.range(first, last).map(take, num_parallel_calls=workers).prefetch(2))

    def train(self, batch, turn):
        key = [turn.seed & 0x7FFFFFFF, turn.step & 0x7FFFFFFF]
        with tf.device(self.on):
            loss, right = self.step(*batch, tf.constant(turn.rate, tf.float32),
                                    tf.constant(1.0 if turn.keep is None else turn.keep, tf.float32), tf.constant(key))
        if self.device.upper() not in loss.device:
            raise Stop("no_gpu", f"TensorFlow computed on {loss.device}, not on {self.on}")
        return loss, right

    def descend(self, examples, labels, rate, keep, key):
        model, weights = self.model, [self.kept[name] for name in self.model.weights]
        with tf.GradientTape() as tape:
            logits = self.forward(examples, Training(self.kept, key))
            loss = LOSSES[model.loss](logits, tf.reshape(labels, [-1]))
            if model.labels:
                loss *= model.labels[0]  # of a sequence the mean over all its labels is not yet the sum
            for name, factor in model.decays:
                loss += factor * tf.nn.l2_loss(self.kept[name])
        gradients = tape.gradient(loss, weights)
        if model.clip:
            gradients, _ = tf.clip_by_global_norm(gradients, model.clip)
        for name, gradient in zip(model.weights, gradients):
            slots = [self.kept[f"{slot}/{name}"].handle for slot in model.slots]
            gradient = tf.convert_to_tensor(gradient)  # an embedding's are rows with their numbers
            OPTIMISERS[model.optimiser["op"]](model.optimiser, self.kept[name], slots, rate, gradient)
            if model.averaged:
                average = self.kept["average/" + name]
                average.assign_sub((1 - keep) * (average - self.kept[name]))
        return loss, right(model, logits, labels) if model.counted else None

    def forward(self, x, at):
        return layers.through(self.model.words, x, at, LAYERS)

    def logits(self, examples):
        with tf.device(self.on):
            return self.guess(tf.constant(examples)).numpy()

    def close(self):
        pass


class Training:
    """One pass forward that learns: a key for what it draws, and running values that it moves."""

    is_training = True

    def __init__(self, kept, key):
        self.kept, self.key = kept, key

    def get(self, word, which):
        return self.kept[f"{word['name']}/{which}"]


class Testing:
    """One pass forward that changes nothing, with the moving averages of the weights where there are."""

    is_training = False

    def __init__(self, kept, model):
        self.kept, self.averaged = kept, model.averaged

    def get(self, word, which):
        name = f"{word['name']}/{which}"
        return self.kept.get("average/" + name, self.kept[name])


def softmax_loss(logits, labels):
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))


def sigmoid_loss(logits, labels):
    labels = tf.cast(labels, tf.float32)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits[:, 0]))


LOSSES = {"softmax": softmax_loss, "sigmoid": sigmoid_loss}


def right(model, logits, labels):
    guesses = tf.argmax(logits, 1, tf.int32) if model.loss == "softmax" else tf.cast(logits[:, 0] > 0, tf.int32)
    return tf.reduce_sum(tf.cast(guesses == tf.reshape(labels, [-1]), tf.int32))


def sgd(words, weights, slots, rate, gradient):
    weights.assign_sub(rate * gradient)


def momentum(words, weights, slots, rate, gradient):
    tf.raw_ops.ResourceApplyMomentum(var=weights.handle, accum=slots[0], lr=rate, grad=gradient,
                                     momentum=words["share"])


def adam(words, weights, slots, rate, gradient):
    # its own correction by the powers of b1 and b2 is left out, for the rate has it already
    tf.raw_ops.ResourceApplyAdam(
        var=weights.handle, m=slots[0], v=slots[1], beta1_power=0.0, beta2_power=0.0, lr=rate, beta1=words["b1"],
        beta2=words["b2"], epsilon=words["epsilon"], grad=gradient)


OPTIMISERS = {"sgd": sgd, "momentum": momentum, "adam": adam}


def conv(word, x, at):
    size, (before, after) = word["shape"][0], word["padding"]
    padding = [[0, 0], [before, after], [before, after], [0, 0]]
    if before == after == 0:
        padding = "VALID"
    elif word["stride"] == 1 and before == after == size // 2:
        padding = "SAME"
    x = tf.nn.conv2d(x, at.get(word, "weights"), strides=word["stride"], padding=padding)
    return tf.nn.bias_add(x, at.get(word, "biases")) if len(word["arrays"]) == 2 else x


def dense(word, x, at):
    return tf.matmul(tf.reshape(x, (-1, word["shape"][0])), at.get(word, "weights")) + at.get(word, "biases")


def max_pool(word, x, at):
    before, after = word["padding"]
    if layers.hanging_over(x.shape[1], word["size"], word["stride"]) == (before, after):
        return tf.nn.max_pool2d(x, word["size"], word["stride"], "SAME")
    if before or after:
        x = tf.pad(x, [[0, 0], [before, after], [before, after], [0, 0]], constant_values=x.dtype.min)
    return tf.nn.max_pool2d(x, word["size"], word["stride"], "VALID")


def batch_norm(word, x, at):
    flat = x[:, None, None, :] if len(x.shape) == 2 else x
    mean, variance = at.get(word, "mean"), at.get(word, "variance")
    said = {"scale": at.get(word, "scale"), "offset": at.get(word, "offset"), "epsilon": word["epsilon"]}
    if not at.is_training:
        y = tf.raw_ops.FusedBatchNormV3(x=flat, mean=mean, variance=variance, is_training=False, **said)[0]
    else:
        y, *found = tf.raw_ops.FusedBatchNormV3(x=flat, mean=[], variance=[], is_training=True, **said)[:3]
        for running, batch in zip((mean, variance), found):
            running.assign_sub((1 - word["momentum"]) * (running - batch))
    return tf.reshape(y, tf.shape(x))


def dropout(word, x, at):
    if not at.is_training:
        return x
    own = binascii.crc32(word["name"].encode()) & 0x7FFFFFFF  # each layer draws from a stream of its own
    drawn = tf.random.stateless_uniform(tf.shape(x), tf.stack([tf.bitwise.bitwise_xor(at.key[0], own), at.key[1]]))
    return x * tf.cast(drawn >= word["rate"], x.dtype) / (1 - word["rate"])


def residual(word, x, at):
    return layers.through(word["body"], x, at, LAYERS) + layers.through(word["shortcut"], x, at, LAYERS)


def lstm(word, x, at):
    size, steps = word["inputs"], x.shape[1]
    weights, states = at.get(word, "weights"), [at.get(word, "hidden"), at.get(word, "cell")]
    hidden, cell = states if at.is_training else [tf.zeros((tf.shape(x)[0], word["outputs"]))] * 2
    known = tf.reshape(tf.matmul(tf.reshape(x, (-1, size)), weights[:size]) + at.get(word, "biases"),
                       (-1, steps, 4 * word["outputs"]))
    found = []
    for step in range(steps):
        take, forget, new, give = tf.split(known[:, step] + tf.matmul(hidden, weights[size:]), 4, axis=1)
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
    "global_avg_pool": lambda word, x, at: tf.reduce_mean(x, [1, 2]),
    "pad_channels": pad_channels,
    "lrn": lambda word, x, at: tf.nn.lrn(x, word["radius"], word["bias"], word["alpha"], word["beta"]),
    "batch_norm": batch_norm,
    "dropout": dropout,
    "residual": residual,
    "embedding": lambda word, x, at: tf.gather(at.get(word, "weights"), x),
    "lstm": lstm,
}


def name(gpus):
    """Give the card's name where this TensorFlow (2.3 and later) tells it, else the device's."""
    details = getattr(tf.config.experimental, "get_device_details", lambda gpu: {})
    return [details(gpu).get("device_name", gpu.name) for gpu in gpus]


def limit(gpu, fraction):
    from .. import nvml
    readings = nvml.read()
    if not readings or not readings[0]["memory_total_bytes"]:
        raise Stop("bad_argument", "--gpu-memory-fraction needs the size of the GPU's memory, which NVML does not tell")
    megabytes = int(readings[0]["memory_total_bytes"] * fraction / 2**20)
    tf.config.experimental.set_virtual_device_configuration(
        gpu, [tf.config.experimental.VirtualDeviceConfiguration(memory_limit=megabytes)])
