"""scripts/bench gpu, as far as it can be tried without a GPU: it compares the same, and understands peers."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import CONTAINERS, needs

from trainer import data
from trainer.__main__ import imported

sys.path.append(str(CONTAINERS.parent / "scripts" / "benchmarks"))

pytestmark = pytest.mark.torch
TABLE = """
----------------------------------------------------------------------------
|  run     |  epoch  |  train_acc  |  val_acc  |  tta_val_acc  |  time_seconds  |
|       3  |      7  |     0.9555  |   0.9301  |               |        2.4012  |
|          |   eval  |     0.9555  |   0.9301  |       0.9402  |        2.5903  |
----------------------------------------------------------------------------
"""


def test_without_a_gpu_it_says_so(monkeypatch):
    needs("torch")
    import gpu
    import torch
    from figures import Missing

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # where there is one, minutes would be measured
    with pytest.raises(Missing, match="a GPU that PyTorch sees"):
        list(gpu.measure(3))


@pytest.mark.parametrize("name", ["cifar10", "cifar10-keras"])
def test_the_usual_way_has_the_network_of_the_words(name):
    needs("torch")
    import gpu_networks
    import torch

    workload = imported(name)
    model = torch.nn.Sequential(*gpu_networks.layers(workload))
    assert sum(weight.numel() for weight in model.parameters()) == workload.PARAMETERS
    assert model(torch.zeros(2, 3, *workload.INPUT[:2])).shape == (2, 10)
    decayed = [layer for layer, factor in zip(model, gpu_networks.decays(workload), strict=True) if factor]
    assert [layer.out_features for layer in decayed] == ([384, 192] if name == "cifar10" else [])


@pytest.mark.parametrize("name", ["cifar10", "cifar10-keras"])
def test_both_ways_train_the_network_at_its_sources_batch(name):
    needs("torch")
    import gpu_networks

    pixels = np.random.RandomState(0).randint(0, 256, (512, 32, 32, 3)).astype(np.uint8)
    workload, images = imported(name), data.Dataset(pixels, np.arange(512, dtype=np.int32) % 10, "made", 1)
    step = gpu_networks.usual(workload, images, gpu_networks.NETWORKS[name], None, "cpu")
    loss, _ = gpu_networks.ours(workload, images, gpu_networks.NETWORKS[name], "cpu")()
    for first in float(step()), float(loss.detach()):
        assert 2 < first < 5, "nothing is learned yet: a cross-entropy of ln 10, and decay terms"


def test_accuracies_are_told_where_the_images_are_real(capsys):
    import gpu

    way = gpu.Trained("graphs", lambda seed: (0.5 + seed / 100, 0.94 + seed / 1000))
    assert [way() for _ in range(3)] == [0.5, 0.51, 0.52]
    gpu.tell([way], True, 500e12, 4e12)
    told = capsys.readouterr().out
    assert "| graphs | 3 | 0.510 | 0.010 | 0.9410 | 0.0010 | 0.11 | 82% |" in told
    assert "0.210 PFLOP" in told
    gpu.tell([way], False, 500e12, 4e12)
    assert "0.9410" not in capsys.readouterr().out
    taken = {"graphs": (0.5,) * 3, "compiled": (0.4,) * 3, "peer": (0.9,) * 3}
    assert [(one.against, one.is_met) for one in gpu.beside(taken, "a card")] == [("graphs", True), ("peer", True)]


def test_losses_are_held_against_those_on_the_cpu(monkeypatch, capsys):
    needs("torch")
    import gpu_apart

    theirs = gpu_apart.losses("batch-sweep", "cpu")
    assert len(theirs) == gpu_apart.STEPS
    assert gpu_apart.apart(gpu_apart.losses("batch-sweep", "cpu"), theirs) == [0] * gpu_apart.STEPS
    assert 0 < gpu_apart.largest(gpu_apart.apart(gpu_apart.losses("batch-sweep", "cpu", 1e-4), theirs)) < 1e-3
    told = {("gpu", 0.0): [2.0, 1.0, 0.01], ("cpu", 0.0): [2.0, 1.1, 0.0], ("cpu", gpu_apart.MOVED): [2.0, 1.1, 0.0]}
    monkeypatch.setattr(gpu_apart, "losses", lambda _, device, moved=0.0: told[device, moved])
    monkeypatch.setattr(sys, "argv", ["gpu_apart.py", "any"])
    assert gpu_apart.main() == "too far from the CPU: any"
    assert capsys.readouterr().out == "any: 9.1e-02, and of other roundings 0.0e+00\n"
    told["cpu", gpu_apart.MOVED] = [2.0, 1.12, 0.0]
    assert gpu_apart.main() == 0, "a network that makes so much of a rounding is no further apart than it must be"
    assert "cifar10-keras" in gpu_apart.trained()


def test_what_is_no_number_and_what_is_apart_before_any_step_is_too_far():
    import gpu_apart

    nothing = float("nan")
    assert gpu_apart.largest([1.0, nothing, 2.0]) != gpu_apart.largest([1.0, 2.0])
    assert gpu_apart.is_near([0.0, 0.2, 0.2], [0.0, 0.02, 0.01])
    assert not gpu_apart.is_near([0.0, 0.2, 0.3], [0.0, 0.02, 0.01])
    assert not gpu_apart.is_near([0.2, 0.0, 0.0], [0.0, 0.02, 0.01])
    assert not gpu_apart.is_near([0.0, nothing], [0.0, 0.1])
    assert not gpu_apart.is_near([0.0, 0.02], [0.0, nothing])


def test_a_peers_own_seconds_are_read_out_of_its_table():
    import gpu_peers

    assert gpu_peers.seconds_of(TABLE) == 2.5903


def test_a_peer_is_a_file_that_prepares_and_trains(tmp_path):
    import gpu_peers

    path = tmp_path / "peer.py"
    path.write_text(
        "import sys\n"
        "with open(sys.argv[0]) as own:\n"
        "    assert 'prepare' in own.read()\n"
        "def prepare(images, labels, test_images, test_labels):\n"
        "    return lambda seed: (seed + len(images), float(len(test_labels)))\n"
    )
    before = sys.argv
    part = SimpleNamespace(images=np.zeros((3, 32, 32, 3), np.uint8), labels=np.zeros(3, np.int32))
    assert gpu_peers.loaded(path, part, part)(4) == (7, 3.0)
    assert sys.argv is before


COMPILED = """
import torch
import torch.nn.functional as F
class Squashed(torch.nn.Module):
    def forward(self, x):
        return F.relu(x) + ADDED
