"""cifar10-94 in PyTorch: one training from scratch, as fast as the device allows, and again with another seed.

All arrays are allocated once and keep their addresses, so that a step can be a CUDA graph: each kind of step
(race.Phase) is captured once. Whatever changes from step to step (rates, which examples) is looked up on the device, by
a counter that the step itself increments. Without CUDA graphs the same steps run one kernel after the other.
"""
import functools

import torch

from .... import computing, race
from ....events import Stop
from ....fits import is_out_of_memory
from .. import graphs
from ..numbers import HALVES, LAST, compiled
from . import net, pictures
from .arrays import Arrays

AT_ONCE = 2000  # the most images that are tested together


def kind(network, asked):
    """Return the dtype of convolutions for --precision `asked`. For auto and amp that is float16 on a card with tensor
    cores: as fast as bfloat16, and more precise. Set the network's precision, and its layout, which is always channels
    last. Raise Stop if this PyTorch can't do it."""
    if LAST is None or not hasattr(torch.nn.functional, "silu"):
        raise Stop("bad_argument", f"PyTorch {torch.__version__} is too old for cifar10-94, which needs 1.7 or later: "
                   "use a later container image")
    network.channels_last = True
    has_cores = network.device == "gpu" and torch.cuda.get_device_capability(network.on) >= computing.TENSOR_CORES
    if asked in ("auto", "amp") and has_cores:
        network.precision = "float16"
    return HALVES.get(network.precision, torch.float32)


def put(images, on):
    return torch.from_numpy(images).to(on)


