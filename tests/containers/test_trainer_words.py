"""Each word computed literally in float64, and trained by hand, against the frameworks' results."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from own_process import on_cpu

from trainer import cost, layers
from trainer.group import ALONE, Group
from trainer.layers import constant, normal
from trainer.recipe import Model, adam, momentum, recipe, sgd


def network(framework, words, shape, batch=4, group=ALONE, **how):
    how = {"optimiser": sgd(), "rate": 0.1, **how}
    return on_cpu(framework, Model(words, recipe(**how), shape, batch), group=group)


def filled(made, seed=3):
    """Load random numbers into all kept arrays (positive variances); return them."""
    random = np.random.RandomState(seed)
    values = {name: random.normal(size=shape).astype(np.float32) for name, shape in made.model.kept().items()}
    for name in values:
        if name.endswith("/variance"):
            values[name] = np.abs(values[name]) + np.float32(0.5)
    made.load(values)
    return values


def batches(made, examples, labels):
    return next(iter(made.batches(lambda _: (examples, labels.astype(np.int32)), 0, 1)))


def images(*shape):
    return np.random.RandomState(5).normal(size=shape).astype(np.float32)


def cut(x, size, stride):
    """Return the windows: [n, height, width, *size, channels]."""
    view = np.lib.stride_tricks.sliding_window_view(x, layers.pair(size), axis=(1, 2))[:, ::stride, ::stride]
    return view.transpose(0, 1, 2, 4, 5, 3)


def padded(x, before, after, value=0.0):
    return np.pad(x, ((0, 0), (before, after), (before, after), (0, 0)), constant_values=value)


def convolved(x, weights, edges=(0, 0), stride=1):
    vertical, horizontal = edges
    x = np.pad(x, ((0, 0), (vertical, vertical), (horizontal, horizontal), (0, 0)))
    return np.einsum("nhwijc,ijco->nhwo", cut(x, weights.shape[:2], stride), weights)


def logistic(x):
    return 1 / (1 + np.exp(-x))


def with_end(words, inputs):
    return [*words, layers.dense("end", inputs, 3, normal(1), normal(1))]


def ended(x, values):
    return x.reshape(len(x), -1) @ values["end/weights"].astype(float) + values["end/biases"]


@pytest.mark.parametrize(("stride", "padding", "side"), [(1, 1, 9), (1, 0, 7), (2, 1, 5), (2, 0, 4), (3, 2, 4)])
@pytest.mark.parametrize("biases", [None, normal(1)])
def test_a_convolution_strides_and_pads_as_it_is_told(framework, stride, padding, side, biases):
    words = [layers.conv("c", 3, 2, 5, normal(1), biases, stride=stride, padding=padding)]
    made = network(framework, with_end(words, side * side * 5), (9, 9, 2))
    values, x = filled(made), images(4, 9, 9, 2)
    windows = cut(padded(x.astype(float), padding, padding), 3, stride)
    expected = np.einsum("nhwijc,ijco->nhwo", windows, values["c/weights"]) + values.get("c/biases", 0)
    assert np.abs(made.logits(x) - ended(expected, values)).max() < 1e-3


@pytest.mark.parametrize(
    ("size", "stride", "padding", "side", "out"),
    [(2, 2, (0, 0), 8, 4), (3, 3, (0, 0), 8, 2), (3, 2, (0, 0), 8, 3), (3, 2, (0, 1), 8, 4), (3, 2, (1, 1), 8, 4)],
)
def test_a_maximum_is_taken_of_windows_that_hang_over_as_they_are_told(framework, size, stride, padding, side, out):
    words = with_end([layers.max_pool("p", size, stride, padding)], out * out * 2)
    made = network(framework, words, (side, side, 2))
    values, x = filled(made), images(4, side, side, 2) - 5  # zero padding would be the maximum
    expected = cut(padded(x.astype(float), *padding, -np.inf), size, stride).max(axis=(3, 4))
    assert expected.shape[1] == out
    assert np.abs(made.logits(x) - ended(expected, values)).max() < 1e-3


@pytest.mark.parametrize(
    ("size", "stride", "padding", "edges", "side"),
    [
        ((1, 7), 1, None, (0, 3), (9, 9)),
        ((7, 1), 1, None, (3, 0), (9, 9)),
        ((3, 1), 2, 0, (0, 0), (4, 5)),
        ((3, 5), 1, (2, 1), (2, 1), (11, 7)),
        (2, 1, 0, (0, 0), (8, 8)),
    ],
)
def test_a_convolution_may_be_higher_than_it_is_wide(framework, size, stride, padding, edges, side):
    words = [layers.conv("c", size, 2, 5, normal(1), normal(1), stride=stride, padding=padding)]
    made = network(framework, with_end(words, side[0] * side[1] * 5), (9, 9, 2))
    values, x = filled(made), images(4, 9, 9, 2)
    expected = convolved(x.astype(float), values["c/weights"], edges, stride) + values["c/biases"]
    assert expected.shape[1:3] == side
    assert np.abs(made.logits(x) - ended(expected, values)).max() < 1e-3
    assert cost.macs(words, (9, 9, 2)) == expected[0].size * values["c/weights"][..., 0].size


def test_a_smoothed_picture_does_not_count_what_lies_outside(framework):
    made = network(framework, with_end([layers.smooth("s", 3)], 6 * 5 * 2), (6, 5, 2))
    values, x = filled(made), images(4, 6, 5, 2)
    expected = np.nanmean(cut(padded(x.astype(float), 1, 1, np.nan), 3, 1), axis=(3, 4))
    assert np.abs(made.logits(x) - ended(expected, values)).max() < 1e-3


def test_branches_lie_beside_each_other_along_the_channels_and_in_their_order(framework):
    inner = layers.concat("inner", [layers.sigmoid("s")], [layers.conv("c", (1, 3), 2, 3, normal(1))])
    words = [layers.concat("outer", [layers.max_pool("p", 3, 1, (1, 1)), inner], [], [layers.smooth("m", 3)])]
    made = network(framework, with_end(words, 5 * 4 * 9), (5, 4, 2))
    values, x = filled(made), images(4, 5, 4, 2)
    wide = x.astype(float)
    most = cut(padded(wide, 1, 1, -np.inf), 3, 1).max(axis=(3, 4))
    mean = np.nanmean(cut(padded(wide, 1, 1, np.nan), 3, 1), axis=(3, 4))
    expected = [logistic(most), convolved(most, values["c/weights"], (0, 1)), wide, mean]
    assert np.abs(made.logits(x) - ended(np.concatenate(expected, axis=-1), values)).max() < 1e-3
    assert cost.layers(words, (5, 4, 2)) == ([("c", 5 * 4 * 3 * 2 * 3)], (5, 4, 9))


def test_batch_norm_without_a_scale_has_none(framework):
    words = [layers.batch_norm("b", 3, momentum=0.9, epsilon=0.01, scaled=False)]
    made = network(framework, with_end(words, 6 * 6 * 3), (6, 6, 3))
    values, x = filled(made), 3 * images(4, 6, 6, 3) + 1
    assert {name for name in values if name.startswith("b/")} == {"b/offset", "b/mean", "b/variance"}
    expected = (x - values["b/mean"]) / np.sqrt(values["b/variance"] + 0.01) + values["b/offset"]
    assert np.abs(made.logits(x) - ended(expected, values)).max() < 1e-3

    normed = (x - x.mean(axis=(0, 1, 2))) / np.sqrt(x.var(axis=(0, 1, 2)) + 0.01) + values["b/offset"]
    labels = np.array([0, 1, 2, 1])
    loss, _ = made.train(batches(made, x, labels), made.model.turn(0, 0))
    assert float(loss) == pytest.approx(entropy(ended(normed, values), labels), rel=1e-4)


def test_means_padding_of_channels_and_residuals(framework):
    body = [layers.conv("c", 3, 2, 6, normal(1), None, stride=2)]
    shortcut = [layers.avg_pool("half", 2, 2), layers.pad_channels("wide", 1, 3)]
    words = [layers.residual("r", body, shortcut), layers.residual("same", [layers.sigmoid("s")])]
    words += [layers.global_avg_pool("mean")]
    made = network(framework, with_end(words, 6), (8, 8, 2))
    values, x = filled(made), images(4, 8, 8, 2)
    inner = np.einsum("nhwijc,ijco->nhwo", cut(padded(x.astype(float), 1, 1), 3, 2), values["c/weights"])
    inner[..., 1:3] += cut(x.astype(float), 2, 2).mean(axis=(3, 4))
    expected = (inner + logistic(inner)).mean(axis=(1, 2))
    assert np.abs(made.logits(x) - ended(expected, values)).max() < 1e-3


@pytest.mark.parametrize("shape", [(6, 6, 3), (3,)])
def test_batch_norm_tests_with_its_running_values_and_trains_with_the_batchs(framework, shape):
    size = int(np.prod(shape))
    made = network(framework, with_end([layers.batch_norm("b", 3, momentum=0.9, epsilon=0.01)], size), shape)
    values, x = filled(made), 3 * images(4, *shape) + 1
    scale, offset, mean, variance = (values["b/" + part] for part in ("scale", "offset", "mean", "variance"))
    expected = (x - mean) / np.sqrt(variance + 0.01) * scale + offset
    assert np.abs(made.logits(x) - ended(expected, values)).max() < 1e-3

    axes = tuple(range(x.ndim - 1))
    normed = (x - x.mean(axis=axes)) / np.sqrt(x.var(axis=axes) + 0.01) * scale + offset
    labels = np.array([0, 1, 2, 1])
    loss, _ = made.train(batches(made, x, labels), made.model.turn(0, 0))
    assert float(loss) == pytest.approx(entropy(ended(normed, values), labels), rel=1e-4)
    after = made.values()
    assert np.abs(after["b/mean"] - (0.9 * mean + 0.1 * x.mean(axis=axes))).max() < 1e-4
    kept = x.var(axis=axes, ddof=1 if x.ndim == 4 else 0)  # of vectors as Keras does
    assert np.abs(after["b/variance"] - (0.9 * variance + 0.1 * kept)).max() < 1e-4


def entropy(logits, labels):
    shifted = logits - logits.max(axis=1, keepdims=True)
    return float(np.mean(np.log(np.exp(shifted).sum(axis=1)) - shifted[np.arange(len(labels)), labels]))


def recurrent(x, weights, biases, hidden, cell):
    found = []
    for step in range(x.shape[1]):
        take, forget, new, give = np.split(np.concatenate([x[:, step], hidden], 1) @ weights + biases, 4, axis=1)
        cell = logistic(forget) * cell + logistic(take) * np.tanh(new)
        hidden = logistic(give) * np.tanh(cell)
        found.append(hidden)
    return np.stack(found, 1), hidden, cell


def test_an_lstm_reads_on_while_it_trains_and_tests_from_the_beginning(framework):
    words = [layers.embedding("e", 11, 5, normal(1)), layers.lstm("l", 5, 6, normal(1), normal(1))]
    words += [layers.dense("end", 6, 11, normal(1), normal(1))]
    made = network(framework, words, (7,), labels=(7,))
    values, tokens = filled(made), np.random.RandomState(2).randint(0, 11, (4, 7)).astype(np.int32)
    wide = {name: value.astype(float) for name, value in values.items()}
    found, _, _ = recurrent(wide["e/weights"][tokens], wide["l/weights"], wide["l/biases"], *np.zeros((2, 4, 6)))
    expected = found.reshape(-1, 6) @ wide["end/weights"] + wide["end/biases"]
    assert np.abs(made.logits(tokens) - expected).max() < 1e-4

    begin = wide["l/hidden"], wide["l/cell"]
    found, hidden, cell = recurrent(wide["e/weights"][tokens], wide["l/weights"], wide["l/biases"], *begin)
    labels = np.random.RandomState(3).randint(0, 11, (4, 7))
    loss, _ = made.train(batches(made, tokens, labels), made.model.turn(0, 0))
    logits = found.reshape(-1, 6) @ wide["end/weights"] + wide["end/biases"]
    assert float(loss) == pytest.approx(7 * entropy(logits, labels.reshape(-1)), rel=1e-4)
    after = made.values()
    assert np.abs(after["l/hidden"] - hidden).max() < 1e-5
    assert np.abs(after["l/cell"] - cell).max() < 1e-5


@pytest.mark.parametrize("rate", [0.5, 0.75])
def test_dropout_leaves_out_a_share_of_the_values_while_training_alone(framework, rate):
    ones = np.ones((2, 4000), np.float32)
    words = [layers.dropout("drop", rate), layers.dense("end", 4000, 2, constant(1.0), constant(0.0))]
    made = network(framework, words, (4000,), 2, loss="sigmoid", rate=0.0)
    made.load(made.model.first(0))
    assert made.logits(ones)[:, 0] == pytest.approx([4000, 4000])
    losses = []
    for seed, step, rank in (7, 0, 0), (7, 1, 0), (8, 0, 0), (7, 0, 1), (7, 0, 0):
        made.group = Group(rank, 2)
        loss, _ = made.train(batches(made, ones, np.array([0, 0])), made.model.turn(step, seed))
        losses.append(float(loss))  # labels are 0: large logits' loss is their mean
    assert losses[0] == pytest.approx(4000, rel=0.05)
    assert losses[0] == losses[4], "what is drawn is a function of the seed, the step and the replica"
    assert len(set(losses)) == 4, "and of each of them"
    kept = 2 * losses[0] * (1 - rate)  # the loss is the mean over two examples
    assert kept == round(kept), "so many values, each divided by that"


@pytest.fixture
def tensorflow_1(monkeypatch):
    """TensorFlow 2's compat.v1 stands in for TensorFlow 1."""
    import tensorflow

    old = SimpleNamespace(**{**vars(tensorflow.compat.v1), "__version__": "1.15"})
    monkeypatch.setitem(sys.modules, "tensorflow", old)
    inside = ("frameworks.tf1" + name for name in ("", ".ops", ".feeding", ".learning"))
    for name in (*inside, "tensorflow_losses"):
        monkeypatch.setitem(sys.modules, "trainer." + name, None)
        del sys.modules["trainer." + name]  # reimported on the stand-in, undone afterwards


