"""How TensorFlow 1.4 to 1.15 trains, on Python 2.7 and 3: a graph, a session, variables on the CPU.

As in the tutorial, the variables stay in the CPU's memory when a GPU computes: their transfer is part of its times.
"""
from __future__ import absolute_import, division, print_function

import collections

import tensorflow as tf

from .. import layers, nvml
from ..ahead import ahead
from ..events import Stop

if not getattr(tf, "__version__", "").startswith("1."):
    raise ImportError("this is for TensorFlow 1, here is %s" % getattr(tf, "__version__", "none"))


class Network(object):
    """The contract is in frameworks/__init__.py."""

    def __init__(self, words, device, memory_fraction=None, threads=None):
        self.version, self.words = tf.__version__, words
        self.graph = tf.Graph()
        config = tf.ConfigProto()  # no soft placement: an operation without a GPU kernel fails, it does not move
        if device == "cpu":
            config.device_count["GPU"] = 0
        if threads:  # as Shi et al. counted theirs, https://github.com/hclhkbu/dlbench
            config.intra_op_parallelism_threads = threads
        if memory_fraction:
            config.gpu_options.per_process_gpu_memory_fraction = memory_fraction
        self.session = tf.Session(graph=self.graph, config=config)
        gpus = [found.name for found in self.session.list_devices() if found.device_type == "GPU"]
        if device == "gpu" and not gpus:
            raise Stop("no_gpu", "TensorFlow %s sees no GPU" % tf.__version__)
        self.device = "gpu" if gpus and device != "cpu" else "cpu"
        self.devices = named(gpus) if self.device == "gpu" else []
        with self.graph.as_default():
            self.build()

    def build(self):
        side = self.words[0]["shape"][2]
        self.images, self.labels = tf.placeholder(tf.float32, [None, 24, 24, side]), tf.placeholder(tf.int32, [None])
        self.rate, self.keep = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
        with tf.device("/cpu:0"):
            self.variables = self.make(True)
            self.average = self.make(False)
        with tf.device("/gpu:0" if self.device == "gpu" else "/cpu:0"):
            logits = self.forward(self.images, self.variables)
            self.guess = self.forward(self.images, self.average)
            entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=self.labels, logits=logits)
            self.loss = tf.reduce_mean(entropy)
            for name, factor in layers.decays(self.words):
                self.loss += factor * tf.nn.l2_loss(self.variables[name])
        self.step = self.descend()

    def make(self, trainable):
        return collections.OrderedDict(
            (name, tf.Variable(tf.zeros(shape), trainable=trainable)) for name, shape in layers.shapes(self.words))

    def descend(self):
        """Give the operation that moves the weights, and then the averages."""
        variables = list(self.variables.values())
        gradients = tf.gradients(self.loss, variables)
        with tf.device("/cpu:0"):
            with tf.control_dependencies(gradients + [self.loss]):  # the loss of the weights before they move
                moved = [tf.assign_sub(variable, self.rate * gradient)
                         for variable, gradient in zip(variables, gradients)]
            with tf.control_dependencies(moved):
                return tf.group(*[tf.assign_sub(average, (1 - self.keep) * (average - variable.read_value()))
                                  for average, variable in zip(self.average.values(), variables)])

    def forward(self, x, weights):
        for word in self.words:
            x = LAYERS[word["op"]](word, x, weights)
        return x

    def load(self, weights, averages):
        for name in self.variables:
            self.variables[name].load(weights[name], self.session)
            self.average[name].load(averages[name], self.session)

    def weights(self):
        return self.session.run(dict(self.variables))

    def averages(self):
        return self.session.run(dict(self.average))

    def batches(self, source, first, last):
        return ahead(source, first, last)

    def train(self, batch, rate, keep):
        images, labels = batch
        values = {self.images: images, self.labels: labels, self.rate: rate, self.keep: keep}
        return self.session.run([self.loss, self.step], values)[0]

    def logits(self, images):
        return self.session.run(self.guess, {self.images: images})

    def close(self):
        self.session.close()


def named(gpus):
    """Give the first GPU's name: the driver's where there is one card, else TensorFlow's, which counts as it likes."""
    cards = [card["name"] for card in nvml.read()]
    return cards if len(cards) == 1 and cards[0] else gpus[:1]


def conv(word, x, weights):
    x = tf.nn.conv2d(x, weights[word["name"] + "/weights"], [1, 1, 1, 1], "SAME")
    return tf.nn.bias_add(x, weights[word["name"] + "/biases"])


def dense(word, x, weights):
    flat = tf.reshape(x, [-1, word["shape"][0]])
    return tf.matmul(flat, weights[word["name"] + "/weights"]) + weights[word["name"] + "/biases"]


def max_pool(word, x, weights):
    size, stride = word["size"], word["stride"]
    return tf.nn.max_pool(x, [1, size, size, 1], [1, stride, stride, 1], "SAME")


LAYERS = {
    "conv": conv,
    "dense": dense,
    "relu": lambda word, x, weights: tf.nn.relu(x),
    "max_pool": max_pool,
    "lrn": lambda word, x, weights: tf.nn.lrn(x, word["radius"], word["bias"], word["alpha"], word["beta"]),
}
