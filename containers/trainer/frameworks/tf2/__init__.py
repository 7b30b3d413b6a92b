"""How TensorFlow 2 trains: one traced function per step, fed by tf.data."""
import contextlib
import functools

import tensorflow as tf

from ... import driver, kernels, layers
from ...computing import PLAIN, Scale, layout
from ...events import Stop
from ...group import ALONE
from ...tensorflow_losses import LOSSES, right
from . import numbers, tiled
from .feeding import FEEDS, gathers_bytes
from .learning import OPTIMISERS, unscaled
from .ops import LAYERS
from .together import Together, translated

TOWERS = False

# Python 3 imports any folder of that name on the path as an empty package, such as containers/tensorflow
if not getattr(tf, "__version__", "").startswith("2."):
    raise ImportError(f"this is for TensorFlow 2, here is {getattr(tf, '__version__', 'none')}")


class Network:
    """The contract is in frameworks/__init__.py."""

    label_bytes = 4

    def __init__(self, model, device, memory_fraction=None, threads=None, way=PLAIN, group=ALONE):
        if threads:  # the runtime can't change the number once it has started
            tf.config.threading.set_intra_op_parallelism_threads(threads)
        gpus = tf.config.experimental.list_physical_devices("GPU")
        self.version, self.group = tf.__version__, group
        card = group.card(f"TensorFlow {tf.__version__}", len(gpus), device)
        self.device = "cpu" if card is None else "gpu"
        self.devices = [] if card is None else name(gpus[:group.here])
        gpus = gpus[card or 0:][:1]
        # also for a network on the CPU, such as a teacher: once the runtime has started, neither its cards nor how much
        # memory it takes can change
        if gpus:
            tf.config.experimental.set_visible_devices(gpus, "GPU")
        if gpus and memory_fraction:
            limit(gpus[0], card or 0, memory_fraction)
        elif gpus and driver.leaves_memory(card or 0):
            tf.config.experimental.set_memory_growth(gpus[0], True)
        self.together = Together(group) if group.size > 1 else None
        self.model, self.on = model, f"/{self.device.upper()}:0"
        self.precision = numbers.chosen(way.precision, gpus if self.device == "gpu" else [])
        self.compiled = way.compiled
        self.channels_last = layout(way.channels_last, model, numbers.NO_CHANNELS_FIRST)
        self.half, self.scale = numbers.HALVES.get(self.precision), Scale() if self.precision == "float16" else None
        is_plain = self.device == "cpu" and self.precision == "float32" and not way.compiled
        self.words = layers.joined(model.words) if is_plain else model.words
        self.tiled, self.library, self.winograd = layers.flat(self.words) if is_plain else [], None, False
        tiled.begin(self.tiled)
        with tf.device(self.on):
            self.kept = {name: tf.Variable(self.rows(name, tf.zeros(shape)), trainable=name in model.weights, name=name)
                         for name, shape in model.kept().items()}
        # autograph has nothing to rewrite here, and early releases complain about the lambdas
        compiling = numbers.compiling() if way.compiled else {}
        function = self.together.running if self.together else functools.partial(tf.function, autograph=False)
        self.step, self.fast = (function(self.descend, **said) for said in ({}, compiling))
        self.guess, self.quick = (tf.function(self.look, autograph=False, **said) for said in ({}, compiling))

    def load(self, values):
        self.library = tiled.library(self.tiled)
        self.winograd = self.library is not None and any(kernels.can_be(word) for word in self.tiled)
        for name, variable in self.kept.items():
            variable.assign(self.rows(name, values[name]))

    def rows(self, name, array):
        """Return this replica's part of an array: the rows of its examples for an LSTM's states, everything for other
        arrays."""
        return array[self.group.part(self.model.batch)] if name in self.model.states else array

    def values(self):
        return {name: self.whole(variable).numpy() if name in self.model.states and self.together else variable.numpy()
                for name, variable in self.kept.items()}

    def whole(self, rows):
        """Return the rows of all replicas."""
        batch, own = self.model.batch, self.group.part(self.model.batch)
        return self.together.sum(tf.pad(rows, [[own.start, batch - own.stop]] + [[0, 0]] * (len(rows.shape) - 1)))

    def agreed(self, number):
        return self.together.largest(number)

    def batches(self, source, first, last, feed="ahead"):
        return FEEDS[feed](self, source, first, last)

    @property
    def scaled_bytes(self):
        return 1 if gathers_bytes(self) else 5  # else as bytes and as floats

    def is_usual(self, labels):
        """Return whether these are as many as in a full batch; an epoch's last batch may have fewer."""
        return len(labels) == self.group.examples(self.model.batch)

    def train(self, batch, turn):
        if self.scale:
            turn = self.model.turn(turn.step, turn.seed, turn.share, self.scale.skipped)
        key = [(turn.seed ^ self.group.rank << 20) & 0x7FFFFFFF, turn.step & 0x7FFFFFFF]
        keep, scale = 1.0 if turn.keep is None else turn.keep, self.scale.value if self.scale else 1.0
        said = [tf.constant(number, tf.float32) for number in (turn.rate, keep, scale, turn.share)]
        # An epoch's last batch may be smaller: it is not compiled, because that would need another compilation. All
        # replicas choose alike, by the whole batch: early releases number an all-reduce when a step is traced, and one
        # replica that traces while the others don't would wait for ever. cross_device_utils.py of 2.21 tells:
        # https://github.com/tensorflow/tensorflow/blob/v2.21.0/tensorflow/python/distribute/cross_device_utils.py#L315
        is_usual = self.is_usual(batch[-1]) and turn.share == self.group.share(self.model.batch)
        step = self.fast if is_usual else self.step
        reached = translated() if self.together else contextlib.ExitStack()
        with tf.device(self.on), numbers.explained(self.compiled), reached:
            loss, right, finite = step(batch, *said, tf.constant(key))
        if self.scale:
            self.scale.move(bool(finite), turn.step)
        return self.checked(loss), right

    def checked(self, found):
        if self.device.upper() not in found.device:
            raise Stop("no_gpu", f"TensorFlow computed on {found.device}, not on {self.on}")
        return found

    def descend(self, batch, rate, keep, scale, share, key):
        model, weights = self.model, [self.kept[name] for name in self.model.weights]
        examples, labels, *answers = batch
        with tf.GradientTape() as tape:
            logits = tf.cast(self.forward(examples, Pass(self.kept, self.half, self.library, key)), tf.float32)
            loss = LOSSES[model.loss](logits, tf.reshape(labels, [-1]), *answers)
            if model.labels:
                loss *= model.labels[0]  # turns the mean over all labels into the sum over a sequence's
            for name, factor in model.decays:
                loss += factor * tf.nn.l2_loss(self.kept[name])
            scaled = loss * scale if self.scale else loss
        # an embedding's gradient is a tf.IndexedSlices
        gradients = [tf.convert_to_tensor(gradient) for gradient in tape.gradient(scaled, weights)]
        guessed = right(model, logits, labels) if model.counted else None
        if self.together:
            loss, guessed, gradients = self.added(loss, guessed, gradients, share)
        finite = None
        if self.scale:
            gradients, finite = unscaled(scale, gradients)
            tf.cond(finite, lambda: self.move(gradients, rate, keep), lambda: False)
        else:
            self.move(gradients, rate, keep)
        return loss, guessed, finite

    def added(self, loss, guessed, gradients, share):
        """All-reduce: return loss, right guesses and gradients of all replicas' examples."""
        told = 0.0 if guessed is None else guessed * tf.sign(share)
        told, *gradients = self.together.add([tf.stack([loss * share, told]), *(one * share for one in gradients)])
        return told[0], None if guessed is None else told[1], gradients

    def move(self, gradients, rate, keep):
        """Update the weights, and then their averages. Return True, because tf.cond needs a result."""
        model = self.model
        if model.clip:
            gradients, _ = tf.clip_by_global_norm(gradients, model.clip)
        for name, gradient in zip(model.weights, gradients):
            slots = [self.kept[f"{slot}/{name}"].handle for slot in model.slots]
            OPTIMISERS[model.optimiser["op"]](model.optimiser, self.kept[name], slots, rate, gradient)
            if model.averaged:
                average = self.kept["average/" + name]
                average.assign_sub((1 - keep) * (average - self.kept[name]))
        return True

    def forward(self, x, at):
        return layers.through(self.words, x, at, LAYERS)

    def logits(self, examples):
        with tf.device(self.on):
            return self.checked(self.guess(tf.constant(examples))).numpy()

    def infer(self, batch):
        with tf.device(self.on), numbers.explained(self.compiled):
            return self.checked((self.quick if self.is_usual(batch[-1]) else self.guess)(batch[0])).numpy()

    def look(self, examples):
        return tf.cast(self.forward(examples, Pass(self.kept, self.half, self.library)), tf.float32)

    def answers(self, examples):
        with tf.device(self.on):
            return self.guess(examples)

    def close(self):
        pass