@pytest.mark.tensorflow
@pytest.mark.usefixtures("tensorflow_1")
def test_in_tensorflow_1_dropout_begins_anew_with_each_seed_first_step_and_tower():
    words, drawn = [layers.dropout("drop", 0.5), layers.dense("end", 9, 2, normal(1), constant(0.0))], []
    for seed, first in (7, 0), (7, 5), (8, 0), (7, 0):
        made = network("tf1", words, (9,), 4, group=Group(0, 2))
        with made.graph.as_default():
            made.learn(made.model.turn(first, seed))
        drawn.append([op.get_attr("seed2") for op in made.graph.get_operations() if op.type == "RandomUniform"])
        made.close()
    assert drawn[0] == drawn[3]
    assert len({seed for seeds in drawn for seed in seeds}) == 6


@pytest.mark.tensorflow
@pytest.mark.usefixtures("tensorflow_1")
@pytest.mark.parametrize("least", [1, 2])
def test_the_towers_of_tensorflow_1_have_the_parts_that_replicas_have(least):
    towers, words = Group(0, 4), with_end([], 1)
    towers.least = least
    made = network("tf1", words, (1,), group=towers)
    with made.graph.as_default():
        parts = [made.part(number) for number in range(4)]
    for count in 1, 2, 3, 5, 8, 16:
        x, labels = np.arange(count, dtype=np.float32)[:, None], np.arange(count)
        found = made.session.run(parts, {made.examples: x, made.labels: labels})
        for number, (examples, own, share) in enumerate(found):
            replica = Group(number, 4)
            replica.least = least
            assert share == pytest.approx(replica.share(count))
            assert len(own) == len(labels[replica.part(count)]) >= min(count, least)
            assert (examples[:, 0] == own).all()
            if share:
                assert own.tolist() == labels[replica.part(count)].tolist()
    made.close()


