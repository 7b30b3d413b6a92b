"""How PyTorch trains: plain loops over the weights; loss and gradients are computed eagerly or by torch.compile."""
import torch

from ... import kernels, layers
from ...computing import PLAIN, Scale
from ...group import ALONE
from ...recipe import chance
from . import graphed, memory, numbers
from .feeding import FEEDS
from .learning import LOSSES, OPTIMISERS, clip, each, follow, right, squares, unscaled
from .ops import LAYERS
from .together import Together

TOWERS = False

if not hasattr(torch, "device"):
    raise ImportError(f"this is for PyTorch 0.4 or later, here is {getattr(torch, '__version__', 'none')}")


class Network:
    """The contract is in frameworks/__init__.py."""

    label_bytes, scaled_bytes = 8, 1

    def __init__(self, model, device, memory_fraction=None, threads=None, way=PLAIN, group=ALONE):
        if threads:
            torch.set_num_threads(threads)
        self.version, self.group, self.memory_fraction = torch.__version__, group, memory_fraction
        visible = torch.cuda.device_count() if torch.cuda.is_available() else 0
        card = group.card(f"PyTorch {torch.__version__}", visible, device)
        self.device = "cpu" if card is None else "gpu"
        self.on = torch.device("cpu" if card is None else f"cuda:{card}")
        self.devices = []
        if card is None:
            memory.keep()
            numbers.flush_denormals()
        else:
            torch.cuda.set_device(card)
            self.devices = [torch.cuda.get_device_name(k) for k in range(group.here)]
        if self.device == "gpu" and memory_fraction and hasattr(torch.cuda, "set_per_process_memory_fraction"):  # 1.8
            torch.cuda.set_per_process_memory_fraction(memory_fraction, card)
        self.model, self.kept = model, {}
        self.precision, self.compiled = numbers.chosen(way.precision, self.device), way.compiled
        self.casting, self.half = numbers.casting(self.precision, self.device), numbers.HALVES.get(self.precision)
        self.scale = Scale() if self.precision == "float16" else None
        self.recurrent = numbers.recurrent(self.half, self.on)
        self.channels_last = numbers.layout(way.channels_last, model, self.precision, self.device)
        is_plain = self.device == "cpu" and self.channels_last and self.precision == "float32" and not way.compiled
        self.words = layers.joined(model.words) if is_plain else model.words
        self.tiled, self.library, self.winograd = layers.flat(self.words) if is_plain else [], None, False
        self.together = self.stepper = None
        if group.size > 1:
            self.together = Together(group, self.on)
        self.fast, self.quick = self.learn, self.look
        if way.compiled and model.trains:
            self.fast = numbers.compiled(self.learn)
        elif way.compiled:
            self.quick = numbers.compiled(self.look)

    def load(self, values):
        self.library = kernels.library(self.tiled)
        self.winograd = self.library is not None and any(kernels.can_be(word) for word in self.tiled)
        own = self.group.part(self.model.batch)
        self.kept = {name: self.inward(values[name][own] if name in self.model.states else values[name])
                     for name in self.model.kept()}
        for name in self.model.weights:
            self.kept[name].requires_grad_()

    def inward(self, array):
        """Return a tensor: convolutions are [outputs, inputs, height, width] here; all else keeps its layout."""
        tensor = torch.from_numpy(array.copy()).to(self.on)
        return self.laid(tensor.permute(3, 2, 0, 1)) if tensor.dim() == 4 else tensor

    def laid(self, tensor):
        return tensor.contiguous(memory_format=numbers.LAST) if self.channels_last else tensor.contiguous()

    def values(self):
        found = {name: outward(tensor) for name, tensor in self.kept.items()}
        if self.together:
            found.update((name, outward(self.whole(self.kept[name]))) for name in self.model.states)
        return found

    def whole(self, rows):
        """Return the rows of all replicas."""
        found = rows.new_zeros(self.model.batch, *rows.shape[1:])
        found[self.group.part(self.model.batch)] = rows
        self.together.add([found])
        return found

    def agreed(self, number):
        return self.together.largest(number)

    def batches(self, source, first, last, feed="ahead"):
        self.stepper = graphed.Stepper(self) if graphed.can_be(self, feed) else None
        return FEEDS[feed](self, source, first, last)

    def is_usual(self, labels):
        """Return whether these are as many as in a full batch; an epoch's last batch may have fewer."""
        return len(labels) == self.group.examples(self.model.batch)

    def train(self, batch, turn):
        model, (examples, labels) = self.model, batch[:2]
        if self.scale:
            turn = model.turn(turn.step, turn.seed, turn.share, self.scale.skipped)
        answers = [torch.as_tensor(one).to(self.on) for one in batch[2:]]
        if "dropout" in model.ops:  # its draws are a function of seed and step: a resumed training draws the same
            torch.manual_seed(chance(turn.seed, turn.step, self.group.rank))
        found = self.stepper.train(batch, turn) if self.stepper and not answers else None
        return found or self.step(examples, labels, answers, turn)

    def step(self, examples, labels, answers, turn):
        model = self.model
        # an epoch's last batch may be smaller: it is not compiled, because that would need another compilation
        loss, logits = (self.fast if self.is_usual(labels) else self.learn)(examples, labels, *answers)
        weights = self.named("")
        gradients = torch.autograd.grad(loss * self.scale.value if self.scale else loss, weights)
        with torch.no_grad():
            guessed = right(model, logits, labels) if model.counted else None
            if self.together:
                loss, guessed = self.added(loss, guessed, gradients, turn.share)
            finite = self.scale is None or unscaled(self.scale, gradients, turn.step)
            loss = loss + self.decay(gradients)
            if finite:
                self.move(weights, gradients, turn)
            return loss, guessed

    def added(self, loss, guessed, gradients, share):
        """All-reduce the gradients in place, and return the loss and right guesses of all replicas' examples."""
        counted = 0 if guessed is None else guessed.to(loss.dtype) * (share > 0)
        told = torch.stack([loss.detach() * share, torch.zeros_like(loss) + counted])
        each("mul", gradients, share)
        self.together.add([told, *gradients])
        return told[0], None if guessed is None else told[1]

    def learn(self, examples, labels, *answers):
        """Return loss and logits; this is what torch.compile compiles."""
        with self.casting():
            logits = self.forward(examples, self.passing(True))
        logits = logits.float()
        loss = LOSSES[self.model.loss](logits, labels.reshape(-1), *answers)
        if self.model.labels:
            loss = loss * self.model.labels[0]  # turns the mean over all labels into the sum over a sequence's
        return loss, logits

    def move(self, weights, gradients, turn):
        model = self.model
        if model.clip:
            clip(gradients, model.clip)
        slots = [self.named(slot + "/") for slot in model.slots]
        OPTIMISERS[model.optimiser["op"]](model.optimiser, weights, slots, turn.rate, gradients)
        if model.averaged:
            follow(self.named("average/"), weights, turn.keep)

    def named(self, prefix):
        return [self.kept[prefix + name] for name in self.model.weights]

    def decay(self, gradients):
        """Add weight decay to the gradients, and return its part of the loss."""
        total = 0
        for factor in {factor for _, factor in self.model.decays}:
            names = [name for name, other in self.model.decays if other == factor]
            weights = [self.kept[name] for name in names]
            each("add", [gradients[self.model.weights.index(name)] for name in names], weights, alpha=factor)
            total = total + factor / 2 * squares(weights)
        return total

    def forward(self, examples, at):
        x = self.laid(examples.permute(0, 3, 1, 2)) if examples.dim() == 4 else examples
        return layers.through(self.words, x, at, LAYERS)

    def logits(self, examples):
        return self.look(torch.from_numpy(examples).to(self.on)).cpu().numpy()

    def infer(self, batch):
        return (self.quick if self.is_usual(batch[-1]) else self.look)(batch[0]).cpu().numpy()

    def look(self, examples):
        with torch.no_grad(), self.casting():
            return self.forward(examples, self.passing(False)).float()

    answers = look

    def passing(self, is_training):
        return Pass(self.kept, is_training, self.half, self.compiled, self.recurrent, self.library)

    def close(self):
        if self.together:
            self.together.close()


class Pass:
    """One forward pass: of training, or of a test, which uses the weights' moving averages if there are any.
    half: the 16-bit dtype to compute in, or None. is_compiled: torch.compile fuses the pass. recurrent: the dtype that
    LSTMs compute in; None for the input's. library: a kernels.Library, or None."""

    def __init__(self, kept, is_training, half=None, is_compiled=False, recurrent=None, library=None):
        self.kept, self.is_training, self.half, self.is_compiled = kept, is_training, half, is_compiled
        self.recurrent, self.library = recurrent, library

    def get(self, word, which):
        name = f"{word['name']}/{which}"
        return self.kept[name] if self.is_training else self.kept.get("average/" + name, self.kept[name])


def outward(tensor):
    tensor = tensor.detach().permute(2, 3, 1, 0) if tensor.dim() == 4 else tensor.detach()
    return tensor.cpu().contiguous().numpy().copy()
