"""Releases and cards that are not here: each test shows what one of them has or lacks."""

import importlib
import shutil
import subprocess
from types import SimpleNamespace

import pytest

from trainer.events import Stop
from trainer.group import Group
from trainer.recipe import Model
from trainer.workloads import smoke

CUDA = """
#include <stddef.h>
static int started;
int cuInit(unsigned flags) { started = 1; return FAILS; }
int cuDeviceGet(int *device, int index) { *device = 70 + index; return started && index < 2 ? 0 : 101; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = device == 71 ? 5000000000u : 1; return 0; }
"""


@pytest.mark.torch
def test_a_pytorch_without_devices_is_refused_by_name(torch, monkeypatch):
    from trainer.frameworks import pytorch

    monkeypatch.delattr(torch, "device")
    with pytest.raises(ImportError, match=r"this is for PyTorch 0\.4 or later, here is " + torch.__version__[:3]):
        importlib.reload(pytorch)


@pytest.mark.torch
def test_a_pytorch_that_has_one_way_to_communicate_is_refused_on_several_cards(torch, monkeypatch):
    from torch import distributed

    from trainer.frameworks.pytorch.together import Together

    monkeypatch.setattr(distributed, "new_group", lambda ranks=None: ranks)
    monkeypatch.setattr(distributed, "init_process_group", None)  # nobody is there, and it would wait for them
    with pytest.raises(Stop, match=r"which several cards need: leave --replicas out") as stop:
        Together(Group(0, 2, workers=["127.0.0.1:1", "127.0.0.1:2"]), torch.device("cuda"))
    assert stop.value.kind == "bad_argument"


@pytest.mark.tensorflow
def test_a_strategy_that_can_not_yet_run_is_asked_by_its_early_name():
    import tensorflow as tf
    from trainer.frameworks.tf2.together import Together

    early = object.__new__(Together)
    early.strategy = SimpleNamespace(experimental_run_v2=lambda function, words: function(*words))
    assert float(early.running(lambda one: one + 1)(tf.constant(1.0))) == 2


@pytest.fixture
def cards(monkeypatch):
    """Make TensorFlow 2 see two cards; return what it is told about them. They can't compute: the model has nothing."""
    import tensorflow as tf

    known, told = tf.config.experimental, []
    gpus = [SimpleNamespace(name=f"/physical_device:GPU:{number}") for number in range(2)]
    monkeypatch.setattr(known, "list_physical_devices", lambda _: gpus)
    monkeypatch.setattr(known, "get_device_details", lambda _: {"compute_capability": (7, 0)})
    monkeypatch.setattr(known, "set_visible_devices", lambda chosen, _: told.extend(gpu.name[-5:] for gpu in chosen))
    monkeypatch.setattr(
        known,
        "set_virtual_device_configuration",
        lambda gpu, parts: told.append((gpu.name[-5:], parts[0].memory_limit)),
    )
    return told


@pytest.fixture
def driver(tmp_path, monkeypatch):
    """Return what replaces the CUDA driver by one that knows two cards, and may fail."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    from trainer.frameworks.tf2 import memory

    def made(fails=0):
        code, library = tmp_path / f"cuda{fails}.c", tmp_path / f"libcuda{fails}.so.1"
        code.write_text(CUDA.replace("FAILS", str(fails)))
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, code], check=True)
        monkeypatch.setattr(memory, "LIBRARY", str(library))
        return memory

    return made


MODEL = Model(smoke.NETWORK, smoke.RECIPE, smoke.INPUT, 1)


@pytest.mark.tensorflow
@pytest.mark.parametrize(("device", "named"), [("gpu", 1), ("cpu", 0)])
def test_one_tensorflow_2_replica_takes_memory_on_one_card_only(cards, device, named):
    """On the CPU as well: a teacher there starts the runtime for the student too."""
    from trainer.frameworks.tf2 import Network

    assert len(Network(MODEL, device).devices) == named
    assert cards == ["GPU:0"]


@pytest.mark.tensorflow
def test_tensorflow_2s_share_is_of_what_the_driver_says_of_that_card(cards, driver):
    """NVML counts all cards of the host, and has no totals for MIG and for memory shared with the CPU."""
    from trainer.frameworks import tf2

    driver()
    gpu = SimpleNamespace(name="/physical_device:GPU:1")
    tf2.limit(gpu, 1, 0.4)
    assert cards == [("GPU:1", int(5e9 * 0.4 / 2**20))]


@pytest.mark.tensorflow
def test_a_driver_that_tells_no_memory_size_is_named(cards, driver, monkeypatch):
    from trainer.frameworks import tf2

    memory = driver()
    assert [memory.total_bytes(card) for card in (0, 1, 2)] == [1, 5000000000, None]
    monkeypatch.setattr(memory, "LIBRARY", "libnowhere.so")
    assert memory.total_bytes(0) is None
    assert driver(fails=100).total_bytes(0) is None
    with pytest.raises(Stop, match="the CUDA driver does not report") as stop:
        tf2.limit(None, 0, 0.4)
    assert (stop.value.kind, cards) == ("bad_argument", [])
