"""`cifar10-94` on a GPU against its peers, on a machine with PyTorch; needs no network:

    export NGCDL_BENCH_PYTHON=python3 NGCDL_CIFAR10=DIR
    NGCDL_GPU_PEERS="airbench94_muon=PATH" scripts/bench gpu    # beside its peers
    NGCDL_GPU_PEERS= scripts/bench gpu --seconds 600            # time for 200 trainings: how sure is 94 %?

NGCDL_CIFAR10: a folder with the images. Without it they are synthetic: then there is neither an accuracy nor a verdict
about a peer, as ours needs fewer views to classify easy images. NGCDL_GPU_PEERS: the peers' scripts, cloned by whoever
measures, as described in gpu_peers.py. All train alternately in this process, on the same arrays, with TF32 where the
card has it. What can't be compiled or called here, or does not learn, is reported and left out. Our own ways come
first, as a peer's compiler may take minutes. Trainings are added to narrow the statistics, up to 200 in all and until
the time is up: that of --seconds, or eight minutes after the start; on synthetic images none are.

A time beside a peer's has a goal only if the mean accuracy is 94 % or more by a one-sided t-test at 5 % over all
trainings: a less accurate network is trained faster.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

import card
from figures import Figure, Goal, Missing
from turns import SURE_ROUNDS, in_turn, share

BUDGET_SECONDS = 480.0  # without --seconds: after this no further training is started
OURS = "compiled", "graphs", "eager"  # made in this order: the first has the card as a user's training has it
ROUNDS = 12
CERTIFIED = 200  # trainings of the fastest way, if the time allows
BOUND = 0.94
MOST_WRONG = 0.05  # of a hundred recipes whose true mean is no more than the bound, as many may pass for better
IMAGES = 50_000  # in CIFAR-10's training set


@dataclass
class Trained:
    """A way to train: calling it trains once and returns the seconds. It keeps the seconds and accuracies of all
    trainings. graphs: for ours, words that say whether the steps are CUDA graphs."""

    name: str
    once: Callable[[int], tuple[float, float]]
    graphs: str = ""
    seconds: list[float] = field(default_factory=list)
    accuracies: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        took, accuracy = self.once(len(self.seconds))
        self.seconds.append(took)
        self.accuracies.append(accuracy)
        return took


def measure(rounds: int | None, until: float) -> Iterator[Figure]:
    here = card.conditions()
    until = time.monotonic() + BUDGET_SECONDS if until == inf else until
    import torch

    card.fresh()
    folder = os.environ.get("NGCDL_CIFAR10")
    mine, others = makers(folder)
    ways = ready(mine)
    if not ways:
        raise Missing("a card on which one of our own ways trains: see above")
    rates = card.products_per_second(torch.float16), card.bytes_per_second()

    def figures(taken: dict[str, tuple[float, ...]]) -> Iterator[Figure]:
        accuracies = {one.name: one.accuracies for one in ways} if folder else None
        return beside(best.name, taken, {one.name: one.graphs for one in ways}, here, accuracies)

    try:
        first = SURE_ROUNDS if others else rounds or ROUNDS
        taken = in_turn({one.name: one for one in ways}, first, 0, share(until, 2))
        best = next(one for one in ways if one.name == fastest(taken))
        yield from figures(taken)
        tell(ways, bool(folder), *rates)  # what follows may be cut off
        known = len(best.seconds)
        try:
            if others:
                certify(best, bool(folder), share(until, 2))
                ways += ready(others)
                taken = in_turn({one.name: one for one in ways}, rounds or ROUNDS, 0, share(until, 2))
                yield from figures(taken)
                known = len(best.seconds)
            certify(best, bool(folder), until)
        finally:  # what is cut short counts as far as it came; these take the place of the figures above
            if len(best.seconds) > known:
                yield from figures(taken)
    finally:
        tell(ways, bool(folder), *rates)


def certify(best: Trained, is_real: bool, until: float) -> None:
    """Train more often, so that the mean accuracy is known better."""
    while is_real and len(best.seconds) < CERTIFIED and time.monotonic() < until:
        best()
        print(f"    {best.name}, training {len(best.seconds)}: {best.accuracies[-1]:.2%} right", flush=True)


Makers = dict[str, Callable[[], Trained]]


def makers(folder: str | None) -> tuple[Makers, Makers]:
    """Return what makes our three ways (by our own kernels, as CUDA graphs, eager), and the peers."""
    import gpu_peers

    from trainer.frameworks.pytorch import numbers

    numbers.chosen("auto", "gpu")  # sets TF32 for what is float32, as the trainer does by default
    arrays = images(folder)
    mine: Makers = {
        "compiled": partial(ours, "compiled", *arrays, is_compiled=True),
        "graphs": partial(ours, "graphs", *arrays),
        "eager": partial(ours, "eager", *arrays, is_recorded=False),
    }
    others: Makers = {}
    for word in os.environ.get("NGCDL_GPU_PEERS", "").split():
        name, _, path = word.partition("=")
        others[name] = lambda name=name, path=path: Trained(name, gpu_peers.loaded(Path(path), *arrays))
    return mine, others


def ready(makers: Makers) -> list[Trained]:
    """Make these ways, and report and leave out what fails."""
    found: list[Trained] = []
    for name, make in makers.items():
        began = time.monotonic()
        try:
            found.append(make())
        except Exception as error:  # a compiler's or a peer's: still measure the others
            print(f"    {name}: left out: {type(error).__name__}: {str(error)[:500]}", flush=True)
        else:
            print(f"    {name}: ready after {time.monotonic() - began:.0f} s", flush=True)
    return found


def images(folder: str | None) -> tuple[Any, Any]:
    """Return what to train on, and what to test. Synthetic images are repeated until there are as many as in CIFAR-10,
    because a peer's number of steps depends on that."""
    import numpy as np

    from trainer import data

    train, test = data.training(folder), data.testing(folder)
    if not folder:
        train.images = np.resize(train.images, (IMAGES, *train.images.shape[1:]))
        train.labels = np.resize(train.labels, IMAGES)
    return train, test


