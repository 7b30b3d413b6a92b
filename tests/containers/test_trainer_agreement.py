"""A training is fully specified: its losses agree in two frameworks, and after a resume."""

import collections
import importlib

import numpy as np
import pytest

from trainer import __main__ as entry
from trainer import checkpoint, data, layers
from trainer.recipe import Model

idle = collections.defaultdict(list)  # networks of finished tests: TensorFlow takes seconds to trace one
taken = []


@pytest.fixture(autouse=True)
def given_back():
    """Lend a network to one test at a time; the next test loads all of its arrays anew."""
    yield
    while taken:
        key, network = taken.pop()
        idle[key].append(network)


class Training:
    """A workload's network in one framework, trained step by step."""

    def __init__(self, framework, name, batch=None, dropout=True, seed=4):
        workload = entry.imported(name)
        words = workload.NETWORK if dropout else layers.without(workload.NETWORK, "dropout")
        self.seed, self.workload = seed, workload
        self.model = Model(words, workload.RECIPE, workload.INPUT, batch or workload.BATCH)
        key = framework, name, self.model.batch, len(words)
        maker = importlib.import_module("trainer.frameworks." + framework)
        self.network = idle[key].pop() if idle[key] else maker.Network(self.model, "cpu")
        taken.append((key, self.network))
        self.network.load(self.model.first(seed))

    def losses(self, dataset, first, last):
        source = self.workload.source(dataset, self.model.batch, self.seed, 0.01)
        getattr(source, "skip", int)(first)
        batches = self.network.batches(source, first, last)
        turns = [self.model.turn(step, self.seed) for step in range(first, last)]
        return [float(self.network.train(batch, turn)[0]) for batch, turn in zip(batches, turns, strict=True)]


@pytest.fixture(scope="module")
def cifar10():
    """The first 2,000 synthetic images: enough for a batch, while all of them take seconds."""
    whole = data.synthetic("test")
    return data.Dataset(whole.images[:2000], whole.labels[:2000], whole.name, 1, note=whole.note)


@pytest.mark.tensorflow
@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "batch", "first"), [("cifar10", None, 4.68), ("cifar10-keras", None, 2.33), ("resnet-56", 32, 2.52)]
)
def test_the_same_weights_give_the_same_losses_in_both_frameworks(name, batch, first, cifar10):
    one, other = (
        Training(framework, name, batch, dropout=False).losses(cifar10, 0, 3) for framework in ("tf2", "pytorch")
    )
    assert one == pytest.approx(other, abs=1e-4)
    assert one[0] == pytest.approx(first, abs=0.05)
    assert len(set(one)) == 3


@pytest.mark.tensorflow
@pytest.mark.torch
def test_two_frameworks_part_as_one_does_whose_weights_were_touched_in_the_last_digit(cifar10):
    """The tutorial's rate of 0.1 is chaotic on synthetic images: rounding differences grow a thousandfold."""
    one, other, touched = (Training(framework, "cifar10", 64, seed=0) for framework in ("pytorch", "tf2", "pytorch"))
    random, values = np.random.RandomState(9), touched.network.values()
    for name in touched.model.weights:
        values[name] = values[name] * (1 + 1e-7 * random.normal(size=values[name].shape)).astype(np.float32)
    touched.network.load(values)
    losses, others, toucheds = (np.array(training.losses(cifar10, 0, 21)) for training in (one, other, touched))
    between, within = np.abs(losses - others), np.abs(losses - toucheds)
    assert between[:8].max() < 1e-4
    assert within[:5].max() < 1e-5, "it was touched in the last digit alone"
    assert within.max() > 10 * within[:5].max()
    assert between.max() < 10 * within.max(), "no more than chance lies between the frameworks"


