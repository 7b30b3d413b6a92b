"""Optimizations don't change a training: its losses are those of the plain way, written out here."""

from types import SimpleNamespace

import numpy as np
import pytest
from own_process import on_cpu
from trainer_process import python

from trainer import __main__ as entry
from trainer import data, layers
from trainer.recipe import Model, adam, recipe, sgd

STEPS = 50
# With the recipe's epsilon of 1e-7 Adam turns pure rounding gradients into full steps: weights that differ in the last
# digit then give losses 1e-3 apart within 50 steps. With these they stay 3e-5 apart, so that a wrong formula shows. At
# twice this rate it is 1.4e-4 on some processors.
RATE = 0.00005
ADAM = adam(b1=0.9, b2=0.999, epsilon=1e-3)


@pytest.fixture(scope="module")
def dataset():
    """Fifty batches of the stand-in."""
    whole = data.synthetic("test")
    return data.Dataset(whole.images[:1600], whole.labels[:1600], whole.name, 1, note=whole.note)


@pytest.fixture(scope="module")
def by_keras(dataset):
    """Return the losses of the article's network without dropout, trained by Keras."""
    import tensorflow as tf

    known = tf.keras.layers
    source, model = made(dataset)
    keras = tf.keras.Sequential(
        [
            known.Input((32, 32, 3)),
            known.Conv2D(32, 3, padding="same", activation="relu"),
            known.MaxPooling2D(),
            known.Conv2D(64, 3, padding="same", activation="relu"),
            known.Conv2D(64, 3, activation="relu"),
            known.MaxPooling2D(),
            known.Flatten(),
            known.Dense(512, activation="relu"),
            known.Dense(10),
        ]
    )
    optimizer = tf.keras.optimizers.Adam(RATE, epsilon=ADAM["epsilon"])
    keras.compile(optimizer, tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    keras.set_weights([model.first(4)[name] for name in model.weights])
    return [float(keras.train_on_batch(*source(step))) for step in range(STEPS)]


def made(dataset):
    workload = entry.imported("cifar10-keras")
    words, training = layers.without(workload.NETWORK, "dropout"), dict(workload.RECIPE, optimiser=ADAM, rate=RATE)
    model = Model(words, training, workload.INPUT, workload.BATCH)
    return workload.source(dataset, workload.BATCH, 4, 0.4), model


@pytest.mark.tensorflow
def test_fifty_losses_of_the_articles_training_are_those_of_keras(framework, dataset, by_keras):
    """That each feed hands out the same batches is test_trainer_feeds.py's."""
    source, model = made(dataset)
    network = on_cpu(framework, model)
    network.load(model.first(4))
    given = network.batches(source, 0, STEPS)
    losses = [float(network.train(batch, model.turn(step, 4))[0]) for step, batch in enumerate(given)]
    assert losses == pytest.approx(by_keras, abs=1e-4)
    assert losses[-1] < losses[0] - 0.05, "it learns"


def test_a_relu_after_the_pooling_gives_the_same_weights_to_the_bit(framework):
    words = [
        layers.conv("conv", 3, 2, 4, layers.he(2, 9), layers.constant(0.0)),
        layers.relu("relu"),
        layers.max_pool("pool", 3, 2, padding=(0, 1)),
        layers.dense("dense", 4 * 4 * 4, 3, layers.he(64), layers.constant(0.0)),
    ]
    model = Model(words, recipe(sgd(), rate=0.5), (8, 8, 2), 6)
    assert [word["op"] for word in model.words] == ["conv", "max_pool", "relu", "dense"]
    # few distinct values, some negative: most windows have their maximum twice, some have none above 0
    random = np.random.RandomState(1)
    batch = random.randint(-2, 3, (6, 8, 8, 2)).astype(np.float32), random.randint(0, 3, 6).astype(np.int32)
    found = []
    for order in model.words, words:
        model.words = order
        network = on_cpu(framework, model)
        network.load({**model.first(2), "conv/weights": random_wholes(model)})
        for step, given in enumerate(network.batches(lambda _: batch, 0, 2)):
            network.train(given, model.turn(step, 0))
        found.append(network.values())
    for name in model.weights:
        assert (found[0][name] == found[1][name]).all()


def random_wholes(model):
    return np.random.RandomState(2).randint(-1, 2, model.kept()["conv/weights"]).astype(np.float32)


def test_a_pooling_moves_before_its_relu_in_branches_as_well():
    first, second = layers.relu("r"), layers.max_pool("p", 2, 2)
    words = layers.pooled_first([layers.residual("x", [first, second], [second]), first, first, second, second])
    assert [[word["op"] for word in branch] for branch in words[0]["branches"]] == [["max_pool", "relu"], ["max_pool"]]
    assert [word["op"] for word in words[1:]] == ["relu", "max_pool", "max_pool", "relu"]


@pytest.mark.torch
@pytest.mark.parametrize("rate", [0.2, 0.25, 0.5])
def test_pytorchs_dropout_leaves_out_its_share_however_the_numbers_lie(torch, rate):
    from trainer.frameworks.pytorch.ops import LAYERS

    word, ones = layers.dropout("drop", rate), torch.ones(8, 16, 25, 31)
    last = ones.contiguous(memory_format=torch.channels_last)
    for x in ones, last, last[:, 3:, 1:]:
        torch.manual_seed(5)
        found = LAYERS["dropout"](word, x.clone(memory_format=torch.preserve_format), Learning)
        assert found.stride() == x.clone(memory_format=torch.preserve_format).stride()
        left = (found == 0).float().mean()
        assert float(left) == pytest.approx(rate, abs=5 * (rate / x.numel()) ** 0.5)
        assert found.unique().tolist() == pytest.approx([0.0, 1 / (1 - rate)])


@pytest.mark.torch
def test_a_pytorch_that_knows_no_adam_in_one_pass_trains_by_several(torch, monkeypatch):
    from trainer.frameworks.pytorch import learning

    # before 1.13, where asking for the operation is an error
    monkeypatch.setattr(torch._C, "_dispatch_has_kernel_for_dispatch_key", unknown)
    monkeypatch.delattr(torch, "_fused_adam_", raising=False)
    weight, *slots = (torch.zeros(3) for _ in range(3))
    learning.adam(ADAM, [weight], [[slot] for slot in slots], RATE, [torch.ones(3)])
    assert (weight < 0).all()


@pytest.mark.torch
def test_a_pytorch_that_adds_to_many_at_once_only_one_number_goes_one_by_one(torch, monkeypatch):
    from trainer.frameworks.pytorch import learning

    def refused(tensors, scalar):
        raise AssertionError("1.7.0a0 of NVIDIA's images 20.08 and 20.09 takes a number here, and nothing else")

    monkeypatch.setattr(torch, "_foreach_add_", refused)
    monkeypatch.delattr(torch, "_foreach_addcmul_")
    weights = [torch.zeros(3), torch.ones(2)]
    learning.each("add", weights, [torch.ones(3), torch.ones(2)], alpha=2)
    assert [one.tolist() for one in weights] == [[2.0] * 3, [3.0] * 2]


@pytest.mark.torch
def test_tokens_are_looked_up_by_wide_numbers_as_early_pytorchs_want_them(torch, monkeypatch):
    from trainer.frameworks.pytorch import ops

    monkeypatch.setattr(ops.functional, "embedding", lambda tokens, weights: (tokens.dtype, weights))
    given = SimpleNamespace(get=lambda _, which: which)
    found = ops.LAYERS["embedding"]({}, torch.zeros(2, 3, dtype=torch.int32), given)
    assert found == (torch.int64, "weights")


def unknown(name, key):
    raise RuntimeError(f"operator {name} does not exist")


class Learning:
    is_training, is_compiled, library = True, False, None


@pytest.mark.torch
def test_memory_that_was_freed_is_mostly_not_asked_of_the_kernel_again():
    usual, kept = new_pages()
    assert kept < usual / 2


def new_pages():
    """Count page faults while six 16 MB buffers are allocated and freed ten times, before and after keep()."""
    program = """
import resource, torch
from trainer.frameworks.pytorch import memory
for prepare in lambda: None, memory.keep:
    prepare()
    [torch.ones(2**22) for _ in range(6)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        [torch.ones(2**22) for _ in range(6)]
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""
    code, out, err = python(program, OMP_NUM_THREADS="1")
    assert code == 0, err
    return map(int, out.split())