def ours(name: str, train: Any, test: Any, is_compiled: bool = False, is_recorded: bool = True) -> Trained:
    import torch

    from trainer import race
    from trainer.frameworks.pytorch.race import Race, put
    from trainer.workloads import cifar10_94 as workload

    on = torch.device("cuda:0")
    made = Race(on, torch.float16, race.KNOBS, workload.STEPS, workload.BATCH, train.images, train.labels, is_compiled)
    images, labels = put(test.images, on), put(test.labels, on)
    made.prepare(images, is_recorded)
    finite(made.losses)  # of a training on random labels
    why = f" ({made.why})" if made.why else ""
    graphs = ("CUDA graphs" if made.recorded else f"no CUDA graphs{why}") + ", our own kernels" * bool(made.fused)

    def once(seed: int) -> tuple[float, float]:
        made.wait()
        began = time.perf_counter()
        made.train(seed)
        guesses = made.predict(images).cpu()
        took = time.perf_counter() - began
        finite(made.losses)
        return took, float((guesses == labels.cpu()).float().mean())

    return Trained(name, once, graphs)


def finite(losses: Any) -> None:
    """Raise FloatingPointError if a loss is not finite: a training that learns nothing is no figure, however fast."""
    if not bool(losses.isfinite().all()):
        last = ", ".join(f"{one:.3g}" for one in losses[-3:].tolist())
        raise FloatingPointError(f"losses are not finite: ..., {last}")


def fastest(taken: dict[str, tuple[float, ...]]) -> str:
    """Return the name of our way that is compared with the peers: the one with the least median."""
    return min((name for name in taken if name in OURS), key=lambda name: statistics.median(taken[name]))


def beside(
    best: str,
    taken: dict[str, tuple[float, ...]],
    graphs: dict[str, str],
    here: dict[str, str],
    accuracies: dict[str, list[float]] | None,
) -> Iterator[Figure]:
    """Yield the figures of `best`, a way of ours, against all others. graphs: for each way, as in Trained; accuracies:
    of all trainings of each way, 0..1, None for made-up images."""
    what = "cifar10-94, from images on the device to guesses of all test images"
    what += "" if accuracies else " (made-up images)"  # another figure: it must not replace that of real images
    is_right = accuracies is not None and is_certain(accuracies[best])
    for name, took in taken.items():
        if name != best:
            is_race = is_right and name not in OURS
            how = [f"by {one}: {graphs[one]}" for one in (best, name) if graphs[one]]
            right = [averaged(one, accuracies[one]) for one in (best, name)] if accuracies else []
            goal, note = Goal("ratio", 0.8) if is_race else None, "; ".join([*how, *right])
            yield Figure(what, "s", taken[best], goal, name, took, note, conditions=here)


def is_certain(accuracies: list[float]) -> bool:
    """Return whether the true mean is above the bound, with a chance of at most 5 % to be wrong."""
    from trainer import certainty

    chance = certainty.chance_below(accuracies, BOUND)
    return chance is not None and chance <= MOST_WRONG


def averaged(name: str, accuracies: list[float]) -> str:
    return f"{statistics.fmean(accuracies):.2%} right on average by {name}, n = {len(accuracies)}"


# -- the closing report -----------------------------------------------------------------------------------------------
def tell(ways: list[Trained], is_real: bool, rate: float, copied: float) -> None:
    """Print accuracies and rates as a Markdown table, without what has not trained yet. rate: float16 operations per
    second; copied: bytes per second."""
    from trainer import certainty, race
    from trainer.workloads import cifar10_94 as workload

    flops = race.flops_per_example(race.KNOBS, workload.STEPS) * workload.STEPS * workload.BATCH
    print(f"\nThis card: {rate / 1e12:.0f} TFLOP/s in float16 products of 8192, {copied / 1e12:.2f} TB/s copied.")
    print(f"Ours computes {flops / 1e15:.3f} PFLOP per training, test excluded: {flops / rate:.3f} s at that rate.\n")
    print("| way | trainings | mean s | sd | mean accuracy | sd | p if the true mean is 94 % | of the rate |")
    print("|---|---|---|---|---|---|---|---|")
    for one in ways:
        if not one.seconds:
            continue
        (mean, apart), (accuracy, deviation) = certainty.spread(one.seconds), certainty.spread(one.accuracies)
        chance = certainty.chance_below(one.accuracies, BOUND)
        right = [f"{accuracy:.4f}", said(deviation, ".4f"), said(chance, ".2g")]
        if not is_real:  # shows that it learns, and nothing else
            right = [f"{accuracy:.4f} of made-up images", "n/a", "n/a"]
        share = f"{flops / rate / mean:.0%}" if one.name in OURS else "n/a"
        cells = [one.name, str(len(one.seconds)), f"{mean:.3f}", said(apart, ".3f"), *right, share]
        print(f"| {' | '.join(cells)} |")


def said(number: float | None, form: str) -> str:
    return "n/a" if number is None else format(number, form)
