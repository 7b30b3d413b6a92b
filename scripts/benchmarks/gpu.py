"""Training on a GPU: cifar10-94 beside its peers, and small networks beside PyTorch's own ways to train them.

One command on a machine with a GPU and PyTorch, without network and within nine minutes:

    NGCDL_BENCH_PYTHON=python3 NGCDL_CIFAR10=DIR NGCDL_GPU_PEERS="airbench94_muon=PATH" scripts/bench gpu

NGCDL_CIFAR10: a folder with the images; without it they are made up, and no accuracy is told. NGCDL_GPU_PEERS: peers'
scripts, cloned by whoever measures, as gpu_peers.py takes them. All train in this process in turn, on the same arrays.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures import Figure, Goal, Missing
from turns import in_turn, seconds

CONTAINERS = Path(__file__).resolve().parents[2] / "containers"
NETWORKS_SECONDS, BUDGET_SECONDS = 360.0, 500.0  # after which nothing more is begun, of the small networks and of all
OURS = "graphs", "eager", "compiled"
CERTIFIED = 200  # trainings, if there is time for them
BOUND = 0.94
WINDOW_SECONDS = 1.0


@dataclass
class Trained:
    """A way to train, which tells its seconds; accuracies are kept beside them, of measured rounds and of others."""

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
    began = time.monotonic()
    try:
        import torch
    except ImportError as error:
        raise Missing(f"PyTorch ({error}): NGCDL_BENCH_PYTHON names a Python that has it") from error
    if not torch.cuda.is_available():
        raise Missing("a GPU that PyTorch sees")
    sys.path.insert(0, str(CONTAINERS))
    rounds = rounds or 12
    card = f"{torch.cuda.get_device_name(0)}, PyTorch {torch.__version__}"
    folder = os.environ.get("NGCDL_CIFAR10")
    yield from cold_starts(folder, card)
    ways = raced(folder)
    taken = in_turn({one.name: one for one in ways}, rounds, 0)
    yield from beside(taken, card)
    from gpu_networks import NETWORKS, rates

    for name in NETWORKS:
        if time.monotonic() - began < NETWORKS_SECONDS:
            yield from rates(name, max(rounds // 2, 3), WINDOW_SECONDS, card)
        else:
            print(f"    {name}: left out, for the time is up", flush=True)
    best = next(one for one in ways if one.name == fastest(taken))
    while len(best.seconds) < CERTIFIED and time.monotonic() - began < BUDGET_SECONDS:
        best()
    tell(ways, bool(folder), products_per_second(torch.float16), bytes_per_second())


# -- cifar10-94 -------------------------------------------------------------------------------------------------------
def cold_starts(folder: str | None, card: str) -> Iterator[Figure]:
    """From the start of the process to the tested network: with nothing kept of an earlier one, and then again."""
    first, again = [], []
    for _ in range(3):
        with tempfile.TemporaryDirectory() as caches:
            first.append(process(folder, caches))
            again.append(process(folder, caches))
    what = "python -m trainer cifar10-94, the whole process"
    yield Figure(what, "s", tuple(first), Goal("ours", 10.0), note=f"nothing kept; {card}")
    yield Figure(f"{what}, again", "s", tuple(again), Goal("ours", 10.0), note=card)
    with tempfile.TemporaryDirectory() as caches:  # too long for more than one
        try:
            print(
                f"    {what}, --compile: {process(folder, caches, '--compile'):.1f} s, once, nothing kept", flush=True
            )
        except SystemExit as ended:  # there may be no compiler
            print(f"    {what}, --compile: {ended}", flush=True)


def process(folder: str | None, caches: str, *options: str) -> float:
    """Give the seconds of a training as a process of its own; what libraries keep is kept in caches."""
    command = [sys.executable, "-m", "trainer", "cifar10-94", "--device", "gpu", "--runs", caches]
    command += ["--data", folder or "synthetic", *options]
    kept = {name: f"{caches}/{name}" for name in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH")}
    environment = {**os.environ, **kept, "PYTHONPATH": str(CONTAINERS)}
    return seconds(command, environment)


def raced(folder: str | None) -> list[Trained]:
    """Give ours by graphs, compiled and by graphs, and one kernel after the other; then the peers."""
    import gpu_peers

    from trainer import data
    from trainer.events import Stop

    arrays = data.training(folder), data.testing(folder)
    found = [Trained("graphs", ours(*arrays)), Trained("eager", ours(*arrays, is_recorded=False))]
    try:
        found.append(Trained("compiled", ours(*arrays, is_compiled=True)))
    except Stop as stop:
        print(f"    compiled: {stop.message}", flush=True)
    named = [word.partition("=")[::2] for word in os.environ.get("NGCDL_GPU_PEERS", "").split()]
    return found + [Trained(name, gpu_peers.loaded(Path(path), *arrays)) for name, path in named]


def ours(train: Any, test: Any, is_compiled: bool = False, is_recorded: bool = True) -> Callable[..., Any]:
    import torch

    from trainer import race
    from trainer.frameworks.pytorch.race import Race, put
    from trainer.workloads import cifar10_94 as workload

    on = torch.device("cuda:0")
    made = Race(on, torch.float16, race.KNOBS, workload.STEPS, workload.BATCH, train.images, train.labels, is_compiled)
    images, labels = put(test.images, on), put(test.labels, on)
    eager = made.takes
    made.prepare(images)
    if made.why:
        print(f"    no graphs: {made.why}", flush=True)
    if not is_recorded:
        made.takes = eager

    def once(seed: int) -> tuple[float, float]:
        made.wait()
        began = time.perf_counter()
        made.train(seed)
        guesses = made.predict(images).cpu()
        took = time.perf_counter() - began
        return took, float((guesses == labels.cpu()).float().mean())

    return once


def fastest(taken: dict[str, tuple[float, ...]]) -> str:
    """Give which of ours is to be held against the peers."""
    return min((name for name in taken if name in OURS), key=lambda name: statistics.median(taken[name]))


def beside(taken: dict[str, tuple[float, ...]], card: str) -> Iterator[Figure]:
    what = "cifar10-94, from images on the device to guesses of all test images"
    best = fastest(taken)
    for name, took in taken.items():
        if name != best:
            goal = None if name in OURS else Goal("ratio", 0.8)
            yield Figure(what, "s", taken[best], goal, name, took, f"by {best}; {card}")


# -- what is told at the end ------------------------------------------------------------------------------------------
def tell(ways: list[Trained], is_real: bool, rate: float, copied: float) -> None:
    """Print accuracies and floors as a Markdown table. rate: operations a second in float16; copied: bytes a second."""
    from trainer import certainty, race
    from trainer.workloads import cifar10_94 as workload

    flops = race.flops_per_example(race.KNOBS, workload.STEPS) * workload.STEPS * workload.BATCH
    print(f"\nThis card: {rate / 1e12:.0f} TFLOP/s in float16 products of 8192, {copied / 1e12:.2f} TB/s copied.")
    print(f"Ours computes {flops / 1e15:.3f} PFLOP a training but for the test: {flops / rate:.3f} s at that rate.\n")
    print("| way | trainings | mean s | sd | mean accuracy | sd | p of a true mean of 94 % or less | of the rate |")
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


def products_per_second(kind: Any, side: int = 8192, times: int = 20) -> float:
    import torch

    a, b = (torch.randn(side, side, device="cuda", dtype=kind) for _ in range(2))
    return 2 * side**3 * times / timed(lambda: torch.mm(a, b), times)


def bytes_per_second(count: int = 2**30, times: int = 20) -> float:
    """Copied: each byte is read and written."""
    import torch

    a, b = (torch.empty(count, device="cuda", dtype=torch.uint8) for _ in range(2))
    return 2 * count * times / timed(lambda: a.copy_(b), times)


def timed(work: Callable[[], object], times: int) -> float:
    import torch

    for _ in range(3):
        work()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(times):
        work()
    torch.cuda.synchronize()
    return time.perf_counter() - began
