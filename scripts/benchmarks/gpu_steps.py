#!/usr/bin/env python3
"""What the steps of cifar10-94 consist of, on a GPU: milliseconds of each kind of step, and its longest kernels.

    PYTHON scripts/benchmarks/gpu_steps.py [--lines 25]

First as PyTorch runs it, then with --compile. PYTHON has PyTorch and sees a GPU that no other program uses. Images are
made up, which no time depends on but that of the test: few of these images need further views.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "containers"))

import gpu
import torch
from torch.profiler import ProfilerActivity, profile

from trainer import race
from trainer.frameworks.pytorch import numbers
from trainer.frameworks.pytorch.race import Race, put
from trainer.workloads import cifar10_94 as workload

WATCHED = 4  # steps that the profiler watches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=25, help="kernels to list")
    lines = parser.parse_args().lines
    numbers.chosen("auto", "gpu")
    train, test = gpu.images(None)
    on, steps, batch = torch.device("cuda:0"), workload.STEPS, workload.BATCH
    for is_compiled in False, True:
        began = time.perf_counter()
        one = Race(on, torch.float16, race.KNOBS, steps, batch, train.images, train.labels, is_compiled)
        images = put(test.images, on)
        one.prepare(images)
        way, ready = "--compile" if is_compiled else "as it is", time.perf_counter() - began
        graphs = "CUDA graphs" if one.recorded else f"no CUDA graphs: {one.why}"
        print(f"\n== {way}: {graphs}; ready after {ready:.1f} s")
        for seed in range(3):
            times(one, images, seed)
        for phase, take in zip(one.phases, one.takes, strict=True):
            print(f"   {phase.side} pixels{', biases learn' if phase.whitens else ''}:")
            kernels(one, phase, take, lines)


def times(one: Any, images: Any, seed: int) -> None:
    found = [f"reset {timed(one, lambda: one.reset(seed)):.2f}"]
    for phase, take in zip(one.phases, one.takes, strict=True):
        steps = phase.last - phase.first
        each = timed(one, lambda take=take, steps=steps: [take() for _ in range(steps)]) / steps
        found.append(f"a step of {phase.side} pixels {each:.3f}")
    found.append(f"the test {timed(one, lambda: one.predict(images)):.1f}")
    found.append(f"a training without its test {timed(one, lambda: one.train(seed)):.1f}")
    print(f"   ms: {'; '.join(found)}; last loss {float(one.losses[-1]):.3f}", flush=True)


def timed(one: Any, work: Any) -> float:
    one.wait()
    began = time.perf_counter()
    work()
    one.wait()
    return 1000 * (time.perf_counter() - began)


def kernels(one: Any, phase: Any, take: Any, lines: int) -> None:
    """Print a step's kernels, the longest first."""
    one.at.fill_(phase.first)
    with profile(activities=[ProfilerActivity.CUDA]) as watched:
        for _ in range(WATCHED):
            take()
        one.wait()
    total: dict[str, float] = defaultdict(float)
    for event in watched.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            total[event.name] += event.time_range.elapsed_us() / WATCHED
    print(f"   {sum(total.values()):8.1f} us in all")
    for name in sorted(total, key=lambda name: -total[name])[:lines]:
        print(f"   {total[name]:8.1f} us  {name[:100]}", flush=True)


if __name__ == "__main__":
    main()
