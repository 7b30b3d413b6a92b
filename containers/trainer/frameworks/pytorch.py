"""How PyTorch trains: eager, channels last, plain loops over the weights."""
import torch
from torch.nn import functional

from .. import layers
from ..ahead import ahead
from ..events import Stop

LAST = {"memory_format": torch.channels_last} if hasattr(torch, "channels_last") else {}  # PyTorch 1.5 and later


class Network:
    """The contract is in frameworks/__init__.py."""

    def __init__(self, model, device, memory_fraction=None, threads=None):
        if threads:
            torch.set_num_threads(threads)
        visible = torch.cuda.is_available()
        if device == "gpu" and not visible:
            raise Stop("no_gpu", f"PyTorch {torch.__version__} sees no GPU")
        self.version = torch.__version__
        self.device = "gpu" if visible and device != "cpu" else "cpu"
        self.on = torch.device("cuda:0" if self.device == "gpu" else "cpu")
        self.devices = [torch.cuda.get_device_name(0)] if self.device == "gpu" else []
        if self.device == "gpu" and memory_fraction:
            torch.cuda.set_per_process_memory_fraction(memory_fraction, 0)
        self.model, self.kept = model, {}

    def load(self, values):
        self.kept = {name: self.inward(values[name]) for name in self.model.kept()}
        for name in self.model.weights:
            self.kept[name].requires_grad_()

    def inward(self, array):
        """Convolutions are [outputs, inputs, height, width] here; all else keeps its layout."""
        tensor = torch.from_numpy(array.copy()).to(self.on)
        return tensor.permute(3, 2, 0, 1).contiguous(**LAST) if tensor.dim() == 4 else tensor

    def values(self):
        return {name: outward(tensor) for name, tensor in self.kept.items()}

    def batches(self, source, first, last):
        made = ahead(source, first, last)
        try:
            for examples, labels in made:
                yield self.moved(torch.from_numpy(examples)), self.moved(torch.from_numpy(labels).long())
        finally:
            made.close()

    def moved(self, tensor):
        return tensor.pin_memory().to(self.on, non_blocking=True) if self.device == "gpu" else tensor

    def train(self, batch, turn):
        model, (examples, labels) = self.model, batch
        if "dropout" in model.ops:  # what is drawn is a function of seed and step: a resumed training draws the same
            torch.manual_seed((turn.seed << 32 ^ turn.step) & (1 << 63) - 1)
        logits = self.forward(examples, Pass(self.kept, True))
        loss = LOSSES[model.loss](logits, labels.reshape(-1))
        if model.labels:
            loss = loss * model.labels[0]  # of a sequence the mean over all its labels is not yet the sum
        weights = self.named("")
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            loss = loss + self.decay(gradients)
            if model.clip:
                clip(gradients, model.clip)
            slots = [self.named(slot + "/") for slot in model.slots]
            OPTIMISERS[model.optimiser["op"]](model.optimiser, weights, slots, turn.rate, gradients)
            if model.averaged:
                each("lerp", self.named("average/"), weights, 1 - turn.keep)
            return loss, right(model, logits, labels) if model.counted else None

    def named(self, prefix):
        return [self.kept[prefix + name] for name in self.model.weights]

    def decay(self, gradients):
        """Add the decay terms' part to the gradients, and give their part of the loss."""
        total = 0
        for factor in {factor for _, factor in self.model.decays}:
            names = [name for name, other in self.model.decays if other == factor]
            weights = [self.kept[name] for name in names]
            pulls = [weight.clone() for weight in weights]
            each("mul", pulls, factor)
            each("add", [gradients[self.model.weights.index(name)] for name in names], pulls)
            total = total + factor / 2 * squares(weights)
        return total

    def forward(self, examples, at):
        x = examples.permute(0, 3, 1, 2) if examples.dim() == 4 else examples  # NHWC memory: channels last as it stands
        return layers.through(self.model.words, x, at, LAYERS)

    def logits(self, examples):
        with torch.no_grad():
            return self.forward(torch.from_numpy(examples).to(self.on), Pass(self.kept, False)).cpu().numpy()

    def close(self):
        pass


class Pass:
    """One pass forward: one that learns, or a test, which takes the moving averages of the weights where there are."""

    def __init__(self, kept, is_training):
        self.kept, self.is_training = kept, is_training

    def get(self, word, which):
        name = f"{word['name']}/{which}"
        return self.kept[name] if self.is_training else self.kept.get("average/" + name, self.kept[name])


def outward(tensor):
    tensor = tensor.detach().permute(2, 3, 1, 0) if tensor.dim() == 4 else tensor.detach()
    return tensor.cpu().contiguous().numpy().copy()


LOSSES = {
    "softmax": functional.cross_entropy,
    "sigmoid": lambda logits, labels: functional.binary_cross_entropy_with_logits(logits[:, 0], labels.float()),
}


def right(model, logits, labels):
    guesses = logits.argmax(1) if model.loss == "softmax" else (logits[:, 0] > 0).long()
    return (guesses == labels.reshape(-1)).sum()


