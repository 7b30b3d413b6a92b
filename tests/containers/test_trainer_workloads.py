"""Every workload against its source's figures, counted in words and in what each framework builds."""

import ast
import math

import numpy as np
import pytest
from own_process import on_cpu
from trainer_process import CONTAINERS

from trainer import __main__ as entry
from trainer import cost, data, layers, workloads
from trainer.epochs import Shuffled
from trainer.recipe import Model

# Reread from the sources: parameters, trained ones, forward multiply-accumulates, operations of a training step,
# batch. Workloads not listed are checked against their own files.
FIGURES = {
    "alexnet-r": (85_098, 85_098, 10_732_160, 59_477_760, 1024),
    "alexnet-s": (62_378_344, 62_378_344, 1_135_256_096, 6_600_706_176, 16),
    "batch-sweep": (47_811, 47_811, 1_913_600, 10_540_800, 64),
    "catdog": (21_463_713, 21_455_521, 5_189_928_960, 31_026_327_552, 16),
    "cifar10": (1_068_298, 1_068_298, 18_470_784, 105_295_104, 128),
    "cifar10-94": (1_971_650, 1_971_650, 118_147_360, 708_330_624, 1536),
    "cifar10-keras": (1_667_594, 1_667_594, 14_439_424, 84_867_072, 32),
    "distill": (853_018, 853_018, 125_485_696, 752_029_440, 128),
    "fcn-r": (14_205_962, 14_205_962, 14_198_784, 81_981_440, 1024),
    "fcn-s": (117_997_696, 117_997_696, 117_964_800, 598_212_608, 64),
    "inference": (21_802_784, 21_768_352, 5_711_168_096, 2 * 5_711_168_096, 1),
    "input-pipeline": (1_068_298, 1_068_298, 18_470_784, 105_295_104, 128),
    "scaling": (1_068_298, 1_068_298, 18_470_784, 105_295_104, 128),
    "lstm": (6_180_624, 6_180_624, 115_474_432, 692_846_592, 128),
    "resident": (47_811, 47_811, 1_913_600, 10_540_800, 8),
    "resnet-50": (25_557_032, 25_557_032, 3_857_973_248, 22_911_811_584, 16),
    "resnet-56": (853_018, 853_018, 125_485_696, 752_029_440, 128),
}
RUNNING = {
    "catdog": 8_192,
    "cifar10-94": 2_304,
    "distill": 4_064,
    "inference": 34_432,
    "resnet-50": 53_120,
    "resnet-56": 4_064,
}  # batch norm's means and variances
NAMES = [name for name in entry.names(workloads) if entry.imported(name).NETWORK]  # smoke: test_trainer_smoke.py
IN_TENSORFLOW = [name for name in NAMES if "tf2" in entry.imported(name).FRAMEWORKS]
CLASSES = {"alexnet-s": 1000, "resnet-50": 1000, "fcn-s": 26752, "lstm": 10000, "catdog": 1, "batch-sweep": 3}
CLASSES.update({"resident": 3, "inference": 2048})  # inference: features
ENTRIES = "SUMMARY", "SOURCE", "DATA", "UNIT", "STEPS", "BATCH", "INPUT", "PARAMETERS", "MACS", "FLOPS", "FRAMEWORKS"


def model(name, batch=None):
    workload = entry.imported(name)
    return Model(workload.NETWORK, workload.RECIPE, workload.INPUT, batch or workload.BATCH)


def count(shapes):
    return sum(math.prod(side for side in shape if side != layers.BATCH) for _, shape in shapes)


def figures(name):
    its = entry.imported(name)
    return its.PARAMETERS, getattr(its, "TRAINED", its.PARAMETERS), its.MACS, its.FLOPS, its.BATCH


@pytest.mark.parametrize("name", FIGURES)
def test_the_figures_at_its_top_are_those_of_its_source(name):
    assert figures(name) == FIGURES[name]


def training_flops(words, shape):
    """Return the operations of one example's forward and backward pass: two per multiply-accumulate, and twice as many
    backward as forward. The first layer needs only its weights' gradient, since nothing trains the input; unless it is
    an embedding."""
    counted = cost.layers(words, shape)[0]
    embedded = layers.flat(words)[0]["op"] == "embedding"
    return 2 * (3 * sum(count for _, count in counted) - (0 if embedded else counted[0][1]))


