"""How PyTorch trains: eager, channels last, plain loops over the weights."""
import torch
from torch.nn import functional

from .. import layers
from ..ahead import ahead
from ..events import Stop

LAST = {"memory_format": torch.channels_last} if hasattr(torch, "channels_last") else {}  # PyTorch 1.5 and later


class Network:
    """The contract is in frameworks/__init__.py."""

    def __init__(self, words, device, memory_fraction=None, threads=None):
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
        self.words, self.decays = words, layers.decays(words)
        self.parameters, self.average = {}, {}

    def load(self, weights, averages):
        self.parameters = {name: self.inward(value).requires_grad_() for name, value in weights.items()}
        self.average = {name: self.inward(value) for name, value in averages.items()}

    def inward(self, array):
        """Convolutions are [outputs, inputs, height, width] here; all else keeps its layout."""
        tensor = torch.from_numpy(array.copy()).to(self.on)
        return tensor.permute(3, 2, 0, 1).contiguous(**LAST) if tensor.dim() == 4 else tensor

    def weights(self):
        return {name: outward(tensor) for name, tensor in self.parameters.items()}

    def averages(self):
        return {name: outward(tensor) for name, tensor in self.average.items()}

    def batches(self, source, first, last):
        made = ahead(source, first, last)
        try:
            for images, labels in made:
                yield self.moved(torch.from_numpy(images)), self.moved(torch.from_numpy(labels).long())
        finally:
            made.close()

    def moved(self, tensor):
        return tensor.pin_memory().to(self.on, non_blocking=True) if self.device == "gpu" else tensor

    def train(self, batch, rate, keep):
        images, labels = batch
        loss = functional.cross_entropy(self.forward(images, self.parameters), labels)
        for name, factor in self.decays:
            loss = loss + factor / 2 * self.parameters[name].pow(2).sum()
        names = list(self.parameters)
        gradients = torch.autograd.grad(loss, [self.parameters[name] for name in names])
        with torch.no_grad():
            for name, gradient in zip(names, gradients):
                self.parameters[name].add_(gradient, alpha=-rate)
                self.average[name].lerp_(self.parameters[name], 1 - keep)
        return loss.detach()

    def forward(self, images, weights):
        x = images.permute(0, 3, 1, 2)  # of NHWC memory: this is channels last as it stands
        for word in self.words:
            x = LAYERS[word["op"]](word, x, weights)
        return x

    def logits(self, images):
        with torch.no_grad():
            return self.forward(torch.from_numpy(images).to(self.on), self.average).cpu().numpy()

    def close(self):
        pass


def outward(tensor):
    tensor = tensor.detach().permute(2, 3, 1, 0) if tensor.dim() == 4 else tensor.detach()
    return tensor.cpu().contiguous().numpy().copy()


def conv(word, x, weights):
    size = word["shape"][0]
    biases = weights[word["name"] + "/biases"]
    return functional.conv2d(x, weights[word["name"] + "/weights"], biases, padding=size // 2)


def dense(word, x, weights):
    if x.dim() == 4:
        x = x.permute(0, 2, 3, 1).reshape(len(x), -1)
    return torch.addmm(weights[word["name"] + "/biases"], x, weights[word["name"] + "/weights"])


def lrn(word, x, weights):
    """Sum the squares of the neighbours by a banded matrix: PyTorch's own layer is slow."""
    channels = x.shape[1]
    near = torch.arange(channels, device=x.device)
    band = ((near[:, None] - near[None, :]).abs() <= word["radius"]).to(x.dtype) * word["alpha"]
    last = x.permute(0, 2, 3, 1)
    scale = torch.matmul(last * last, band) + word["bias"]
    return (last * scale.pow(-word["beta"])).permute(0, 3, 1, 2)


LAYERS = {
    "conv": conv,
    "dense": dense,
    "relu": lambda word, x, weights: functional.relu(x),
    # ceil mode hangs over at the right and the bottom, as TensorFlow's SAME does for these sizes; padding=1 would not
    "max_pool": lambda word, x, weights: functional.max_pool2d(x, word["size"], word["stride"], ceil_mode=True),
    "lrn": lrn,
}