net = torch.compile(torch.nn.Sequential(Squashed()), backend="eager")
def prepare(images, labels, test_images, test_labels):
    return lambda seed: (float(net(torch.full((seed + 1,), -1.0)).sum()), 0.5)
"""


def test_a_peer_may_compile_what_it_is_and_so_may_another_of_the_same_name(tmp_path):
    needs("torch")
    import gpu_peers

    part, peers = SimpleNamespace(images=[], labels=[]), []
    for added in 1, 2:
        path = tmp_path / str(added) / "airbench-94.py"
        path.parent.mkdir()
        path.write_text(COMPILED.replace("ADDED", str(added)))
        peers.append(gpu_peers.loaded(path, part, part))
    assert [peer(4) for peer in peers] == [(5.0, 0.5), (10.0, 0.5)], "compiled anew for another size, long after"


def test_a_peer_that_can_not_be_imported_leaves_no_module(tmp_path):
    import gpu_peers

    path, before = tmp_path / "peer.py", set(sys.modules)
    path.write_text("import nothing_that_is_here")
    with pytest.raises(ModuleNotFoundError, match="nothing_that_is_here"):
        gpu_peers.imported(path)
    assert set(sys.modules) == before


def test_what_compilers_ask_in_the_old_words_has_the_same_answer():
    needs("torch")
    import torch

    from trainer.frameworks.pytorch.numbers import allow_tf32

    for allowed in True, False:
        allow_tf32(allowed)
        assert torch.backends.cuda.matmul.allow_tf32 is allowed
        assert torch.backends.cudnn.allow_tf32 is allowed
        assert (torch.get_float32_matmul_precision() == "high") is allowed