@pytest.mark.parametrize("name", NAMES)
def test_parameters_and_work_are_what_its_top_says(name):
    workload, (_, trained, macs, flops, _) = entry.imported(name), figures(name)
    assert layers.parameters(workload.NETWORK) == trained
    assert cost.macs(workload.NETWORK, workload.INPUT) == macs
    work = training_flops(workload.NETWORK, workload.INPUT) if model(name).trains else 2 * macs
    assert work == flops
    assert model(name).trains == getattr(workload, "TRAINS", True)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_trained_with_batch_norm_wants_two_examples_at_least(name):
    of_two = model(name).trains and "batch_norm" in model(name).ops
    assert getattr(entry.imported(name), "LEAST_BATCH", 1) == (2 if of_two else 1)


@pytest.mark.parametrize(("name", "running"), RUNNING.items())
def test_batch_norm_keeps_two_running_values_a_channel(name, running):
    assert count(layers.shapes(entry.imported(name).NETWORK, "running")) == running


def test_what_keras_counts_of_catdog_is_trained_and_running_together():
    catdog = entry.imported("catdog")
    assert catdog.TRAINED + RUNNING["catdog"] == catdog.PARAMETERS
    words = layers.flat(catdog.NETWORK)
    assert [sum(word["op"] == op for word in words) for op in ("conv", "max_pool", "dense")] == [13, 5, 3]


def test_the_layers_of_cifar10_keras_are_the_sources():
    network, shape = entry.imported("cifar10-keras").NETWORK, (32, 32, 3)
    assert [macs for _, macs in cost.layers(network, shape)[0]] == [884_736, 4_718_592, 7_225_344, 1_605_632, 5_120]
    sizes = [math.prod(shape) for _, shape in layers.shapes(network)]
    assert [a + b for a, b in zip(sizes[::2], sizes[1::2], strict=True)] == [896, 18_496, 36_928, 1_606_144, 5_130]


def test_what_keras_counts_of_inception_v3_has_running_values_too():
    inference = entry.imported("inference")
    assert inference.TRAINED + RUNNING["inference"] == inference.PARAMETERS
    assert sum(word["op"] == "conv" for word in layers.flat(inference.NETWORK)) == 94


@pytest.mark.tensorflow
def test_the_words_of_inference_compute_what_keras_inception_v3_does():
    import tensorflow as tf

    network, frames = (
        built("tf2", "inference"),
        entry.imported("inference").scaled(entry.imported("inference").load(None).images[:2]),
    )
    values = {**network.model.first(3), **spread(network.model)}
    network.load(values)
    theirs = tf.keras.applications.InceptionV3(
        weights=None, include_top=False, pooling="avg", input_shape=(299, 299, 3)
    )
    for op, kind, arrays in (
        ("conv", tf.keras.layers.Conv2D, ("weights",)),
        ("batch_norm", tf.keras.layers.BatchNormalization, ("offset", "mean", "variance")),
    ):
        ours = [word["name"] for word in layers.flat(network.model.words) if word["op"] == op]
        layers_of_theirs = sorted((layer for layer in theirs.layers if isinstance(layer, kind)), key=numbered)
        for name, layer in zip(ours, layers_of_theirs, strict=True):
            layer.set_weights([values[f"{name}/{which}"] for which in arrays])
    expected = theirs(frames, training=False).numpy()
    assert expected.std() > 0.1
    assert network.logits(frames) == pytest.approx(expected, rel=1e-4, abs=1e-4)


def numbered(layer):
    """Keras numbers layers in order of creation, from conv2d, or from any number if others were made before."""
    number = layer.name.rpartition("_")[2]
    return int(number) if number.isdigit() else 0


def spread(model):
    """Make running values and offsets other than 0 and 1."""
    random = np.random.RandomState(4)
    return {
        name: random.uniform(0.8, 1.2, shape).astype(np.float32)
        for name, shape in model.kept().items()
        if name.endswith(("/offset", "/mean", "/variance"))
    }


