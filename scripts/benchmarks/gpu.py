"""`cifar10-94` on a GPU against its peers, on a machine with PyTorch; needs no network:

    NGCDL_BENCH_PYTHON=python3 NGCDL_CIFAR10=DIR NGCDL_GPU_PEERS="airbench94_muon=PATH" scripts/bench gpu

NGCDL_CIFAR10: a folder with the images; without it they are synthetic, and no accuracy is reported. NGCDL_GPU_PEERS:
the peers' scripts, cloned by whoever measures, as described in gpu_peers.py. All train alternately in this process, on
the same arrays. What can't be compiled or called here is reported and left out. After eight minutes no further
trainings are added to narrow the statistics.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import card
from figures import Figure, Goal
from turns import in_turn

BUDGET_SECONDS = 480.0  # after this no further training is started
OURS = "graphs", "eager", "compiled"
CERTIFIED = 200  # trainings, if the time allows
BOUND = 0.94


@dataclass
class Trained:
    """A way to train; calling it returns the seconds. Keeps those and the accuracies of all trainings."""

    name: str
    once: Callable[[int], tuple[float, float]]
    seconds: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        took, accuracy = self.once(len(self.seconds))
        self.seconds.append(took)
        self.accuracies.append(accuracy)
        return took


def measure(rounds: int | None) -> Iterator[Figure]:
    began, here = time.monotonic(), card.named()
    import torch

    folder = os.environ.get("NGCDL_CIFAR10")
    ways = raced(folder)
    taken = in_turn({one.name: one for one in ways}, rounds or 12, 0)
    yield from beside(taken, here)
    best = next(one for one in ways if one.name == fastest(taken))
    while len(best.seconds) < CERTIFIED and time.monotonic() - began < BUDGET_SECONDS:
        best()
    tell(ways, bool(folder), card.products_per_second(torch.float16), card.bytes_per_second())


def raced(folder: str | None) -> list[Trained]:
    """Return ours with CUDA graphs, eager, and compiled with graphs; then the peers."""
    import gpu_peers

    from trainer import data

    arrays = data.training(folder), data.testing(folder)
    found = [Trained("graphs", ours(*arrays)), Trained("eager", ours(*arrays, is_recorded=False))]
    makers = {"compiled": lambda: ours(*arrays, is_compiled=True)}
    for word in os.environ.get("NGCDL_GPU_PEERS", "").split():
        name, _, path = word.partition("=")
        makers[name] = partial(gpu_peers.loaded, Path(path), *arrays)
    for name, make in makers.items():
        began = time.monotonic()
        try:
            found.append(Trained(name, make()))
        except Exception as error:  # a compiler's or a peer's: still measure the others
            print(f"    {name}: left out: {type(error).__name__}: {str(error)[:500]}", flush=True)
        else:
            print(f"    {name}: ready after {time.monotonic() - began:.0f} s", flush=True)
    return found


def ours(train: Any, test: Any, is_compiled: bool = False, is_recorded: bool = True) -> Callable[..., Any]:
    import torch

    from trainer import race
    from trainer.frameworks.pytorch.race import Race, put
    from trainer.workloads import cifar10_94 as workload

    on = torch.device("cuda:0")
    made = Race(on, torch.float16, race.KNOBS, workload.STEPS, workload.BATCH, train.images, train.labels, is_compiled)
    images, labels = put(test.images, on), put(test.labels, on)
    made.prepare(images, is_recorded)
    if made.why:
        print(f"    no graphs: {made.why}", flush=True)

    def once(seed: int) -> tuple[float, float]:
        made.wait()
        began = time.perf_counter()
        made.train(seed)
        guesses = made.predict(images).cpu()
        took = time.perf_counter() - began
        return took, float((guesses == labels.cpu()).float().mean())

    return once


def fastest(taken: dict[str, tuple[float, ...]]) -> str:
    """Return which of ours is compared with the peers."""
    return min((name for name in taken if name in OURS), key=lambda name: statistics.median(taken[name]))


def beside(taken: dict[str, tuple[float, ...]], here: str) -> Iterator[Figure]:
    what = "cifar10-94, from images on the device to guesses of all test images"
    best = fastest(taken)
    for name, took in taken.items():
        if name != best:
            goal = None if name in OURS else Goal("ratio", 0.8)
            yield Figure(what, "s", taken[best], goal, name, took, f"by {best}; {here}")


# -- the closing report -----------------------------------------------------------------------------------------------
def tell(ways: list[Trained], is_real: bool, rate: float, copied: float) -> None:
    """Print accuracies and rates as a Markdown table. rate: float16 operations per second; copied: bytes per second."""
    from trainer import certainty, race
    from trainer.workloads import cifar10_94 as workload

    flops = race.flops_per_example(race.KNOBS, workload.STEPS) * workload.STEPS * workload.BATCH
    print(f"\nThis card: {rate / 1e12:.0f} TFLOP/s in float16 products of 8192, {copied / 1e12:.2f} TB/s copied.")
    print(f"Ours computes {flops / 1e15:.3f} PFLOP per training, test excluded: {flops / rate:.3f} s at that rate.\n")
    print("| way | trainings | mean s | sd | mean accuracy | sd | p if the true mean is 94 % | of the rate |")
    print("|---|---|---|---|---|---|---|---|")
    for one in ways:
        (mean, apart), (accuracy, deviation) = certainty.spread(one.seconds), certainty.spread(one.accuracies)
        chance = certainty.chance_below(one.accuracies, BOUND)
        right = [f"{accuracy:.4f}", said(deviation, ".4f"), said(chance, ".2g")] if is_real else ["made-up images"] * 3
        share = f"{flops / rate / mean:.0%}" if one.name in OURS else "n/a"
        cells = [one.name, str(len(one.seconds)), f"{mean:.3f}", said(apart, ".3f"), *right, share]
        print(f"| {' | '.join(cells)} |")


def said(number: float | None, form: str) -> str:
    return "n/a" if number is None else format(number, form)
