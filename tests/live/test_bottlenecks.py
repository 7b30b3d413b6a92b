"""Bottlenecks planted in real images are reported: at the end, in `show`, in the record, in the report.

The trainings are real, in TensorFlow 1.4 and PyTorch. The lab's cards can't compute, so the GPU is faked: its figures
come from a text file, and planted/sitecustomize.py claims that the framework computed on it.
"""

from __future__ import annotations

import os
import re
import signal
from typing import Any

import pytest
from house import until
from ngcdl_child import Done, Started, User, planted

pytestmark = pytest.mark.lab

TRAIN = ("--train", "cifar10", "--data", "synthetic", "--no-eval")
SAMPLES = 6  # five are needed for a diagnosis
STEPS = ("--steps", "10000000")
PATIENCE_SECONDS = 300  # the CPU may be shared
# The image, with a driver and a card of the lab that suit it.
TENSORFLOW, PYTORCH = ("tensorflow:18.01-py2", "535.104.05", 0), ("pytorch:26.07-py3", "615.61", 1)


def has_card(user: User, driver: str, card: int, **said: int) -> None:
    """Give the user's stand-in driver this version, and one card these readings."""
    user.has_gpus(driver=driver, **{f"gpu{card}__{name}": value for name, value in said.items()})


def trained(user: User, image: str, *words: str, plant: str = "few") -> Done:
    """Train until enough is measured, then stop it as Ctrl-C does."""
    child = user.start("run", image, *TRAIN, *STEPS, *planted(plant), *words)
    measured(user, child, SAMPLES)
    child.signal(signal.SIGINT)
    done = child.done(PATIENCE_SECONDS)
    assert done.code == 130, done
    return done


def measured(user: User, child: Started, samples: int) -> None:
    """Wait for `samples` samples between the first logged step and the last, as a diagnosis counts them."""

    def enough() -> bool:
        if child.process.poll() is not None:
            raise AssertionError(f"it ended: {child.out}{child.err}")
        steps = [event["t"] for event in user.lines("events.jsonl") if event["event"] == "step"]
        return bool(steps) and sum(steps[0] <= one["t"] <= steps[-1] for one in user.lines("samples.jsonl")) >= samples

    until(enough, f"{samples} samples of the training", PATIENCE_SECONDS)


def found(user: User, rule: str) -> dict[str, Any]:
    (one,) = (one for one in user.shown()["findings"] if one["rule"] == rule)
    return dict(one)


def test_a_planted_slow_input_pipeline_is_named_wherever_one_looks(user: User) -> None:
    image, driver, card = TENSORFLOW  # in each framework loop.py counts the waits for what ahead.py makes
    has_card(user, driver, card, utilization=47)
    # One image per batch: its step on the CPU is short compared with making the batch, even under other load.
    words = (*TRAIN, "--batch", "1", "--steps", "11", "--gpus", f"{card},", "--device", "auto", *planted("slow"))
    done = user.run("run", image, *words, seconds=240)
    assert done.code == 0, done
    record = user.record()
    first = record["findings"][0]
    assert first["rule"] == "input-bound", record["findings"]
    assert first["numbers"]["gpu_percent"] == 47
    assert first["numbers"]["waited_percent"] >= 30
    sentence = first["text"]
    full = r"(, one CPU core at (9\d|100) %)?"  # on a shared CPU the load may be spread over two cores
    waited = r"\d+ % of the time the training waited for its next batch\. The input pipeline holds it back\."
    assert re.fullmatch(f"GPU 47 % busy{full}: {waited}", sentence)
    assert "num_workers" in done.out, "what to do stands beside it"
    page = user.here / "page.html"
    assert user.run("report", "last", "--html", str(page)).code == 0
    for told in (done.out, user.run("show").out, page.read_text()):
        assert sentence in " ".join(told.split())


def test_a_card_that_the_framework_leaves_idle_is_named(user: User) -> None:
    image, driver, card = TENSORFLOW
    has_card(user, driver, card, utilization=0)
    done = trained(user, image, "--batch", "32", "--threads", "1", "--gpus", f"{card},", "--device", "auto")
    assert "The run had a GPU, but its framework computed on the CPU." in done.out
    assert user.record()["findings"][0]["rule"] == "gpu-idle"


def test_a_batch_that_is_too_small_for_its_card_is_named(user: User) -> None:
    image, driver, card = PYTORCH
    has_card(user, driver, card, utilization=30)
    # the same batch again and again: a busy machine is not to take longer for it than a tiny step may take
    words = ("--batch", "1", "--feed", "constant", "--gpus", f"{card},", "--device", "auto")
    done = trained(user, image, *words, plant="tiny")
    told = found(user, "tiny-batch")
    assert told["text"] in done.out
    assert re.match(r"GPU 30 % busy with steps of \d\.\d ms at batch 1: ", told["text"])
    assert re.search(r"^ +ngcdl run .*--feed constant ((?!--batch).)*--batch 4$", done.out, re.MULTILINE)


def test_more_threads_than_processors_are_named(user: User) -> None:
    done = trained(user, TENSORFLOW[0], "--batch", "32", "--threads", "64", "--gpus", "none")
    cores = os.cpu_count()
    assert f"64 threads compute on {cores} cores: they take turns, which costs time." in done.out
    assert found(user, "oversubscribed")["numbers"] == {"threads": 64, "cores": cores}
    assert re.search(rf"^ +ngcdl run .*--batch 32 ((?!--threads).)*--threads {cores}$", done.out, re.MULTILINE)


def test_memory_that_is_nearly_used_up_is_named(user: User) -> None:
    """The limit is set by `docker update` while the training's use is stable, and lifted before it ends: what its start
    and its end need besides is not known."""
    words = ("--batch", "8", "--threads", "1", "--gpus", "none", *planted("few"))
    child = user.start("run", TENSORFLOW[0], *TRAIN, *STEPS, *words)
    measured(user, child, SAMPLES)

    def stable_bytes() -> int:
        used = [sample["memory_bytes"] or 0 for sample in user.lines("samples.jsonl")][-SAMPLES:]
        return max(used) if max(used) <= 1.02 * min(used) else 0

    used = until(stable_bytes, "a stable use of memory", PATIENCE_SECONDS)  # its start may have needed more
    (container,) = user.containers()
    limit = used + used // 10  # 91 %: reported from 90 % on

    def set_limit(size: str) -> None:
        user.docker("update", "--memory", size, "--memory-swap", size, container)

    set_limit(str(limit))

    def is_limited() -> bool:
        limits = [sample["memory_limit_bytes"] for sample in user.lines("samples.jsonl")]
        return sum(known is not None and known <= limit for known in limits) >= SAMPLES

    until(is_limited, "the limit", PATIENCE_SECONDS)
    set_limit(str(4 * used))  # the record keeps the lowest
    child.signal(signal.SIGINT)
    done = child.done(PATIENCE_SECONDS)
    assert "of the container's memory limit" in done.out, done
    assert found(user, "memory-pressure")["numbers"]["memory_used_share"] >= 0.9
