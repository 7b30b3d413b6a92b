"""Releases and cards that are not here: each test shows what one of them has or lacks."""

import importlib
import shutil
import subprocess
from types import SimpleNamespace

import pytest
from trainer_process import python

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
int cuDeviceGetAttribute(int *told, int which, int device) { *told = which == 18 && device == 71; return 0; }
"""


@pytest.mark.torch
def test_a_pytorch_without_devices_is_refused_by_name(torch, monkeypatch):
    from trainer.frameworks import pytorch

    monkeypatch.delattr(torch, "device")
    with pytest.raises(ImportError, match=r"this is for PyTorch 0\.4 or later, here is " + torch.__version__[:3]):
        importlib.reload(pytorch)


@pytest.mark.torch
def test_nccl_waits_as_long_as_gloo_for_a_replica_that_still_compiles(torch, monkeypatch):
    from torch import distributed

    from trainer.frameworks.pytorch.together import PATIENCE, Together

    told = []

    def made(backend=None, timeout=None, **_):
        told.append((backend, timeout))

    monkeypatch.setattr(distributed, "init_process_group", made)
    monkeypatch.setattr(distributed, "new_group", made)
    group = Group(0, 2, workers=["127.0.0.1:1", "127.0.0.1:2"])
    monkeypatch.setattr(group, "report", lambda joins: told.append(joins))
    Together(group, torch.device("cuda"))
    assert told == [True, ("gloo", PATIENCE), False, ("nccl", PATIENCE)]


@pytest.mark.torch
def test_a_pytorch_that_has_one_way_to_communicate_is_refused_on_several_cards(torch, monkeypatch):
    from torch import distributed

    from trainer.frameworks.pytorch.together import Together

    monkeypatch.setattr(distributed, "new_group", lambda ranks=None: ranks)
    monkeypatch.setattr(distributed, "init_process_group", None)  # nobody is there, and it would wait for them
    with pytest.raises(Stop, match=r"which several cards need: leave --replicas out") as stop:
        Together(Group(0, 2, workers=["127.0.0.1:1", "127.0.0.1:2"]), torch.device("cuda"))
    assert stop.value.kind == "bad_argument"


@pytest.mark.torch
def test_a_pytorch_whose_replicas_can_not_be_told_how_long_to_wait_is_refused_on_cpus_too(torch, monkeypatch):
    from torch import distributed

    from trainer.frameworks.pytorch.together import Together

    monkeypatch.delattr(distributed, "ReduceOp")
    monkeypatch.setattr(distributed, "init_process_group", lambda **_: None)
    for place in "cpu", "cuda":
        with pytest.raises(Stop, match=r"how long replicas wait for each other.*: leave --replicas out") as stop:
            Together(Group(0, 2, workers=["127.0.0.1:1", "127.0.0.1:2"]), torch.device(place))
        assert stop.value.kind == "bad_argument"


@pytest.mark.torch
def test_an_autocast_that_takes_its_dtype_by_another_name_is_refused(torch, monkeypatch):
    from trainer.frameworks.pytorch import numbers

    class Early:
        """As in 1.10.0a0 of NVIDIA's images 21.07 to 21.09."""

        def __init__(self, device_type, enabled=True, **more):
            for word in more.keys() - {"fast_dtype"}:
                raise RuntimeError(f"Unrecognized optional argument supplied to autocast context manager: {word}")

    assert numbers.chosen("amp", "cpu") == "bfloat16"
    monkeypatch.setattr(torch, "autocast", Early)
    for _ in range(2):
        with pytest.raises(Stop, match=r"has no torch\.autocast that takes a dtype.*leave --precision out") as stop:
            numbers.chosen("amp", "cpu")
        assert stop.value.kind == "bad_argument"
        assert numbers.chosen("auto", "cpu") == "float32"
        monkeypatch.delattr(torch, "autocast", raising=False)  # before 1.10


@pytest.mark.torch
@pytest.mark.parametrize("lacking", ["conv2d", "max_pool2d"])
def test_an_autocast_whose_layers_do_not_compute_on_a_cpu_is_refused(torch, monkeypatch, lacking):
    from trainer.frameworks.pytorch import numbers

    def early(x, *_):
        raise RuntimeError(f"\"{lacking}\" not implemented for 'BFloat16'")

    monkeypatch.setattr(torch.nn.functional, lacking, early)
    with pytest.raises(Stop, match=r"computes in bfloat16 here: leave --precision out") as stop:
        numbers.chosen("amp", "cpu")
    assert stop.value.kind == "bad_argument"
    assert numbers.chosen("auto", "cpu") == "float32"


