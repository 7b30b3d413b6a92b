"""The networks' words (layers), computed by the TensorFlow of 2018 on Python 2.7 and by PyTorch from equal weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ngcdl_child import User

pytestmark = pytest.mark.lab

TRAINER = Path(__file__).parents[2] / "containers" / "trainer"

# Runs in both images: Python 2.7 and 3.
SCRIPT = """
from __future__ import division, print_function
import importlib, json, sys
import numpy as np
from trainer import cost
from trainer.layers import batch_norm, concat, conv, dense, max_pool, normal, residual, sigmoid, smooth
from trainer.recipe import Model, recipe, sgd, untrained
from trainer.workloads import batch_sweep, inference

maker = importlib.import_module("trainer.frameworks." + sys.argv[1])
one, found = normal(1), {}


def computed(name, words, shape):
    out = int(np.prod(cost.layers(words, shape)[1]))
    model = Model(words + [dense("end", out, 3, normal(out ** -0.5), one)], untrained(), shape, 4)
    network, random, values = maker.Network(model, "cpu"), np.random.RandomState(3), {}
    for array, sides in model.kept().items():
        values[array] = random.normal(size=sides).astype(np.float32)
        if array.endswith("/variance"):
            values[array] = np.abs(values[array]) + np.float32(0.5)
    network.load(values)
    found[name] = network.logits(random.normal(size=(4,) + shape).astype(np.float32)).ravel().tolist()
    network.close()


computed("wide", [conv("c", (1, 7), 2, 5, one, one)], (9, 9, 2))
computed("high", [conv("c", (7, 1), 2, 5, one, one)], (9, 9, 2))
computed("uneven", [conv("c", (3, 5), 2, 5, one, one, padding=(2, 1))], (9, 9, 2))
computed("halved", [conv("c", 3, 2, 5, one, one, stride=2, padding=0)], (9, 9, 2))
computed("smooth", [smooth("s", 3)], (6, 5, 2))
computed("norm", [batch_norm("b", 3, 0.9, 0.01, scaled=False)], (6, 6, 3))
computed("residual", [residual("r", [sigmoid("s")], [])], (6, 6, 3))
inner = concat("inner", [sigmoid("s")], [conv("c", (1, 3), 2, 3, one)])
computed("concat", [concat("outer", [max_pool("p", 3, 1, (1, 1)), inner], [], [smooth("m", 3)])], (5, 4, 2))

words = [batch_norm("b", 5, 0.9, 0.01), dense("end", 5, 3, one, one)]
network = maker.Network(Model(words, recipe(sgd(), 0.1), (5,), 4), "cpu")
network.load(network.model.first(0))
vectors = np.random.RandomState(5).normal(1, 3, (4, 5)).astype(np.float32), np.array([0, 1, 2, 1], np.int32)
(batch,) = network.batches(lambda step: vectors, 0, 1, "plain")
network.train(batch, network.model.turn(0, 0))
found["running"] = network.values()["b/variance"].tolist()
network.close()

network = maker.Network(Model(inference.NETWORK, inference.RECIPE, inference.INPUT, 1), "cpu")
network.load(network.model.first(0))
found["inference"] = network.logits(inference.scaled(inference.load(None).images[:1])).ravel().tolist()
network.close()

network = maker.Network(Model(batch_sweep.NETWORK, batch_sweep.RECIPE, batch_sweep.INPUT, 64), "cpu")
network.load(network.model.first(0))
batches = network.batches(batch_sweep.source(batch_sweep.load(None), 64, 0, 0.4), 0, 5)
found["batch-sweep"] = [float(network.train(batch, network.model.turn(k, 0))[0]) for k, batch in enumerate(batches)]
print("FOUND " + json.dumps(found))
"""


def _found(user: User, image: str, framework: str, folder: Path) -> dict[str, list[float]]:
    (folder / "script.py").write_text(SCRIPT)
    mounts = (
        "-v",
        f"{TRAINER}:/there/trainer:ro",
        "-v",
        f"{folder}:/script:ro",
        "-e",
        "PYTHONPATH=/there",
        "-e",
        "OMP_NUM_THREADS=1",
    )
    name = f"{user.lab['registry']['host']}/nvidia/{image}"
    out = user.docker("run", "--rm", *mounts, name, "python", "/script/script.py", framework, seconds=300)
    (line,) = [line for line in out.splitlines() if line.startswith("FOUND ")]
    found: dict[str, Any] = json.loads(line.removeprefix("FOUND "))
    return found


def test_the_same_weights_give_the_same_answers_in_the_tensorflow_of_2018_and_in_pytorch(
    user: User, tmp_path: Path
) -> None:
    one = _found(user, "tensorflow:18.01-py2", "tf1", tmp_path)
    other = _found(user, "pytorch:26.07-py3", "pytorch", tmp_path)
    assert one.keys() == other.keys()
    for name, numbers in one.items():
        assert len(set(numbers)) > 2, name
        assert other[name] == pytest.approx(numbers, rel=1e-4, abs=1e-4), name
    assert len(one["inference"]) == 2048
