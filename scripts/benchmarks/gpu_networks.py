"""The networks of `cifar10-keras` and `cifar10` at their sources' batch sizes: ours against typical PyTorch code.

Typical code: torch.nn layers of the same network, torch.optim, zero_grad, backward, step; eager, with torch.compile,
and with torch.compile using its own CUDA graphs. The images are on the device for all. `cifar10`, whose images the CPU
distorts, trains on one batch over and over (--feed constant), because the GPU's part is what is compared. What can't be
compiled here is reported and left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import card
from figures import Figure, Goal
from turns import in_turn, share

NETWORKS = {"cifar10": "constant", "cifar10-keras": "resident"}  # the one that was never measured comes first
WAYS = {"PyTorch eager": None, "torch.compile": "default", "torch.compile, reduce-overhead": "reduce-overhead"}
WARM_UP = 20  # steps beforehand, in which networks are compiled or recorded
AT_ONCE = 50  # steps between two clock readings, which wait for the GPU
WINDOW_SECONDS = 1.0
MOVED = {"sgd": 3, "adam": 7}  # 4-byte numbers that a step reads and writes per weight, gradients included

Step = Callable[[], object]


def measure(rounds: int | None, until: float) -> Iterator[Figure]:
    here = card.conditions()
    for number, name in enumerate(NETWORKS):
        yield from rates(name, rounds or 6, here, share(until, len(NETWORKS) - number))


def rates(name: str, rounds: int, here: dict[str, str], until: float) -> Iterator[Figure]:
    """Yield examples per second; the goal is three times the rate of eager."""
    import torch

    from trainer import data
    from trainer.__main__ import imported

    card.fresh()
    workload, images = imported(name), data.synthetic("train")
    step, network = ours(workload, images, NETWORKS[name])
    ways = {"ours": partial(rate, step, workload.BATCH, WINDOW_SECONDS)}
    for way, mode in WAYS.items():
        try:
            once = partial(rate, usual(workload, images, NETWORKS[name], mode), workload.BATCH, WINDOW_SECONDS)
            once()
        except Exception as error:  # a compiler's: still measure the others
            print(f"    {name}, {way}: left out: {type(error).__name__}: {str(error)[:500]}", flush=True)
        else:
            ways[way] = once
    taken = in_turn(ways, rounds, until=until)
    products, copied = card.products_per_second(torch.float32), card.bytes_per_second()
    moved = 4 * workload.PARAMETERS * MOVED[workload.RECIPE["optimiser"]["op"]]
    floors = {
        "compute": workload.FLOPS * workload.BATCH / products,
        "memory, of weights and optimiser alone,": moved / copied,
    }
    which = max(floors, key=lambda one: floors[one])
    share = median(taken["ours"]) / workload.BATCH * floors[which]
    graphs = "CUDA graphs" if network.stepper and network.stepper.replay else "no CUDA graphs"
    floor = f"{share:.1%} of the {which} floor of {floors[which] * 1e6:.1f} us a step"
    note = f"{graphs}; {floor}; feed {NETWORKS[name]}"
    for way in list(ways)[1:]:
        goal = Goal("ratio", 3.0, at_least=True) if way == "PyTorch eager" else None
        what = f"{name}, batch {workload.BATCH}"
        yield Figure(what, "examples/s", taken["ours"], goal, way, taken[way], note, conditions=here)


def rate(step: Step, batch: int, seconds: float) -> float:
    """Return examples per second, measured over at least `seconds`."""
    import torch

    for _ in range(WARM_UP):
        step()
    torch.cuda.synchronize()
    steps, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        for _ in range(AT_ONCE):
            step()
        torch.cuda.synchronize()
        steps += AT_ONCE
    return steps * batch / (time.perf_counter() - began)


def ours(workload: Any, images: Any, feed: str, on: str = "gpu") -> tuple[Step, Any]:
    """Return a step of the trainer's own loop, and its Network. The 20,000 synthetic images are 625 full batches of
    32."""
    from trainer.frameworks.pytorch import Network
    from trainer.recipe import Model

    model = Model(workload.NETWORK, workload.RECIPE, workload.INPUT, workload.BATCH)
    network = Network(model, on)
    network.load(model.first(0))
    batches = network.batches(workload.source(images, workload.BATCH, 0, 0.4), 0, 2**62, feed)
    numbers = iter(range(2**62))

    def step() -> object:
        return network.train(next(batches), model.turn(next(numbers), 0))

    return step, network


def usual(workload: Any, images: Any, feed: str, mode: str | None, on: str = "cuda") -> Step:
    import torch
    from torch.nn import functional

    torch.manual_seed(0)
    model = torch.nn.Sequential(*layers(workload)).to(on).to(memory_format=torch.channels_last)
    learned = torch.compile(model, mode=mode) if mode else model
    optimisers = {
        "adam": partial(torch.optim.Adam, lr=workload.RECIPE["rate"], eps=1e-7),
        "sgd": partial(torch.optim.SGD, lr=0.1),
    }
    optimiser = optimisers[workload.RECIPE["optimiser"]["op"]](model.parameters())
    decayed = [layer.weight for layer, factor in zip(model, decays(workload), strict=True) if factor]
    averages = None
    if workload.RECIPE["averages"]:
        kept = torch.optim.swa_utils.get_ema_multi_avg_fn(0.9999)
        averages = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=kept)
    batches = fed(workload, images, feed, on)

    def step() -> object:
        x, labels = next(batches)
        optimiser.zero_grad()
        loss = functional.cross_entropy(learned(x), labels)
        for weight in decayed:
            loss = loss + 0.002 * weight.pow(2).sum()
        loss.backward()
        optimiser.step()
        if averages:
            averages.update_parameters(model)
        return loss.detach()

    return step


def fed(workload: Any, images: Any, feed: str, on: str) -> Iterator[Any]:
    """Yield images [batch, 3, side, side] and labels, from the same images in an order drawn on the device."""
    import torch

    pixels, labels = torch.from_numpy(images.images).to(on), torch.from_numpy(images.labels).long().to(on)
    if feed == "constant":
        given, wanted = workload.source(images, workload.BATCH, 0, 0.4)(0)
        batch = torch.from_numpy(given).to(on).permute(0, 3, 1, 2), torch.from_numpy(wanted).long().to(on)
        while True:
            yield batch
    while True:
        order = torch.randperm(len(labels), device=on)
        for chosen in order.split(workload.BATCH):
            if len(chosen) == workload.BATCH:
                yield pixels[chosen].permute(0, 3, 1, 2).float() / 255, labels[chosen]


def decays(workload: Any) -> list[float]:
    """Return each layer's weight decay; 0 for layers without weights."""
    return [
        word.get("decay", 0.0) if hasattr(layer, "weight") else 0.0 for word in workload.NETWORK for layer in made(word)
    ]


def layers(workload: Any) -> list[Any]:
    return [layer for word in workload.NETWORK for layer in made(word)]


def made(word: dict[str, Any]) -> list[Any]:
    """Return the torch.nn layers for a word, with a Flatten before every dense layer: it matters only for the first
    one."""
    from torch import nn

    op = word["op"]
    if op == "conv":
        height, width, inputs, outputs = word["shape"]
        return [nn.Conv2d(inputs, outputs, (height, width), word["stride"], word["padding"])]
    if op == "dense":
        return [nn.Flatten(), nn.Linear(*word["shape"])]
    if op == "max_pool":
        return [nn.MaxPool2d(word["size"], word["stride"], ceil_mode=word["padding"] != (0, 0))]
    if op == "lrn":
        size = 2 * word["radius"] + 1
        return [nn.LocalResponseNorm(size, word["alpha"] * size, word["beta"], word["bias"])]
    return [nn.Dropout(word["rate"]) if op == "dropout" else nn.ReLU()]
