"""What is measured beside cifar10-94 is a peer's own script, as its authors publish it."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from trainer_process import CONTAINERS

sys.path.append(str(CONTAINERS.parent / "scripts" / "benchmarks"))

pytestmark = pytest.mark.torch
TABLE = """
----------------------------------------------------------------------------
|  run     |  epoch  |  train_acc  |  val_acc  |  tta_val_acc  |  time_seconds  |
|       3  |      7  |     0.9555  |   0.9301  |               |        2.4012  |
|          |   eval  |     0.9555  |   0.9301  |       0.9402  |        2.5903  |
----------------------------------------------------------------------------
"""


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
    path.write_text("def prepare(*_):\n    return lambda seed: (1.0, (0.93, 0.94))\n")
    with pytest.raises(TypeError, match="tuple"):
        gpu_peers.loaded(path, part, part)


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