class Pass:
    """One forward pass: of training, which draws by a key and updates running statistics; or of a test, without a key,
    which uses the weights' moving averages if there are any. half: the 16-bit dtype to compute in, or None."""

    def __init__(self, kept, half, library=None, key=None):
        self.kept, self.half, self.library, self.key, self.is_training = kept, half, library, key, key is not None

    def get(self, word, which):
        name = f"{word['name']}/{which}"
        variable = self.kept[name] if self.is_training else self.kept.get("average/" + name, self.kept[name])
        products = which in ("weights", "biases") and word["op"] != "embedding"  # its rows are cast after the lookup
        return tf.cast(variable, self.half) if self.half and products else variable


def name(gpus):
    """Return the cards' names if this TensorFlow reports them, else the devices'."""
    return [numbers.details(gpu).get("device_name", gpu.name) for gpu in gpus]


def limit(gpu, card, fraction):
    total = driver.total_bytes(card)
    if total is None:
        raise Stop("bad_argument", "--gpu-memory-fraction needs the GPU's memory size, which the CUDA driver does not "
                   "report: leave it out")
    tf.config.experimental.set_virtual_device_configuration(
        gpu, [tf.config.experimental.VirtualDeviceConfiguration(memory_limit=int(total * fraction / 2**20))])