@pytest.mark.torch
def test_a_pytorch_whose_means_are_over_one_dimension_computes_the_same_to_the_bit(torch, monkeypatch):
    from trainer.frameworks.pytorch.ops import LAYERS

    def early(x, dim):
        assert isinstance(dim, int), "before 1.1 a TypeError"
        return torch.mean(x, dim)

    monkeypatch.setattr(torch.Tensor, "mean", early)
    for layout in torch.contiguous_format, torch.channels_last:
        for kind in torch.float32, torch.bfloat16:
            x = torch.randn(3, 64, 7, 5).to(kind).contiguous(memory_format=layout)
            assert torch.equal(LAYERS["global_avg_pool"]({}, x, None), torch.mean(x, (2, 3)))


@pytest.mark.torch
def test_a_pytorch_without_an_lstm_that_can_be_called_has_no_such_layer_and_all_others(torch, monkeypatch):
    from trainer.frameworks.pytorch import ops

    with monkeypatch.context() as early:
        early.delattr(torch, "lstm")  # 0.4
        lacking = set(importlib.reload(ops).LAYERS)
    assert set(importlib.reload(ops).LAYERS) - lacking == {"lstm"}


@pytest.mark.torch
def test_a_pytorch_that_knows_nothing_of_cudas_products_is_told_nothing_of_tf32(torch, monkeypatch):
    from trainer.frameworks.pytorch import numbers

    before = SimpleNamespace(backends=SimpleNamespace(cudnn=SimpleNamespace()))  # 1.0
    monkeypatch.setattr(numbers, "torch", before)
    numbers.allow_tf32(True)
    assert vars(before.backends.cudnn) == {}


@pytest.mark.torch
@pytest.mark.parametrize("allowed", [True, False])
def test_a_pytorch_whose_products_know_no_other_attribute_is_told_of_tf32(torch, monkeypatch, allowed):
    from trainer.frameworks.pytorch import numbers

    class Products:
        """https://github.com/pytorch/pytorch/blob/v1.12.0/torch/backends/cuda/__init__.py"""

        def __getattr__(self, name):
            raise AssertionError("Unknown attribute " + name)

    backends = SimpleNamespace(cuda=SimpleNamespace(matmul=Products()), cudnn=SimpleNamespace())  # 1.7 to 2.0
    monkeypatch.setattr(numbers, "torch", SimpleNamespace(backends=backends))
    numbers.allow_tf32(allowed)
    assert (backends.cuda.matmul.allow_tf32, backends.cudnn.allow_tf32) == (allowed, allowed)


def test_a_tensorflow_1_before_its_sessions_list_devices_is_refused_by_name():
    code, out, err = python(
        "import importlib, sys, types\n"
        "stand_in = sys.modules['tensorflow'] = types.ModuleType('tensorflow')\n"
        "for version in '1.0.1 1.3.0 1.4.0 1.12.0-rc2 1.15.5+nv21.3 2.0.0'.split():\n"
        "    stand_in.__version__ = version\n"
        "    sys.modules.pop('trainer.frameworks.tf1', None)\n"
        "    try:\n"
        "        importlib.import_module('trainer.frameworks.tf1')\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
    )
    assert (code, out.splitlines()) == (
        0,
        [f"this is for TensorFlow 1.4 to 1.15, here is {version}" for version in ("1.0.1", "1.3.0", "2.0.0")],
    ), err


@pytest.mark.tensorflow
@pytest.mark.parametrize("lacking", ["error", "empty"])
@pytest.mark.parametrize("layer", ["conv2d", "FusedBatchNormV3"])
def test_a_tensorflow_whose_cpu_has_no_layers_in_bfloat16_is_refused(monkeypatch, layer, lacking):
    import tensorflow as tf
    from trainer.frameworks.tf2 import numbers

    def early(*_, **__):
        if lacking == "error":
            raise tf.errors.NotFoundError(None, None, "Could not find valid device for node")
        return tf.zeros((1, 0), tf.bfloat16)

    assert numbers.chosen("amp", []) == "bfloat16"
    monkeypatch.setattr(tf.nn if layer == "conv2d" else tf.raw_ops, layer, early)
    with pytest.raises(Stop, match=r"no images in bfloat16 on a CPU: leave --precision out") as stop:
        numbers.chosen("amp", [])
    assert stop.value.kind == "bad_argument"
    assert numbers.chosen("auto", []) == "float32"


@pytest.mark.tensorflow
def test_a_strategy_that_can_not_yet_run_is_asked_by_its_early_name():
    import tensorflow as tf
    from trainer.frameworks.tf2.together import Together

    early = object.__new__(Together)
    early.strategy = SimpleNamespace(experimental_run_v2=lambda function, words: function(*words))
    assert float(early.running(lambda one: one + 1)(tf.constant(1.0))) == 2