def test_resnet_56_has_55_convolutions_and_resnet_50_53():
    found = {name: layers.flat(entry.imported(name).NETWORK) for name in ("resnet-56", "resnet-50")}
    assert {name: sum(word["op"] == "conv" for word in words) for name, words in found.items()} == {
        "resnet-56": 55,
        "resnet-50": 49 + 4,  # and four projections
    }


@pytest.mark.parametrize("name", NAMES)
def test_no_two_words_share_a_name_and_the_end_has_the_classes(name):
    workload = entry.imported(name)
    names = [word["name"] for word in layers.flat(workload.NETWORK)]
    assert len(set(names)) == len(names)
    classes = cost.layers(workload.NETWORK, workload.INPUT)[1][-1]
    assert classes == CLASSES.get(name, 10 if name in FIGURES else classes)


@pytest.mark.parametrize("name", NAMES)
def test_what_the_host_reads_without_running_are_plain_literals(name):
    workload = entry.imported(name)
    path = CONTAINERS / "trainer" / "workloads" / f"{name.replace('-', '_')}.py"
    read = {}
    for statement in ast.parse(path.read_text()).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            try:
                read[statement.targets[0].id] = ast.literal_eval(statement.value)
            except ValueError:
                continue
    for key in ENTRIES + tuple(key for key in ("TRAINS", "VARY", "LINES") if hasattr(workload, key)):
        assert read[key] == getattr(workload, key)
    assert entry.described(name)["frameworks"] == workload.FRAMEWORKS


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_says_which_frameworks_have_layers_for_its_words(name):
    workload, having = entry.imported(name), []
    for path in sorted((CONTAINERS / "trainer" / "frameworks").glob("*/ops.py")):
        (table,) = [
            statement.value
            for statement in ast.parse(path.read_text()).body
            if isinstance(statement, ast.Assign) and statement.targets[0].id == "LAYERS"
        ]
        if layers.ops(workload.NETWORK) <= {key.value for key in table.keys}:
            having.append(path.parent.name)
    assert tuple(having) == workload.FRAMEWORKS


@pytest.mark.parametrize(
    ("words", "shape", "said"),
    [
        ([layers.conv("c", 3, 4, 8, layers.he(4))], (8, 8, 3), "c: needs 4 and is given 3"),
        ([layers.dense("d", 63, 8, layers.he(63), None)], (8, 8), "d: needs 63 and is given 8"),
        ([layers.dense("d", 63, 8, layers.he(63), None)], (4, 4, 4), "d: needs 63 and is given 64"),
        ([layers.max_pool("p", 3, 2)], (2, 2, 1), "a window of 3 x 3 does not fit"),
        ([layers.max_pool("p", 3, 2, padding=(0, 1))], (13, 13, 1), "a window of 3 x 3 does not fit"),
        ([layers.conv("c", (7, 1), 1, 1, layers.he(1), padding=0)], (5, 9, 1), "c: a window of 7 x 1 does not fit"),
        ([layers.concat("b", [layers.avg_pool("a", 2, 2)], [])], (4, 4, 1), r"b: needs \(2, 2\) and is given \(4"),
        ([layers.residual("r", [layers.avg_pool("a", 2, 2)])], (4, 4, 1), r"r: needs \(2, 2, 1\) and is given \(4"),
        ([layers.batch_norm("b", 3, 0.9, 0.1)], (4, 4, 2), "b: needs 3 and is given 2"),
        ([layers.lstm("l", 4, 2, layers.uniform(1), layers.uniform(1))], (7, 5), "l: needs 4 and is given 5"),
    ],
)
def test_layers_that_do_not_fit_together_are_refused_by_name(words, shape, said):
    with pytest.raises(ValueError, match=said):
        cost.macs(words, shape)


def built(framework, name, batch=None):
    return on_cpu(framework, model(name, batch))


def example(name):
    workload = entry.imported(name)
    return np.zeros((1, *workload.INPUT), np.int32 if "embedding" in layers.ops(workload.NETWORK) else np.float32)


# Beyond the words: the banded matrix that replaces each of two LRNs without a GPU
BANDS = dict.fromkeys(("cifar10", "input-pipeline", "scaling"), 2 * 12 * 12 * 64 * 64)


