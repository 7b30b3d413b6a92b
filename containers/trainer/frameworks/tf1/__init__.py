"""How TensorFlow 1.4 to 1.15 trains, on Python 2.7 and 3: a graph and a session.

Several replicas are towers in this one process, as in the tutorial's cifar10_multi_gpu_train.py: each computes its part
of the batch on its card, the variables are in the CPU's memory, and the sum of the gradients updates them. On the CPU
all towers share the same processor, which only shows that it works.

If the workload says so, as the tutorial does, the variables stay in the CPU's memory when a GPU computes: copying them
is part of the measured times.
"""
from __future__ import absolute_import, division, print_function

import collections

import tensorflow as tf

from ... import computing, driver, layers, nvml
from ...events import Stop
from ...group import ALONE
from ...tensorflow_losses import LOSSES, right
from .feeding import FEEDS
from .learning import OPTIMISERS
from .ops import LAYERS

if getattr(tf, "__version__", "0.0").split(".")[:2] not in [["1", str(minor)] for minor in range(4, 16)]:
    raise ImportError("this is for TensorFlow 1.4 to 1.15, here is %s" % getattr(tf, "__version__", "none"))

TOWERS = True  # one process computes for all replicas


class Network(object):
    """The contract is in frameworks/__init__.py."""

    label_bytes, scaled_bytes, winograd = 4, 4, False

    def __init__(self, model, device, memory_fraction=None, threads=None, way=computing.PLAIN, group=ALONE):
        self.version, self.model, self.group = tf.__version__, model, group
        check_towers(model, group)
        self.graph = tf.Graph()
        config = tf.ConfigProto()  # no soft placement: an operation without a GPU kernel fails instead of moving
        # only the first cards: TensorFlow fills the memory of every card that it sees
        config.device_count["GPU"] = 0 if device == "cpu" else group.size
        if threads:  # as Shi et al. counted theirs, https://github.com/hclhkbu/dlbench
            config.intra_op_parallelism_threads = threads
        if memory_fraction:
            config.gpu_options.per_process_gpu_memory_fraction = memory_fraction
        elif device != "cpu":
            config.gpu_options.allow_growth = driver.leaves_memory(0)
        self.session = tf.Session(graph=self.graph, config=config)
        gpus = [found.name for found in self.session.list_devices() if found.device_type == "GPU"]
        card = group.card("TensorFlow %s" % tf.__version__, len(gpus), device)
        self.device = "cpu" if card is None else "gpu"
        self.devices = [] if card is None else named(gpus, group.size)
        self.on, self.step, self.outcome = "/%s:0" % self.device, None, None
        self.home = "/cpu:0" if model.variables == "cpu" or group.size > 1 else self.on
        self.precision, self.compiled = numbers(way, self.device), False
        self.channels_last = computing.layout(
            way.channels_last, model, "with TensorFlow %s this supports only channels last" % tf.__version__)
        if model.words:  # the smoke test has none
            with self.graph.as_default():
                self.build()

    def build(self):
        """Build the variables and the graph of a test; the rest is built when the first batch arrives, from the latest
        feed_from()."""
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
        self.feed_from((self.examples, self.labels), self.examples, self.labels)

    def feed_from(self, inputs, examples, labels):
        """Compute from these tensors; inputs are the placeholders behind them, which a batch is fed to."""
        self.inputs = inputs + ((self.answered,) if self.model.loss == "distill" else ())
        self.tensors = examples, labels

    def learn(self, turn):
        """Build the loss, the count of right guesses, and the step; turn: the first one's, which seeds dropout."""
        towers = [self.tower(tower, turn) for tower in range(self.group.size)]
        losses, rights, gradients, moved = zip(*towers)
        self.loss, self.right = tf.add_n(losses), tf.add_n(rights)
        with tf.device(self.home):
            gradients = [tf.add_n(every) for every in zip(*gradients)]
        self.step = self.descend(gradients, moved[0])

    def tower(self, number, turn):
        """Build one tower and return its loss, times its share of the batch, its count of right guesses, its gradients,
        and its updates beside the weights. Only the first one has weight decay."""
        model, learning = self.model, Pass(self.kept, True, (turn.seed, turn.step, number))
        with tf.device(self.on if self.device == "cpu" else "/gpu:%d" % number):
            examples, labels, share = self.part(number)
            logits = self.forward(examples, learning)
            labels = tf.reshape(labels, [-1])
            loss = LOSSES[model.loss](*[logits, labels] + ([self.answered] if model.loss == "distill" else []))
            if model.labels:
                loss *= model.labels[0]  # turns the mean over all labels into the sum over a sequence's
            loss = loss if share is None else loss * share
            for name, factor in model.decays if number == 0 else ():
                loss += factor * tf.nn.l2_loss(self.kept[name])
            guessed = right(model, logits, labels) if model.counted else tf.constant(0.0)
            guessed = guessed if share is None else guessed * tf.sign(share)
            gradients = tf.gradients(loss, [self.kept[name] for name in model.weights])
            # an embedding's gradient is a tf.IndexedSlices
            return loss, guessed, [tf.convert_to_tensor(one) for one in gradients], learning.moved

    def part(self, number):
        """Return a tower's examples and labels, and the weight of their mean; None: all of them."""
        examples, labels = self.tensors
        if self.group.size == 1:
            return examples, labels, None
        with tf.device("/cpu:0"):
            count = tf.shape(labels)[0]
            needed = tf.minimum(self.group.size, tf.maximum(count // self.group.least, 1))  # as Group.needed() says
            first, last = (tf.minimum(count * k // needed, count) for k in (number, number + 1))
            share = tf.cast(last - first, tf.float32) / tf.cast(count, tf.float32)
            # if an epoch's last batch is too small for all towers, some compute others' examples, with weight 0
            first = tf.minimum(first, tf.maximum(count - self.group.least, 0))
            labels = labels[first:last]
        # examples that are on a card (--feed resident and constant) are cut there, not copied to the host as labels are
        with tf.device(examples.device or "/cpu:0"):
            return examples[first:last], labels, share

    def descend(self, gradients, running):
        """Return the operation that updates the weights, then the averages; running: updates beside the weights."""
        model = self.model
        if model.clip:
            gradients, _ = tf.clip_by_global_norm(gradients, model.clip)
        with tf.device(self.home):
            with tf.control_dependencies(gradients + [self.loss, self.right]):  # computed before the weights change
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
        if self.step is None:
            with self.graph.as_default(), tf.device(self.on):
                self.learn(turn)
        values = dict(zip(self.inputs, batch))
        values.update({self.rate: turn.rate, self.keep: 1.0 if turn.keep is None else turn.keep})
        loss, right, _ = self.session.run([self.loss, self.right, self.step], values)
        return loss, right if self.model.counted else None

    def infer(self, batch):
        if self.outcome is None:
            with self.graph.as_default(), tf.device(self.on):
                self.outcome = self.forward(self.tensors[0], Pass(self.kept, False))
        return self.session.run(self.outcome, dict(zip(self.inputs, batch)))

    def logits(self, examples):
        return self.session.run(self.guess, {self.examples: examples})

    answers = logits

    def close(self):
        self.session.close()


def numbers(way, device):
    """Return the precision. TensorFlow 1 has no switch for TF32: NVIDIA's libraries have one (computing.prepare), and
    the only builds for cards with TF32 are NVIDIA's own, which use it."""
    refused = "--compile" if way.compiled else "--precision amp" if way.precision == "amp" else None
    if refused:
        raise Stop("bad_argument", "TensorFlow %s is trained without %s here: leave it out, or use a container image "
                   "with TensorFlow 2 or PyTorch" % (tf.__version__, refused))
    computing.check_rewriting()
    return computing.numbers(way.precision, device, nvml.compute_capability() if device == "gpu" else None)


def check_towers(model, group):
    if group.nodes > 1:
        raise Stop("bad_argument", "TensorFlow %s trains on one machine here: leave the other nodes out, or use a "
                   "container image with TensorFlow 2 or PyTorch" % tf.__version__)
    if group.size > 1 and model.states:
        raise Stop("bad_argument", "TensorFlow %s trains this in one replica only: leave --replicas out, or use a "
                   "container image with TensorFlow 2 or PyTorch" % tf.__version__)


def named(gpus, count):
    """Return the GPUs' names: the driver's if there is one card, else TensorFlow's, because its order may not be the
    driver's."""
    cards = [card["name"] for card in nvml.read()]
    return cards if len(cards) == 1 and cards[0] else gpus[:count]


class Pass(object):
    """One forward pass: of training, which fills `moved`, [(variable, its next value)] beside the weights; or of a
    test, which uses the weights' moving averages if there are any. drawn: seeds dropout, together with the layer's
    name."""

    def __init__(self, kept, is_training, drawn=()):
        self.kept, self.is_training, self.drawn, self.moved = kept, is_training, drawn, []

    def get(self, word, which):
        name = word["name"] + "/" + which
        return self.kept[name] if self.is_training else self.kept.get("average/" + name, self.kept[name])