@pytest.mark.tensorflow
@pytest.mark.usefixtures("tensorflow_1")
@pytest.mark.parametrize(("device", "towers", "cards"), [("cpu", 1, 0), ("auto", 1, 1), ("auto", 2, 2)])
def test_tensorflow_1_takes_no_memory_on_cards_that_it_does_not_compute_on(device, towers, cards):
    from trainer.frameworks import tf1

    model = Model(with_end([], 1), recipe(sgd(), rate=0.1), (1,), 4)
    made = tf1.Network(model, device, group=Group(0, towers))
    assert dict(made.session._config.device_count) == {"GPU": cards}
    made.close()


def by_hand(weights, x, labels, optimiser, clip, steps):
    """Train x @ weights with a softmax in float64; return the losses. The last row, the biases, doesn't decay."""
    weights, slots, losses = weights.astype(float), [0.0, 0.0], []
    decay = np.full(weights.shape, 0.05)
    decay[-1] = 0
    for step in range(steps):
        logits = x @ weights
        losses.append(entropy(logits, labels) + (decay * weights**2).sum() / 2)
        share = np.exp(logits - logits.max(axis=1, keepdims=True))
        share /= share.sum(axis=1, keepdims=True)
        share[np.arange(len(labels)), labels] -= 1
        move = x.T @ share / len(labels) + decay * weights
        if clip:
            move *= min(1, clip / np.sqrt((move**2).sum()))
        if optimiser["op"] == "momentum":
            move = slots[0] = optimiser["share"] * slots[0] + move
        if optimiser["op"] == "adam":
            b1, b2, t = optimiser["b1"], optimiser["b2"], step + 1
            slots = [b1 * slots[0] + (1 - b1) * move, b2 * slots[1] + (1 - b2) * move**2]
            move = np.sqrt(1 - b2**t) / (1 - b1**t) * slots[0] / (np.sqrt(slots[1]) + optimiser["epsilon"])
        weights = weights - 0.1 * move
    return losses