def each(op, tensors, *others, **said):
    """Do tensor.op_(other..., ...) to each of many: at once where this PyTorch can, for starts keep a GPU waiting."""
    at_once = getattr(torch, f"_foreach_{op}_", None)
    if at_once:
        at_once(tensors, *others, **said)
        return
    for k, tensor in enumerate(tensors):
        own = [other[k] if isinstance(other, (list, tuple)) else other for other in others]
        getattr(tensor, op + "_")(*own, **said)


def squares(tensors):
    """Sum the squares of all; on the CPU not by the norm, which there is 1e-5 off for a million numbers."""
    if tensors[0].is_cuda and hasattr(torch, "_foreach_norm"):
        return torch.stack(torch._foreach_norm(tensors)).pow(2).sum()
    return torch.stack([tensor.pow(2).sum() for tensor in tensors]).sum()


def clip(gradients, most):
    scale = (most / squares(gradients).sqrt()).clamp(max=1.0)
    for gradient in gradients:
        gradient.mul_(scale)


def sgd(words, weights, slots, rate, gradients):
    each("add", weights, gradients, alpha=-rate)


def momentum(words, weights, slots, rate, gradients):
    each("mul", slots[0], words["share"])
    each("add", slots[0], gradients)
    each("add", weights, slots[0], alpha=-rate)


def adam(words, weights, slots, rate, gradients):
    first, second = slots
    each("mul", first, words["b1"])
    each("add", first, gradients, alpha=1 - words["b1"])
    each("mul", second, words["b2"])
    each("addcmul", second, gradients, gradients, value=1 - words["b2"])
    roots = [value.clone() for value in second]
    each("sqrt", roots)
    each("add", roots, words["epsilon"])
    each("addcdiv", weights, first, roots, value=-rate)


OPTIMISERS = {"sgd": sgd, "momentum": momentum, "adam": adam}


def conv(word, x, at):
    biases = at.get(word, "biases") if len(word["arrays"]) == 2 else None
    return functional.conv2d(x, at.get(word, "weights"), biases, stride=word["stride"], padding=word["padding"][0])


def dense(word, x, at):
    if x.dim() == 4:
        x = x.permute(0, 2, 3, 1)
    return torch.addmm(at.get(word, "biases"), x.reshape(-1, word["shape"][0]), at.get(word, "weights"))


def max_pool(word, x, at):
    before, after = word["padding"]
    # ceil mode hangs over at the right and the bottom alone, as (0, 1) asks; padding=1 would not
    return functional.max_pool2d(x, word["size"], word["stride"], padding=before, ceil_mode=before != after)


def lrn(word, x, at):
    """Sum the squares of the neighbours by a banded matrix: PyTorch's own layer is slow."""
    channels = x.shape[1]
    near = torch.arange(channels, device=x.device)
    band = ((near[:, None] - near[None, :]).abs() <= word["radius"]).to(x.dtype) * word["alpha"]
    last = x.permute(0, 2, 3, 1)
    scale = torch.matmul(last * last, band) + word["bias"]
    return (last * scale.pow(-word["beta"])).permute(0, 3, 1, 2)


def batch_norm(word, x, at):
    return functional.batch_norm(
        x, at.get(word, "mean"), at.get(word, "variance"), at.get(word, "scale"), at.get(word, "offset"),
        training=at.is_training, momentum=1 - word["momentum"], eps=word["epsilon"])


def residual(word, x, at):
    return layers.through(word["body"], x, at, LAYERS) + layers.through(word["shortcut"], x, at, LAYERS)


def lstm(word, x, at):
    """Use PyTorch's own, cuDNN's on a GPU: its gates stand in the same order; its second biases are zeros that stay."""
    size, weights, biases = word["inputs"], at.get(word, "weights"), at.get(word, "biases")
    states = at.get(word, "hidden"), at.get(word, "cell")
    begin = states if at.is_training else [x.new_zeros(len(x), word["outputs"])] * 2
    arrays = [weights[:size].t().contiguous(), weights[size:].t().contiguous(), biases, torch.zeros_like(biases)]
    begin = [state[None].clone() for state in begin]  # the way back needs them as they were
    found, *last = torch.lstm(x, begin, arrays, True, 1, 0.0, at.is_training, False, True)
    if at.is_training:
        for state, value in zip(states, last):
            state.copy_(value[0].detach())
    return found


def pad_channels(word, x, at):
    return functional.pad(x, (0, 0, 0, 0, word["before"], word["after"]))


LAYERS = {
    "conv": conv,
    "dense": dense,
    "relu": lambda word, x, at: functional.relu(x),
    "sigmoid": lambda word, x, at: torch.sigmoid(x),
    "max_pool": max_pool,
    "avg_pool": lambda word, x, at: functional.avg_pool2d(x, word["size"], word["stride"]),
    "global_avg_pool": lambda word, x, at: x.mean((2, 3)),
    "pad_channels": pad_channels,
    "lrn": lrn,
    "batch_norm": batch_norm,
    "dropout": lambda word, x, at: functional.dropout(x, word["rate"], at.is_training),
    "residual": residual,
    "embedding": lambda word, x, at: functional.embedding(x, at.get(word, "weights")),
    "lstm": lstm,
}