@pytest.mark.tensorflow
@pytest.mark.parametrize("name", IN_TENSORFLOW)
def test_what_tensorflow_builds_has_these_parameters_and_does_this_work(name):
    network = built("tf2", name, 2)
    assert (
        sum(int(np.prod(variable.shape)) for variable in network.kept.values() if variable.trainable)
        == (figures(name)[1])
    )
    shape = example(name)
    graph = network.guess.get_concrete_function(shape).graph
    work = 0
    for operation in graph.get_operations():
        if operation.type in ("Conv2D", "MatMul"):
            inner = operation.inputs[1].shape[:-1] if operation.type == "Conv2D" else operation.inputs[1].shape[:1]
            work += math.prod(operation.outputs[0].shape) * math.prod(inner)
    assert work == figures(name)[2] + BANDS.get(name, 0)


# PyTorch's counter does not see inside its own LSTM
UNEVEN = {**BANDS, "lstm": -2 * 32 * (256 + 256) * 4 * 256}


@pytest.mark.torch
@pytest.mark.parametrize("name", NAMES)
def test_what_pytorch_builds_has_these_parameters_and_does_this_work(name):
    from torch.utils.flop_counter import FlopCounterMode

    network = built("pytorch", name, 2)
    network.load({name: np.zeros(shape, np.float32) for name, shape in network.model.kept().items()})
    assert sum(tensor.numel() for tensor in network.kept.values() if tensor.requires_grad) == figures(name)[1]
    network.library = None  # whose products the counter would not see
    counter = FlopCounterMode(display=False)
    with counter:
        network.logits(example(name))
    assert counter.get_total_flops() == 2 * (figures(name)[2] + UNEVEN.get(name, 0))


@pytest.mark.torch
@pytest.mark.parametrize("name", ["alexnet-r", "cifar10", "cifar10-keras", "fcn-r", "resnet-56"])
def test_a_training_step_of_pytorch_does_the_work_that_is_told(torch, name):
    from torch.utils.flop_counter import FlopCounterMode

    network = built("pytorch", name, 2)
    network.load(network.model.first(0))
    network.library = None
    batch = torch.zeros(2, *network.model.shape), torch.zeros(2, dtype=torch.int64)
    counter = FlopCounterMode(display=False)
    with counter:
        network.train(batch, network.model.turn(0, 0))
    extra = 2 * 2 * UNEVEN.get(name, 0)  # backward to the input only: the band isn't trained
    assert counter.get_total_flops() == 2 * (figures(name)[3] + extra)


def test_networks_of_small_convolutions_say_so():
    """Winograd convolutions save nothing in the others, so no rate above the card's peak is possible."""
    shares = {name: cost.share_of_3x3(model(name).words, model(name).shape) for name in NAMES}
    assert shares["catdog"] > 0.99
    assert shares["resnet-56"] > 0.9
    assert (shares["cifar10"], shares["fcn-s"], shares["lstm"]) == (0, 0, 0)
    assert 0.2 < shares["resnet-50"] < 0.5


def test_what_lies_in_memory_at_once_is_counted_once_where_branches_share_it():
    """In training inputs stay for the weights' gradients, and the most is at the end or at a large output before."""
    one, two = (layers.conv(name, 1, 2, 2, layers.normal(1)) for name in "ab")
    words = [layers.residual("sum", [one], [two]), layers.conv("c", 1, 2, 3, layers.normal(1))]
    assert [cost.most_values(words, (1, 1, 2), trains) for trains in (True, False)] == [2 + 2 + 3, 2 + 3]
    keras = entry.imported("cifar10-keras").NETWORK
    assert cost.most_values(keras, (32, 32, 3), True) == 3072 + 8192 + 16384 + 12544


@pytest.mark.parametrize("name", [name for name in NAMES if hasattr(entry.imported(name), "source")])
def test_a_training_tells_at_its_top_whether_it_counts_epochs_and_can_be_resident(name):
    workload = entry.imported(name)
    few = data.Dataset(np.zeros((8, *workload.INPUT), np.uint8), np.zeros(8, np.int32), "made", 1)
    source = workload.source(workload.load(None) if name == "lstm" else few, 2, 0, 0.1)  # its text is one long row
    assert hasattr(source, "epoch_steps") == getattr(workload, "EPOCHS", True)
    assert isinstance(source, Shuffled) == getattr(workload, "EPOCHS", True), "what --feed resident takes"