@pytest.mark.parametrize("clip", [None, 0.3])
@pytest.mark.parametrize("optimiser", [sgd(), momentum(0.9), adam(0.9, 0.99, 0.1)], ids=lambda words: words["op"])
def test_an_optimiser_does_what_its_words_say(framework, optimiser, clip):
    words = [layers.dense("d", 5, 3, normal(1), normal(1), decay=0.05)]
    made = network(framework, words, (5,), optimiser=optimiser, clip=clip, counted=True)
    values, x, labels = made.model.first(1), images(4, 5), np.array([0, 2, 1, 2])
    made.load(values)
    trained = [made.train(batches(made, x, labels), made.model.turn(step, 0)) for step in range(5)]
    whole = np.vstack([values["d/weights"], values["d/biases"]])
    expected = by_hand(whole, np.hstack([x, np.ones((4, 1))]), labels, optimiser, clip, 5)
    assert [float(loss) for loss, _ in trained] == pytest.approx(expected, rel=1e-5)
    assert expected[4] < expected[0]
    guesses = (x @ values["d/weights"] + values["d/biases"]).argmax(axis=1)
    assert int(trained[0][1]) == int((guesses == labels).sum())


def test_gradients_too_large_to_be_clipped_do_not_leave_the_training_standing_still(framework):
    made = network(framework, [layers.dense("d", 5, 3, normal(1), normal(1))], (5,), clip=5.0)
    made.load(made.model.first(1))
    loss, _ = made.train(batches(made, 1e20 * images(4, 5), np.array([0, 2, 1, 2])), made.model.turn(0, 0))
    assert np.isfinite(float(loss))
    assert np.isnan(made.values()["d/weights"]).all()


