"""The smoke test: what it computes, what it leaves, and what makes it fail."""

import importlib
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from trainer_process import events, train

from trainer.events import Stop
from trainer.workloads import smoke

GOOD = smoke.WANTED, "cuda:0", "gpu", True


def test_on_a_cpu_it_passes_and_says_that_it_is_one(framework, tmp_path):
    out = train("smoke", "--out", tmp_path, "--framework", framework, "--record", CUDA_VISIBLE_DEVICES="-1")
    begun, found, finished = events(tmp_path)
    assert [event["event"] for event in (begun, found, finished)] == ["start", "smoke", "finish"]
    assert (begun["device"], begun["parameters"], begun["dataset"]) == ("cpu", 0, None)
    assert (found["product"], found["device"]) == ([[22, 28], [49, 64]], "cpu")
    assert found["devices"] == begun["devices"] != []
    assert found["place"].lower().endswith(("cpu", "cpu:0"))
    assert found["first_seconds"] > 0
    assert found["second_seconds"] > 0
    assert found["refused"] is found["memory_fraction"] is None, "a CPU has no share to keep to"
    took = re.search(r"\[\[22. 28.\] \[49. 64.\]\] on the CPU \(.+\): right. The first call took ([\d.]+) ms, ", out)
    assert took, out
    assert float(took[1]) == pytest.approx(1e3 * found["first_seconds"], abs=1e-3)
    assert "No GPU was used." in out
    assert json.loads((tmp_path / "run.json").read_text())["status"] == "finished"


def test_the_right_product_at_the_right_place_within_its_share_of_memory_passes():
    smoke.check(*GOOD)
    smoke.check(smoke.WANTED, "/job:localhost/replica:0/task:0/device:GPU:0", "gpu", None)


@pytest.mark.parametrize(
    ("changed", "kind", "said"),
    [
        ({0: smoke.WANTED + np.float32(1e-5)}, "smoke", r"The product is \[\[22.0000"),
        ({0: smoke.WANTED[:1]}, "smoke", r"not \[\[22.0, 28.0\], \[49.0, 64.0\]\]"),
        ({0: smoke.WANTED * np.nan}, "smoke", "nan"),
        ({1: "cpu"}, "no_gpu", "is on cpu, not on the GPU"),
        ({1: "/job:localhost/replica:0/task:0/device:CPU:0"}, "no_gpu", "not on the GPU"),
        ({1: "cuda:1"}, "no_gpu", "not on the GPU"),
        ({2: "cpu"}, "smoke", "is on cuda:0, not on the CPU"),
        ({3: False}, "smoke", "50 % of the card's memory was not refused"),
    ],
)
def test_whatever_is_wrong_fails_it_and_is_named(changed, kind, said):
    values = [changed.get(k, value) for k, value in enumerate(GOOD)]
    with pytest.raises(Stop, match=said) as caught:
        smoke.check(*values)
    assert (caught.value.kind, caught.value.exit_code) == (kind, 1)


def test_more_than_there_is_counts_as_refused_and_a_little_does_not(framework):
    on = importlib.import_module(f"trainer.frameworks.{framework}.smoke")
    network = SimpleNamespace(on={"tf2": "/CPU:0", "pytorch": "cpu"}[framework])
    assert on.refuses(network, 1 << 50) is True
    assert on.refuses(network, 1 << 22) is False


def test_what_could_not_be_tried_is_said():
    assert smoke.memory("gpu", True, 0.4) == "It keeps to 40 % of the card's memory: more was refused."
    assert "could not be tried" in smoke.memory("gpu", None, 0.4)
