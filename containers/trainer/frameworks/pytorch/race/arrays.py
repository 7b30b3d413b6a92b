"""What is trained, and how it is updated: weights and momenta are one array each, so an update is one kernel.

Filters come first, as [outputs, height, width, inputs], in float32; convolutions get them in the dtype that they
compute in. Every array keeps its address, because CUDA graphs read and write at fixed addresses.
"""
import numpy as np
import torch

from .... import race
from . import muon, net

WIDTHS = [width for width in race.WIDTHS for _ in range(2)]  # the filters' outputs, in order
INPUTS = [race.WHITENED, *WIDTHS[:-1]]
# In float16 the summed loss is multiplied by this. Most gradients at the outputs of the last convolutions would
# otherwise be below 6.1e-5, where float16 has fewer digits. Those of the filters, at most 33, stay far below 65,504.
SCALE = 64.0


def size(shape):
    return int(np.prod(shape))


class Arrays:
    """on: the device; batch: how many losses are summed in the loss that is differentiated; scale: the factor of that
    loss, by which the update divides again (Muon's does not depend on it)."""

    def __init__(self, knobs, batch, kind, on):
        self.knobs, self.kind = knobs, kind
        filters = {name: (width, 3, 3, inputs) for name, width, inputs in zip(net.FILTERS, WIDTHS, INPUTS)}
        others = {name: (width,) for name, width in zip(net.OFFSETS, WIDTHS)}
        others.update({"head/weights": (race.WIDTHS[-1], race.CLASSES), "head/biases": (race.CLASSES,),
                       net.WHITENING: (race.WHITENED,)})
        self.shapes = {**filters, **others}
        self.edge = sum(map(size, filters.values()))
        self.weights, self.momenta = (
            torch.zeros(sum(map(size, self.shapes.values())), device=on) for _ in range(2))
        self.shares = torch.full_like(self.weights, knobs.momentum)
        self.shares[: self.edge] = knobs.filter_momentum
        rates = [knobs.head_rate if name in net.HEAD else knobs.offset_rate
                 for name, shape in others.items() for _ in range(size(shape))]
        self.scale = SCALE if kind == torch.float16 else 1.0
        self.rates = torch.tensor(rates, device=on) / (batch * self.scale)
        self.of_whitening = torch.arange(len(rates), device=on) >= len(rates) - race.WHITENED
        self.norms = {f"{name}/{which}": torch.ones(width, device=on)
                      for name, width in zip(net.NORMS, WIDTHS) for which in ("mean", "variance", "scale")}
        self.whitening = torch.zeros(race.WHITENED, 2, 2, 3, dtype=net.of_images(kind), device=on).permute(0, 3, 1, 2)
        self.filters = self.weights[: self.edge] if kind == torch.float32 else self.weights[: self.edge].to(kind)
        self.parts = self.viewed(self.filters, self.weights)

    def viewed(self, filters, others):
        """Return {name: tensor} views of arrays laid out as self.weights is; each is a leaf that can have gradients."""
        found, first = {}, 0
        for name, shape in self.shapes.items():
            last = first + size(shape)
            array = (filters if last <= self.edge else others)[first:last].view(shape).detach()
            found[name] = (array.permute(0, 3, 1, 2) if len(shape) == 4 else array).requires_grad_()
            first = last
        return found

    def matrices(self, flat):
        """Return the filters of such an array, each as [outputs, all else]."""
        found, first = [], 0
        for width, inputs in zip(WIDTHS, INPUTS):
            found.append(flat[first:first + width * 9 * inputs].view(width, 9 * inputs))
            first += width * 9 * inputs
        return found

    def kept(self, parts):
        """Return everything that net.forward() computes with."""
        return {**parts, **self.norms, "whiten/weights": self.whitening}

    def reset(self, generator, images):
        """Start over; images: some of the training's pixels [n, 32, 32, 3], as they are trained on.

        Filters start as the identity on their inputs; outputs beyond those start as small noise."""
        self.whitening.copy_(net.whitening(images, self.knobs.whitening_epsilon))
        for array in self.weights, self.momenta:
            array.zero_()
        for name, array in self.norms.items():
            array.fill_(0.0 if name.endswith("/mean") else 1.0)
        for matrix, width, inputs in zip(self.matrices(self.weights), WIDTHS, INPUTS):
            limit = (9 * inputs) ** -0.5
            matrix.uniform_(-limit, limit, generator=generator)
            matrix[:inputs] = 0
            through = torch.arange(min(width, inputs), device=matrix.device)
            matrix.view(width, 3, 3, inputs)[through, 1, 1, through] = 1
        head = self.parts["head/weights"]
        limit = len(head) ** -0.5 / 9
        head.uniform_(-limit, limit, generator=generator)
        self.filters.copy_(self.weights[: self.edge])

    def move(self, gradients, row):
        """Update the weights by a row of race.table(). gradients: of self.shapes in order, filters as
        [outputs, inputs, 3, 3]."""
        edge = self.edge
        flat = [one.permute(0, 2, 3, 1) if one.dim() == 4 else one for one in gradients]
        flat = torch.cat([one.reshape(-1).float() for one in flat])
        self.momenta.mul_(self.shares).add_(flat)
        steps = flat.addcmul_(self.momenta, self.shares)  # Nesterov's
        others = self.weights[edge:]
        pace = torch.where(self.of_whitening, row[race.WHITENING], row[race.PACE])
        others.sub_(pace * (self.rates * steps[edge:] + self.knobs.decay * others))
        muon.move(self.matrices(self.weights[:edge]), self.matrices(steps[:edge]), row[race.FILTER_RATE],
                  self.knobs.polynomials, self.kind)
        if self.kind != torch.float32:
            self.filters.copy_(self.weights[:edge])