def test_a_sigmoid_counts_a_logit_above_zero_as_the_class_1(framework):
    words = [layers.dense("d", 5, 1, normal(1), normal(1))]
    made = network(framework, words, (5,), loss="sigmoid", counted=True)
    values, x, labels = filled(made), images(4, 5), np.array([0, 1, 1, 0])
    loss, right = made.train(batches(made, x, labels), made.model.turn(0, 0))
    share = logistic((x @ values["d/weights"] + values["d/biases"])[:, 0])
    assert float(loss) == pytest.approx(-np.log(np.where(labels == 1, share, 1 - share)).mean(), rel=1e-4)
    assert int(right) == int(((share > 0.5) == labels).sum())
    assert (made.model.guesses(np.array([[0.5], [-0.5]])) == [1, 0]).all()


def counting(graph):
    """Return (op, dtype) of the graph's comparisons and sums."""
    return {(op.type, op.inputs[0].dtype.name) for op in graph.get_operations() if op.type in ("Equal", "Sum")}


@pytest.mark.tensorflow
@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
def test_tensorflow_2_counts_right_guesses_in_numbers_that_a_gpu_keeps(loss):
    import tensorflow as tf
    from trainer.tensorflow_losses import right

    count = tf.function(lambda logits, labels: right(SimpleNamespace(loss=loss), logits, labels), autograph=False)
    shapes = tf.TensorSpec((None, 10), tf.float32), tf.TensorSpec((None,), tf.int32)
    assert counting(count.get_concrete_function(*shapes).graph) == {("Equal", "int64"), ("Sum", "float32")}