class Race:
    """images: uint8 [n, 32, 32, 3], labels [n]: numpy, put on the device here. kind: the dtype, see above; is_compiled:
    by our own kernels (fused.py) where they run, else by torch.compile.

    waits: whether the host waits for each step anyway; recorded: whether steps are CUDA graphs; why: the reason if they
    should be graphs but are not, else None; fused: the module, if its kernels are used, else None; losses: of each
    step, on the device."""

    def __init__(self, on, kind, knobs, steps, batch, images, labels, is_compiled=False):
        self.on, self.knobs, self.steps, self.batch = on, knobs, steps, batch
        self.images, self.labels, self.waits = put(images, on), put(labels, on).long(), on.type == "cpu"
        shown = net.of_images(kind)
        self.mean, self.deviation = (
            255 * torch.tensor(numbers, dtype=shown, device=on) for numbers in (race.MEAN, race.DEVIATION))
        self.pixels = torch.empty(images.shape, dtype=shown, device=on)
        self.arrays, self.generator = Arrays(knobs, batch, kind, on), torch.Generator(on)
        self.drawn = self.draw()
        self.rows = put(race.table(knobs, steps), on)
        self.at, self.along = torch.zeros(1, dtype=torch.long, device=on), torch.arange(batch, device=on)
        self.losses, self.still = torch.zeros(steps, device=on), torch.zeros(race.WHITENED, device=on)
        self.phases = race.phases(knobs, steps)
        self.between = {one.side: pictures.between(images.shape[1], one.side, shown, on) for one in self.phases}
        self.fused = fused_here(on, kind) if is_compiled and on.type == "cuda" else None
        self.forward = self.fused.forward if self.fused else net.forward
        self.pictured = self.fused.pictured if self.fused else pictures.pictured
        self.learn, self.move = self.learned, self.arrays.move
        if is_compiled and not self.fused:
            self.learn, self.move = compiled(self.learn), compiled(self.move)
        self.takes = [functools.partial(self.step, phase) for phase in self.phases]
        self.recorded, self.why = False, None

    def draw(self):
        return pictures.draw(
            len(self.images), self.steps * self.batch, self.knobs.shift, self.knobs.jitter, self.generator, self.on)

    def normalise(self, images, into):
        return into.copy_(images).sub_(self.mean).div_(self.deviation)

    # -- beforehand -----------------------------------------------------------------------------------------------
    def prepare(self, test, records=True):
        """Compile, capture, and train and test once on random labels, so that none of this counts in a training's time.
        A CPU needs no preparation. test: the images that will be tested, on the device; records: whether steps are to
        be CUDA graphs if possible."""
        if self.waits:
            return
        torch.backends.cudnn.benchmark = True
        labels = self.labels.clone()
        self.labels.random_(0, race.CLASSES, generator=self.generator)
        if records and graphs.has_graphs(self.on):
            self.record(graphs.Recorder())
        self.train(0)
        self.predict(test)
        self.labels.copy_(labels)
        self.wait()

    def record(self, recorder):
        """Capture each kind of step after some throwaway ones. recorder: a graphs.Recorder, or its equivalent."""
        found = []
        try:
            for take in self.takes:
                for _ in range(graphs.FIRST):
                    self.reset(0)
                    recorder.ahead(take)
                self.reset(0)
                found.append(recorder.recorded(take))
            self.takes, self.recorded = found, True
        except RuntimeError as error:
            if is_out_of_memory(str(error)):
                raise
            while isinstance(error.__context__, RuntimeError):  # what broke the capture, not that it then could not end
                error = error.__context__
            self.why = str(error).strip().split("\n")[0]

    def wait(self):
        if self.on.type == "cuda":
            torch.cuda.synchronize(self.on)

    # -- a training -----------------------------------------------------------------------------------------------
    def reset(self, seed):
        """Start over: weights, whitening and all random draws."""
        with torch.no_grad():
            self.generator.manual_seed(seed & 0xFFFFFFFF)  # as elsewhere; it refuses more than 64 bits
            self.normalise(self.images, self.pixels)
            self.arrays.reset(self.generator, self.pixels[: self.knobs.whitening_images])
            for old, new in zip(self.drawn, self.draw()):
                old.copy_(new)
            self.at.zero_()

    def train(self, seed, watch=None):
        """Train from scratch. watch(step) is called after each step; if nothing waits, the device may lag behind."""
        self.reset(seed)
        for phase, take in zip(self.phases, self.takes):
            for step in range(phase.first, phase.last):
                take()
                if watch:
                    watch(step)

    def step(self, phase):
        row, places = self.rows.index_select(0, self.at)[0], self.at * self.batch + self.along
        parts = self.arrays.parts
        leaves = [part for name, part in parts.items() if phase.whitens or name != net.WHITENING]
        loss = self.learn(places, phase.side, parts if phase.whitens else {
            **parts, net.WHITENING: parts[net.WHITENING].detach()})
        gradients = torch.autograd.grad(loss * self.arrays.scale, leaves)
        with torch.no_grad():
            self.move(gradients if phase.whitens else [*gradients, self.still], row)
            self.losses.index_copy_(0, self.at, loss.reshape(1) / self.batch)
            self.at.add_(1)

    def learned(self, places, side, parts):
        """Return the loss of the examples at these places; this is what torch.compile compiles."""
        which, mirrored = pictures.chosen(self.drawn, places)
        x = self.pictured(self.pixels, which, mirrored, self.drawn.shifts[:, places], self.between[side])
        if any(self.knobs.jitter):
            x = pictures.toned(x, self.drawn.tones[:, places])
        x = x.contiguous(memory_format=LAST)
        logits = self.forward(x, self.arrays.kept(parts), self.knobs.running)
        return net.loss(logits, self.labels[which], self.knobs.smoothing)

    # -- a test ---------------------------------------------------------------------------------------------------
    def predict(self, images, check=bool):
        """Return the predicted class of each image (uint8 [n, 32, 32, 3], on the device). check() is called all along,
        and may raise.

        Images that are unsure after two views get four more, which count half. Their chunks are padded, because cuDNN
        runs a search for each new batch size."""
        with torch.no_grad():
            x = self.normalise(images, self.pixels.new_empty(images.shape)).permute(0, 3, 1, 2)
            kept, many = self.arrays.kept(self.arrays.parts), min(AT_ONCE, len(x))
            logits = torch.cat([self.seen(x[at:at + many], 0, kept, check) for at in range(0, len(x), many)])
            sure = torch.softmax(logits / 2, dim=1).amax(dim=1)
            for part in (sure < self.knobs.unsure).nonzero()[:, 0].split(many):
                filled = torch.nn.functional.pad(part, (0, many - len(part)))
                logits[part] += self.seen(x[filled], 1, kept, check)[: len(part)] / 2
            return logits.argmax(dim=1)

    def seen(self, x, which, kept, check):
        """Return the sum of the logits of pictures.views(x)[which]."""
        logits = 0
        for view in pictures.views(x)[which]:
            check()
            logits = logits + self.forward(view.contiguous(memory_format=LAST), kept, None)
        return logits


def fused_here(on, kind):
    """Return the module `fused` if its kernels can be compiled here and compute what net.py does; else None."""
    try:
        from . import fused

        fused.check(on, kind)
    except Exception:  # no Triton, one too old, no C compiler, ...: torch.compile says what it lacks
        return None
    return fused
