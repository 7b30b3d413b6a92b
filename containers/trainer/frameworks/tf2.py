"""How TensorFlow 2 trains: one traced function a step, fed by tf.data."""
import multiprocessing

import tensorflow as tf

from .. import layers
from ..events import Stop

# Python 3 takes any folder of that name on the path for an empty package: our own containers/tensorflow has no version
if not getattr(tf, "__version__", "").startswith("2."):
    raise ImportError(f"this is for TensorFlow 2, here is {getattr(tf, '__version__', 'none')}")


class Network:
    """The contract is in frameworks/__init__.py."""

    def __init__(self, words, device, memory_fraction=None, threads=None):
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
        self.words, self.decays, self.on = words, layers.decays(words), f"/{self.device.upper()}:0"
        with tf.device(self.on):
            self.variables = {name: tf.Variable(tf.zeros(shape), name=name) for name, shape in layers.shapes(words)}
            self.average = {name: tf.Variable(tf.zeros(shape), trainable=False) for name, shape in layers.shapes(words)}
        # autograph has nothing to rewrite here, and in early releases it complains about the lambdas
        self.step = tf.function(self.descend, autograph=False)
        self.guess = tf.function(lambda images: self.forward(images, self.average), autograph=False)

    def load(self, weights, averages):
        for name, variable in self.variables.items():
            variable.assign(weights[name])
            self.average[name].assign(averages[name])

    def weights(self):
        return {name: variable.numpy() for name, variable in self.variables.items()}

    def averages(self):
        return {name: variable.numpy() for name, variable in self.average.items()}

    def batches(self, source, first, last):
        def take(step):
            images, labels = tf.numpy_function(lambda n: source(int(n)), [step], (tf.float32, tf.int32))
            side = self.words[0]["shape"][2]
            return tf.ensure_shape(images, (None, None, None, side)), tf.ensure_shape(labels, (None,))

        workers = min(4, multiprocessing.cpu_count())
        with tf.device("/CPU:0"):
            return iter(tf.data.Dataset.range(first, last).map(take, num_parallel_calls=workers).prefetch(2))

    def train(self, batch, rate, keep):
        with tf.device(self.on):
            loss = self.step(*batch, tf.constant(rate, tf.float32), tf.constant(keep, tf.float32))
        if self.device.upper() not in loss.device:
            raise Stop("no_gpu", f"TensorFlow computed on {loss.device}, not on {self.on}")
        return loss

    def descend(self, images, labels, rate, keep):
        with tf.GradientTape() as tape:
            logits = self.forward(images, self.variables)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
            for name, factor in self.decays:
                loss += factor * tf.nn.l2_loss(self.variables[name])
        names = list(self.variables)
        gradients = tape.gradient(loss, [self.variables[name] for name in names])
        for name, gradient in zip(names, gradients):
            self.variables[name].assign_sub(rate * gradient)
            self.average[name].assign_sub((1 - keep) * (self.average[name] - self.variables[name]))
        return loss

    def forward(self, x, weights):
        for word in self.words:
            x = LAYERS[word["op"]](word, x, weights)
        return x

    def logits(self, images):
        with tf.device(self.on):
            return self.guess(tf.constant(images)).numpy()

    def close(self):
        pass


def conv(word, x, weights):
    x = tf.nn.conv2d(x, weights[word["name"] + "/weights"], strides=1, padding="SAME")
    return tf.nn.bias_add(x, weights[word["name"] + "/biases"])


def dense(word, x, weights):
    flat = tf.reshape(x, (-1, word["shape"][0]))
    return tf.matmul(flat, weights[word["name"] + "/weights"]) + weights[word["name"] + "/biases"]


LAYERS = {
    "conv": conv,
    "dense": dense,
    "relu": lambda word, x, weights: tf.nn.relu(x),
    "max_pool": lambda word, x, weights: tf.nn.max_pool2d(x, word["size"], word["stride"], "SAME"),
    "lrn": lambda word, x, weights: tf.nn.lrn(x, word["radius"], word["bias"], word["alpha"], word["beta"]),
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