@pytest.mark.tensorflow
def test_an_early_tensorflow_2_that_takes_every_plain_number_for_float32_compares_those_of_replicas(monkeypatch):
    import tensorflow as tf
    from trainer.frameworks.tf2.together import Together

    one_hot = tf.one_hot

    def early(index, depth, on_value, off_value, dtype):
        """https://github.com/tensorflow/tensorflow/blob/v2.1.0/tensorflow/python/ops/array_ops.py"""
        if {tf.convert_to_tensor(value).dtype for value in (on_value, off_value)} != {dtype}:
            raise TypeError("dtype of on_value or off_value does not match dtype parameter")
        return one_hot(index, depth, on_value, off_value, dtype=dtype)

    monkeypatch.setattr(tf, "one_hot", early)
    alone = object.__new__(Together)
    alone.group, alone.sum = Group(1, 3), lambda tensor: tf.add(tensor, [3.0, 0.0, 2.0])
    assert (alone.largest(2.5), alone.largest(3.25)) == (3, 3.25)


@pytest.fixture
def cards(monkeypatch):
    """Make TensorFlow 2 see two cards; return the settings that it is given for them. The cards can't compute, so tests
    use a model without layers."""
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
    from trainer import driver

    def made(fails=0):
        code, library = tmp_path / f"cuda{fails}.c", tmp_path / f"libcuda{fails}.so.1"
        code.write_text(CUDA.replace("FAILS", str(fails)))
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, code], check=True)
        monkeypatch.setattr(driver, "LIBRARY", str(library))
        return driver

    return made


MODEL = Model(smoke.NETWORK, smoke.RECIPE, smoke.INPUT, 1)


@pytest.mark.tensorflow
@pytest.mark.parametrize(("device", "named"), [("gpu", 1), ("cpu", 0)])
def test_one_tensorflow_2_replica_takes_memory_on_one_card_only(cards, device, named):
    """A network on the CPU must do so too, because a teacher there starts the runtime for the student."""
    from trainer.frameworks.tf2 import Network

    assert len(Network(MODEL, device).devices) == named
    assert cards == ["GPU:0"]


@pytest.mark.tensorflow
@pytest.mark.parametrize(
    ("integrated", "variable", "fraction", "grows"),
    [(True, None, None, True), (False, "true", None, True), (False, None, None, False), (True, None, 0.4, False)],
)
def test_tensorflow_2_leaves_the_memory_that_others_need(cards, monkeypatch, integrated, variable, fraction, grows):
    """A DGX Spark's card has the machine's memory, and a shared card another program's."""
    import tensorflow as tf
    from trainer.frameworks import tf2

    monkeypatch.setattr(tf2.driver, "is_integrated", lambda _: integrated)
    monkeypatch.setattr(tf2.driver, "total_bytes", lambda _: 2**30)
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    if variable:
        monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", variable)
    told = []
    monkeypatch.setattr(tf.config.experimental, "set_memory_growth", lambda gpu, on: told.append((gpu.name[-5:], on)))
    tf2.Network(MODEL, "gpu", fraction)
    assert told == ([("GPU:0", True)] if grows else [])


@pytest.mark.tensorflow
def test_tensorflow_2s_share_is_of_what_the_driver_says_of_that_card(cards, driver):
    """NVML counts all cards of the host, and has no totals for MIG and for memory shared with the CPU."""
    from trainer.frameworks import tf2

    driver()
    gpu = SimpleNamespace(name="/physical_device:GPU:1")
    tf2.limit(gpu, 1, 0.4)
    assert cards == [("GPU:1", int(5e9 * 0.4 / 2**20))]


@pytest.mark.parametrize(("device", "used", "free"), [("gpu", 1, 7), ("gpu", None, 5), ("cpu", None, 5)])
def test_the_machines_free_memory_is_that_of_a_gpu_which_has_it_and_no_own(driver, monkeypatch, device, used, free):
    from trainer import host, nvml, room

    monkeypatch.setattr(nvml, "read", lambda: [{"memory_total_bytes": 8, "memory_used_bytes": used}])
    monkeypatch.setattr(host, "memory", lambda: {"MemAvailable": 5})
    known = driver()
    assert [known.is_integrated(card) for card in (0, 1, 2)] == [False, True, False]
    assert room.free("gpu") == (7 if used else None), "the first card has its own"
    monkeypatch.setattr(known, "is_integrated", lambda _: True)
    assert room.free(device) == free


@pytest.mark.tensorflow
def test_a_driver_that_tells_no_memory_size_is_named(cards, driver, monkeypatch):
    from trainer.frameworks import tf2

    told = driver()
    assert [told.total_bytes(card) for card in (0, 1, 2)] == [1, 5000000000, None]
    monkeypatch.setattr(told, "LIBRARY", "libnowhere.so")
    assert told.total_bytes(0) is None
    assert driver(fails=100).total_bytes(0) is None
    with pytest.raises(Stop, match="the CUDA driver does not report") as stop:
        tf2.limit(None, 0, 0.4)
    assert (stop.value.kind, cards) == ("bad_argument", [])
