"""elementwise.c: dropout drops its share, and the same places on the way back; Adam's update is TensorFlow's."""

import importlib
from itertools import combinations

import numpy as np
import pytest

from trainer import native, winograd

RATES = 0.0, 0.25, 0.5, 0.8


@pytest.fixture(scope="module")
def library():
    found = winograd.opened(native.compiled(winograd.SOURCES))
    assert found, "gcc, and a processor with AVX2 or NEON, are needed"
    return found


def dropped(library, x, rate, key, threads=1):
    found, words, factor = np.empty_like(x), np.array(key, np.uint32), np.array([1 / (1 - rate)], np.float32)
    about = (winograd.ctypes.c_long * 3)(threads, x.size, round(rate * 2**16))
    library.call("dropout", about, [one.ctypes.data for one in (x, words, factor)], [found.ctypes.data])
    return found


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("count", [1, 127, 128, 100_001])
def test_dropout_drops_its_share_and_scales_the_rest(library, rate, count):
    found = dropped(library, np.full(count, 3, np.float32), rate, (1, 2))
    kept = found != 0
    assert found[kept] == pytest.approx(3 / (1 - rate))
    assert abs(kept.mean() - (1 - rate)) <= 4 * (rate * (1 - rate) / count) ** 0.5 + 1 / count


def test_what_is_dropped_depends_on_the_key_alone(library):
    ones = np.ones(50_000, np.float32)
    found = {key: dropped(library, ones, 0.5, key) for key in ((0, 0), (0, 1), (1, 0))}
    for key, one in found.items():
        assert (dropped(library, ones, 0.5, key, threads=2) == one).all()
    for one, other in combinations(found.values(), 2):
        assert abs((one == other).mean() - 0.5) < 0.02
    neighbours = found[0, 0]
    for far in 1, 2, 16, 32, 64, 128:
        assert abs((neighbours[far:] == neighbours[:-far]).mean() - 0.5) < 0.02


def test_it_draws_philoxs_numbers(library):
    """Of Random123's known answers, philox4x32 with 7 rounds and zeros as counter and key. A counter's words lie 16
    apart, the lower half of each first."""
    words = 0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48
    drawn = [half for word in words for half in (word & 0xFFFF, word >> 16)]
    places = [32 * k + half for k in range(4) for half in range(2)]
    ones = np.ones(128, np.float32)
    for number, place in zip(drawn, places, strict=True):
        limits = [dropped(library, ones, share / 2**16, (0, 0))[place] == 0 for share in (number, number + 1)]
        assert limits == [False, True]


@pytest.mark.tensorflow
def test_in_tensorflow_the_gradient_is_dropped_where_the_number_was(library):
    import tensorflow as tf

    dropout = importlib.import_module("trainer.frameworks.tf2.elementwise").dropout
    x = tf.reshape(tf.range(1.0, 60_001), (2, 30_000))

    @tf.function(autograph=False)
    def both(x, key):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = dropout(library, x, 0.4, key)
        return y, tape.gradient(y, x)

    y, gradient = both(x, tf.constant([5, -7]))
    assert y.numpy() == pytest.approx(x.numpy() * gradient.numpy())
    assert set(np.unique(gradient.numpy().round(4))) == {0, np.float32(1 / 0.6).round(4)}
    assert abs((gradient.numpy() == 0).mean() - 0.4) < 0.02
    assert (both(x, tf.constant([5, -6]))[1].numpy() != gradient.numpy()).any()


@pytest.mark.tensorflow
@pytest.mark.parametrize("shape", [(7,), (300, 200)])
def test_in_tensorflow_adam_is_as_tensorflows_own(library, shape):
    import tensorflow as tf

    own = importlib.import_module("trainer.frameworks.tf2.elementwise").adam
    learning = importlib.import_module("trainer.frameworks.tf2.learning")
    words = {"b1": 0.9, "b2": 0.999, "epsilon": 1e-7}
    random = np.random.default_rng(0)
    start, gradients = random.standard_normal(shape), random.standard_normal((5, *shape))

    def trained(update):
        w, *slots = (tf.Variable(one, dtype=tf.float32) for one in (start, np.zeros(shape), np.zeros(shape)))
        step = tf.function(lambda gradient: update(words, w, slots, tf.constant(0.01), gradient), autograph=False)
        for gradient in gradients:
            step(tf.constant(gradient, tf.float32))
        return [one.numpy() for one in (w, *slots)]

    ours, theirs = trained(lambda *given: own(library, *given)), trained(learning.adam)
    for one, other in zip(ours, theirs, strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=1e-6)
    assert np.abs(ours[0] - start).min() > 0