@pytest.mark.tensorflow
@pytest.mark.usefixtures("tensorflow_1")
@pytest.mark.parametrize("towers", [1, 2])
@pytest.mark.parametrize("loss", ["softmax", "sigmoid"])
def test_tensorflow_1_counts_right_guesses_in_numbers_that_a_gpu_keeps(loss, towers):
    words = [layers.dense("d", 5, 1 if loss == "sigmoid" else 3, normal(1), normal(1))]
    made = network("tf1", words, (5,), loss=loss, counted=True, group=Group(0, towers))
    x, labels = images(4, 5), np.array([0, 1, 1, 0])
    with made.graph.as_default():
        values = filled(made)
    _, right = made.train((x, labels), made.model.turn(0, 0))
    logits = x @ values["d/weights"] + values["d/biases"]
    assert right == (made.model.guesses(logits) == labels).sum()
    assert counting(made.graph) == {("Equal", "int64"), ("Sum", "float32")}
    made.close()


def test_a_random_start_of_all_weights_is_the_same_in_every_framework_and_for_every_seed_another():
    words = with_end([layers.conv("c", 3, 2, 5, normal(1), normal(1)), layers.batch_norm("b", 5, 0.9, 0.1)], 5)
    model = Model(words, recipe(momentum(0.9), 0.1, averages=lambda _: 0.5), (1, 1, 2), 4)
    one, same, other = (model.first(seed) for seed in (1, 1, 2))
    assert set(one) == set(model.kept())
    assert all((one[name] == same[name]).all() for name in one)
    assert (one["c/weights"] != other["c/weights"]).any()
    assert (one["average/c/weights"] == one["c/weights"]).all()
    assert (one["b/variance"] == 1).all()
    assert not one["b/mean"].any()
    assert not one["velocity/c/weights"].any()
