"""Made-up recorded runs: a training on a CPU or GPU, of any length, with gaps and throttled clocks."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from made_summaries import filled

from ngcdl.folder import EVENTS, SAMPLES
from ngcdl.record import Gpu, Image, Machine, Run
from ngcdl.report.shown.columns import read_story
from ngcdl.report.shown.story import Story
from ngcdl.storing.store import Store

UUID = "GPU-5f1e2d3c-0a1b-4c2d-8e3f-105010501050"
IMAGE = "nvcr.io/nvidia/tensorflow:18.01-py2"
DIGEST = "sha256:" + "5" * 64
STARTED = 1_700_000_000.0


@dataclass(frozen=True)
class Made:
    """What is made up: `steps`, every tenth of them logged, `rate` examples/s at `batch`."""

    device: str = "gpu"
    steps: int = 2000
    rate: float = 4700.0
    batch: int = 128
    seed: int = 0
    dataset: str = "cifar10"
    cores: int = 16
    digest: str | None = DIGEST
    workload: str = "cifar10"
    held: bool = False  # the card slows down for a fifth of the time
    samples: int | None = None  # how many; None: one a second

    @property
    def seconds(self) -> float:
        return 8 + self.steps * self.batch / self.rate

    def run(self, run_id: str) -> Run:
        training = {
            "name": self.workload, "steps": self.steps, "batch": self.batch, "seed": self.seed, "data": "auto",
            "device": self.device, "evaluate": True, "resume": None,
        }  # fmt: skip
        spec = {
            "image": IMAGE, "command": ["python", "-m", "trainer", "cifar10"],
            "gpus": UUID if self.device == "gpu" else "none", "mounts": [], "environment": {}, "workload": training,
        }  # fmt: skip
        card = Gpu(0, "NVIDIA GeForce GTX 1050 Ti", UUID, 4_235_198_464, "6.1")
        return Run(
            run_id, "finished", STARTED, STARTED + self.seconds + 3, 0, False, engine="docker", engine_version="26.1.5",
            gpu_way="runtime" if self.device == "gpu" else "none", image=Image(IMAGE, self.digest),
            dataset=self.dataset, device=self.device, gpus=(UUID,) if self.device == "gpu" else (), spec=spec,
            machine=Machine(
                "training-host", "Intel(R) Xeon(R) E5-2658", self.cores, 64 << 30, "6.1.0", "535.104.05", (card,)
            ),
        )  # fmt: skip

    def events(self) -> Iterator[dict[str, Any]]:
        noise = random.Random(self.seed)
        yield {
            "event": "start", "t": STARTED + 5, "format": 1, "workload": self.workload, "framework": "tf1",
            "framework_version": "1.4.0", "python": "2.7.12", "device": self.device, "batch": self.batch,
            "steps": self.steps, "seed": self.seed, "parameters": 1068298, "dataset": self.dataset,
            "dataset_images": 50000, "dataset_sha256": None, "dataset_note": None, "resumed_from_step": None,
        }  # fmt: skip
        for step in range(0, self.steps, 10):
            rate = self.rate * (1 + noise.uniform(-0.03, 0.03)) * (0.7 if step % 600 == 590 else 1)
            loss = 1.2 + 3.4 * math.exp(-step / 900) + noise.uniform(-0.15, 0.15)
            yield {
                "event": "step", "t": STARTED + 8 + step * self.batch / self.rate, "step": step, "loss": loss,
                "examples_per_second": rate if step else None, "seconds_per_batch": self.batch / rate if step else None,
            }  # fmt: skip
        end = STARTED + self.seconds + 1
        yield {
            "event": "eval",
            "t": end,
            "step": self.steps,
            "precision_at_1": 0.616,
            "examples": 10000,
            "seconds": 1.0,
        }
        yield {"event": "finish", "t": end + 1, "step": self.steps, "seconds": end - STARTED}

    def measured(self) -> Iterator[dict[str, Any]]:
        noise = random.Random(self.seed + 1)
        count = self.samples or int(self.seconds + 3)
        for at in range(count):
            x = at if self.samples is None else at * self.seconds / count
            busy = 5 < x < self.seconds
            hot = self.held and 0.4 < x / self.seconds < 0.6
            cpu = (82.0 if self.device == "cpu" else 31.0) if busy else 3.0
            cores = [
                round(min(100.0, max(0.0, cpu + noise.gauss(0, 4) + (20 if core == 3 else 0))), 1)
                for core in range(self.cores)
            ]
            gpu = {
                "index": 0, "uuid": UUID, "name": "NVIDIA GeForce GTX 1050 Ti",
                "gpu_percent": 88 + noise.randint(-3, 3) if busy else 0,
                "memory_used_bytes": (1881 << 20) if busy else (61 << 20), "memory_total_bytes": 4039 << 20,
                "watts": round(61 + noise.uniform(-4, 4), 1) if busy else 9.0, "celsius": 62,
                "sm_mhz": 1290 if hot else 1620 if busy else 139,
                "throttle_reasons": ["sw_thermal_slowdown"] if hot else [] if busy else ["gpu_idle"],
            }  # fmt: skip
            gap = 0.70 < x / self.seconds < 0.74
            yield {
                "t": STARTED + x, "seconds": x, "host_cpu_percent": None if gap else round(sum(cores) / len(cores), 1),
                "cpu_percents": None if gap else cores, "container_cpu_percent": cpu * self.cores,
                "memory_bytes": 2 << 30,
                "gpus": [] if self.device != "gpu" or gap else [gpu], "gap": "nobody answered" if gap else None,
            }  # fmt: skip

    def story(self, run_id: str = "made", letter: str = "A", **more: Any) -> Story:
        run = filled(self.run(run_id), self.events(), self.measured())
        return replace(read_story(replace(run, **more), self.events(), self.measured()), letter=letter)

    def keep(self, store: Store, run_id: str, **more: Any) -> Path:
        """Write it as a finished run is written."""
        run = replace(filled(self.run(run_id), self.events(), self.measured()), **more)
        folder = store.create(run)
        for name, lines in ((EVENTS, self.events()), (SAMPLES, self.measured())):
            with (folder / name).open("w") as file:
                file.writelines(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        (folder / "log.txt").write_text("step 0\n")
        return folder
