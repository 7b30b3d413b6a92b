"""How TensorFlow 1.4 to 1.15 trains, on Python 2.7 and 3: a graph and a session.

Where the workload says so, as the tutorial does, the variables stay in the CPU's memory when a GPU computes: their
transfer is part of its times.
"""
from __future__ import absolute_import, division, print_function

import collections

import tensorflow as tf

from ... import computing, layers, nvml
from ...events import Stop
from .feeding import FEEDS
from .learning import LOSSES, OPTIMISERS
from .ops import LAYERS

if not getattr(tf, "__version__", "").startswith("1."):
    raise ImportError("this is for TensorFlow 1, here is %s" % getattr(tf, "__version__", "none"))


class Network(object):
    """The contract is in frameworks/__init__.py."""

    label_bytes = 4

    def __init__(self, model, device, memory_fraction=None, threads=None, way=computing.PLAIN):
        self.version, self.model = tf.__version__, model
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
        self.on, self.inputs = "/%s:0" % self.device, None
        self.home = "/cpu:0" if model.variables == "cpu" else self.on
        self.precision, self.compiled = numbers(way, self.device), False
        self.channels_last = computing.layout(
            way.channels_last, model, "with TensorFlow %s this computes channels last alone" % tf.__version__)
        if model.words:  # the smoke test has none
            with self.graph.as_default():
                self.build()

    def build(self):
        """Build what is kept and what a test computes; the rest is built for the way it is fed (feed_from)."""
        model = self.model
        self.examples = tf.placeholder(tf.int32 if model.tokens else tf.float32, (None,) + model.shape)
        self.labels = tf.placeholder(tf.int32, (None,) + model.labels)
        self.answered = tf.placeholder(tf.float32, (None, None))
        self.rate, self.keep = tf.placeholder(tf.float32, []), tf.placeholder(tf.float32, [])
        with tf.device(self.home):
            self.kept = collections.OrderedDict(
                (name, tf.Variable(tf.zeros(shape), trainable=name in model.weights))
                for name, shape in model.kept().items())
        with tf.device(self.on):
            self.guess = self.forward(self.examples, Pass(self.kept, False))

    def feed_from(self, inputs, examples, labels):
        """Build what is computed of these tensors; inputs are the placeholders behind them, which a batch is fed to."""
        self.inputs = inputs + ((self.answered,) if self.model.loss == "distill" else ())
        with self.graph.as_default(), tf.device(self.on):
            if self.model.trains:
                self.learn(examples, labels)
            else:
                self.outcome = self.forward(examples, Pass(self.kept, False))

    def learn(self, examples, labels):
        """Build the loss, what was guessed right, and the step."""
        model, learning = self.model, Pass(self.kept, True)
        logits = self.forward(examples, learning)
        labels = tf.reshape(labels, [-1])
        self.loss = LOSSES[model.loss](*[logits, labels] + ([self.answered] if model.loss == "distill" else []))
        if model.labels:
            self.loss *= model.labels[0]  # of a sequence the mean over all its labels is not yet the sum
        for name, factor in model.decays:
            self.loss += factor * tf.nn.l2_loss(self.kept[name])
        self.right = tf.constant(0)
        if model.counted:
            guesses = tf.argmax(logits, 1) if model.loss != "sigmoid" else logits[:, 0] > 0
            self.right = tf.reduce_sum(tf.cast(tf.equal(tf.cast(guesses, tf.int32), labels), tf.int32))
        self.step = self.descend(learning.moved)

    def descend(self, running):
        """Give the operation that moves the weights, and then the averages; running: what moves beside the weights."""
        model = self.model
        variables = [self.kept[name] for name in model.weights]
        gradients = tf.gradients(self.loss, variables)
        if model.clip:
            gradients, _ = tf.clip_by_global_norm(gradients, model.clip)
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]  # an embedding's are rows with numbers
        with tf.device(self.home):
            with tf.control_dependencies(gradients + [self.loss, self.right]):  # of the weights before they move
                moved = [tf.assign(variable, value) for variable, value in running]
                for name, gradient in zip(model.weights, gradients):
                    slots = [self.kept[slot + "/" + name] for slot in model.slots]
                    moved += OPTIMISERS[model.optimiser["op"]](
                        model.optimiser, self.kept[name], slots, self.rate, gradient)
            averages = [(self.kept["average/" + name], self.kept[name]) for name in model.weights if model.averaged]
            with tf.control_dependencies(moved):
                return tf.group(tf.no_op(), *[
                    tf.assign_sub(average, (1 - self.keep) * (average - variable.read_value()))
                    for average, variable in averages])

    def forward(self, x, at):
        return layers.through(self.model.words, x, at, LAYERS)

    def load(self, values):
        for name in self.kept:
            self.kept[name].load(values[name], self.session)

    def values(self):
        return self.session.run(dict(self.kept))

    def batches(self, source, first, last, feed="ahead"):
        return FEEDS[feed](self, source, first, last)

    def train(self, batch, turn):
        values = self.fed(batch)
        values.update({self.rate: turn.rate, self.keep: 1.0 if turn.keep is None else turn.keep})
        loss, right, _ = self.session.run([self.loss, self.right, self.step], values)
        return loss, right if self.model.counted else None

    def infer(self, batch):
        values = self.fed(batch)
        return self.session.run(self.outcome, values)

    def fed(self, batch):
        if self.inputs is None:
            self.feed_from((self.examples, self.labels), self.examples, self.labels)
        return dict(zip(self.inputs, batch))

    def logits(self, examples):
        return self.session.run(self.guess, {self.examples: examples})

    def answers(self, examples):
        return self.logits(examples)

    def close(self):
        self.session.close()


def numbers(way, device):
    """Give the precision. There is no switch here: what was asked for went to NVIDIA's libraries (computing.prepare),
    and builds for cards that have TF32 are NVIDIA's, which use it."""
    refused = "--compile" if way.compiled else "--precision amp" if way.precision == "amp" else None
    if refused:
        raise Stop("bad_argument", "TensorFlow %s is trained without %s here: leave it away, or take an image of "
                   "TensorFlow 2 or PyTorch" % (tf.__version__, refused))
    return computing.numbers(way.precision, device, nvml.compute_capability() if device == "gpu" else None)


def named(gpus):
    """Give the first GPU's name: the driver's where there is one card, else TensorFlow's, which counts as it likes."""
    cards = [card["name"] for card in nvml.read()]
    return cards if len(cards) == 1 and cards[0] else gpus[:1]


class Pass(object):
    """One pass forward: one that learns and fills `moved`, [(variable, its next value)] beside the weights; or a test,
    which takes the moving averages of the weights where there are."""

    def __init__(self, kept, is_training):
        self.kept, self.is_training, self.moved = kept, is_training, []

    def get(self, word, which):
        name = word["name"] + "/" + which
        return self.kept[name] if self.is_training else self.kept.get("average/" + name, self.kept[name])