@pytest.mark.tensorflow
@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "batch", "tolerance"),
    [("fcn-r", 32, 1e-4), ("lstm", 4, 2e-3), ("alexnet-r", 32, 1e-4), ("batch-sweep", 64, 1e-4)],
)
def test_other_networks_agree_as_well(name, batch, tolerance, cifar10):
    dataset = cifar10 if name == "alexnet-r" else entry.imported(name).load(None)
    one, other = (Training(framework, name, batch).losses(dataset, 0, 3) for framework in ("tf2", "pytorch"))
    assert one == pytest.approx(other, abs=tolerance)


@pytest.mark.tensorflow
@pytest.mark.torch
def test_a_frame_has_the_same_features_in_both_frameworks_and_in_every_batch():
    inference = entry.imported("inference")
    film, found = inference.load(None), {}
    for framework in "tf2", "pytorch":
        network = Training(framework, "inference").network
        batches = [network.batches(inference.source(film, batch, 0, 0.4), 0, 1) for batch in (1, 3)]
        found[framework] = [network.infer(next(iter(made))) for made in batches]
    assert all(isinstance(one, np.ndarray) for some in found.values() for one in some), "the device has been waited for"
    one, three = found["tf2"]
    assert three.shape == (3, 2048)
    assert np.abs(three[0] - one[0]).max() < 1e-3
    assert np.abs(three[1:] - one[0]).max(axis=1).min() > 1e-2, "another frame has others"
    for mine, others in zip(found["tf2"], found["pytorch"], strict=True):
        assert others == pytest.approx(mine, rel=1e-4, abs=1e-4)


def test_a_first_loss_is_that_of_a_guess(framework, cifar10):
    lstm = Training(framework, "lstm", 4)
    assert lstm.losses(lstm.workload.load(None), 0, 1)[0] == pytest.approx(32 * np.log(10000), abs=0.5)
    assert Training(framework, "alexnet-r", 32).losses(cifar10, 0, 1)[0] == pytest.approx(np.log(10), abs=0.05)


@pytest.mark.parametrize(("name", "batch"), [("cifar10-keras", 32), ("resnet-56", 32), ("lstm", 4)])
def test_a_stopped_training_goes_on_with_the_same_losses(framework, name, batch, cifar10, tmp_path):
    training = Training(framework, name, batch)
    dataset = training.workload.load(None) if name == "lstm" else cifar10
    training.losses(dataset, 0, 2)
    checkpoint.save(str(tmp_path), {"step": 2}, training.network.values())
    expected = training.losses(dataset, 2, 4)
    _, values = checkpoint.read(str(tmp_path / "checkpoints" / "step-2.npz"))
    assert set(values) == set(training.model.kept())
    training.network.load(values)  # whatever is not kept is that of step 4 now
    found = training.losses(dataset, 2, 4)
    assert found == pytest.approx(expected, abs=1e-3), "dropout, slots, running values and states are all kept"


@pytest.mark.tensorflow
@pytest.mark.torch
@pytest.mark.parametrize(("name", "batch"), [("cifar10-keras", 32), ("resnet-56", 32), ("lstm", 4)])
def test_another_framework_goes_on_where_one_has_stopped(name, batch, cifar10):
    one, other = (Training(framework, name, batch, dropout=False) for framework in ("tf2", "pytorch"))
    dataset = one.workload.load(None) if name == "lstm" else cifar10
    one.losses(dataset, 0, 2)
    other.network.load(one.network.values())
    assert other.losses(dataset, 2, 4) == pytest.approx(one.losses(dataset, 2, 4), abs=1e-3)
    mine, others = one.network.values(), other.network.values()
    assert set(mine) == set(others)
    assert all(np.abs(mine[name] - others[name]).max() < 1e-2 for name in mine)


def test_a_sequence_that_is_read_on_differs_from_one_that_begins_anew(framework):
    training = Training(framework, "lstm", 4)
    text = training.workload.load(None)
    training.losses(text, 0, 1)
    values = training.network.values()
    assert np.abs(values["lstm1/hidden"]).max() > 0
    on = training.losses(text, 1, 2)
    training.network.load({**values, "lstm1/hidden": np.zeros((4, 256), np.float32)})
    assert training.losses(text, 1, 2) != on
