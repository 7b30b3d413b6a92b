"""A convolution by spectra equals the direct one, forward and backward; used only where it pays."""

import importlib

import numpy as np
import pytest
from convolutions import drawn, is_tensorflows_own, led_back, slid, word_of

from trainer import spectra

SEVERAL = [  # window, padding, inputs, outputs, examples, height, width
    (5, None, 32, 64, 7, 12, 12),
    (3, 0, 64, 32, 1, 7, 7),
    (3, 1, 32, 96, 25, 5, 8),
    ((3, 5), None, 64, 64, 2, 6, 9),
    ((1, 4), (0, 3), 32, 32, 5, 4, 5),
    (7, 3, 96, 32, 8, 4, 4),
    (4, 1, 32, 32, 6, 9, 6),
    (2, 0, 32, 32, 3, 2, 31),
]


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize(("window", "padding", "inputs", "outputs", "examples", "height", "width"), SEVERAL)
def test_a_product_of_spectra_is_the_convolution_and_its_gradients(
    framework, library, window, padding, inputs, outputs, examples, height, width, biased
):
    word = word_of(window, padding, inputs, outputs)
    x, weights, biases, gradient = drawn(word, examples, height, width)
    biases = biases if biased else None
    given = by(framework, word, library, x, weights, biases, gradient)
    wanted = slid(word, x, weights, 0 if biases is None else biases, gradient)
    for one, other in zip(given, wanted[: 3 + biased], strict=True):
        assert one == pytest.approx(other, rel=1e-5, abs=2e-4)


def by(framework, word, library, *arrays):
    conv = importlib.import_module(f"trainer.frameworks.{framework}.spectral").conv
    return led_back(framework, lambda *given: conv(word, *given, library=library), *arrays)


@pytest.mark.torch
@pytest.mark.parametrize("wanted", [(True, True, True), (False, True, True), (True, False, False)])
def test_what_wants_no_gradient_gets_none(torch, library, wanted):
    spectral = importlib.import_module("trainer.frameworks.pytorch.spectral")
    word = word_of(5, None, 32, 32)
    arrays = drawn(word, 6, 5, 5)[:3]
    given = [torch.from_numpy(array).requires_grad_(wants) for array, wants in zip(arrays, wanted, strict=True)]
    found = spectral.conv(word, given[0].permute(0, 3, 1, 2), given[1].permute(3, 2, 0, 1), given[2], library)
    back = found.grad_fn.apply(torch.ones_like(found))
    assert [one is not None for one in back] == [*wanted, False, False]


def test_a_dark_part_is_off_by_no_more_than_a_millionth_of_the_bright_one(framework, library):
    word = word_of(5, None, 32, 32)
    x, weights, _, gradient = drawn(word, 6, 12, 12)
    x[:, :6] *= 1e-3
    given = by(framework, word, library, x, weights, None, gradient)[0]
    wanted = slid(word, x, weights, 0, gradient)[0]
    assert np.abs(given - wanted).max() < 1e-6 * np.abs(wanted).max()
    assert np.abs(wanted[:, :4]).max() < 1e-2 * np.abs(wanted).max(), "there is a dark part"


@pytest.mark.torch
def test_pytorch_takes_it_where_it_pays_for_32_bits_that_lie_channels_last(torch, library):
    pytorch = importlib.import_module("trainer.frameworks.pytorch")
    ops = importlib.import_module("trainer.frameworks.pytorch.ops")
    word = word_of(5, None, 64, 64)
    kept = {f"conv/{which}": torch.ones(shape) for which, shape in (("weights", (64, 64, 5, 5)), ("biases", (64,)))}
    kept["conv/weights"].requires_grad_()

    def way(examples, lying=torch.channels_last, by=library, **said):
        seen = torch.ones(examples, 64, 12, 12).contiguous(memory_format=lying)
        return ops.conv(word, seen, pytorch.Pass(kept, True, library=by, **said)).grad_fn.name()

    assert way(128) == "SpectralBackward"
    others = way(1), way(128, torch.contiguous_format), way(128, half=torch.bfloat16), way(128, is_compiled=True)
    assert {*others, way(128, by=None)} == {"ConvolutionBackward0"}


@pytest.mark.tensorflow
def test_tensorflow_takes_it_where_it_pays_for_32_bits(library):
    import tensorflow as tf

    word = word_of(5, None, 64, 64)

    def convolves(examples, kind=tf.float32, by=library):
        return is_tensorflows_own(word, (examples, 12, 12, 64), kind, by)

    assert not convolves(128)
    assert convolves(1)
    assert convolves(None), "nobody knows whether it pays"
    assert convolves(128, tf.bfloat16)
    assert convolves(128, by=None)


def test_it_pays_for_large_windows_on_small_pictures_in_large_batches():
    tutorial = word_of(5, None, 64, 64)
    assert spectra.pays(tutorial, 128, 12, 12)
    assert not spectra.pays(tutorial, 1, 12, 12), "the windows' own spectra are too dear for one picture"
    assert not spectra.pays(tutorial, 128, 24, 24), "transforms grow with the square of the places"
    assert not spectra.pays(word_of(3, 1, 64, 64), 128, 12, 12), "a small window takes little by itself"
    assert not spectra.pays(word_of(5, None, 3, 64), 128, 12, 12), "three channels do not make up for it"
    assert not spectra.pays(word_of(5, None, 64, 64, stride=2), 128, 12, 12)
    assert not spectra.pays(word_of(3, 1, 512, 512), 2000, 7, 7), "spectra of 71 MB are waited for"


def test_of_other_channels_or_longer_periods_there_is_none():
    tutorial = word_of(5, None, 64, 64)
    assert spectra.can_be(tutorial)
    for word in word_of(5, None, 48, 64), word_of(5, None, 64, 48), word_of(1, 0, 64, 64), {"op": "relu"}:
        assert not spectra.can_be(word)
    assert spectra.pays(word_of(15, 7, 64, 64), 16, 16, 16)
    for window, padding, side in (15, 17, 16), (33, 16, 16), ((2, 9), (16, 4), 16):
        assert not spectra.pays(word_of(window, padding, 64, 64), 10**6, side, side), "no side is longer than 32 places"
    assert not spectra.pays(word_of(5, 0, 64, 64), 128, 4, 12), "nothing is left of the picture"


@pytest.mark.parametrize("across", [(4, 6), (4, 5), (3, 6), (5, 7), (1, 2)])
def test_a_real_picture_has_so_many_frequencies_that_are_no_mirror_images(across):
    drawn = np.fft.fft2(np.random.RandomState(0).standard_normal(across)).round(9)
    pairs = {frozenset((one, one.conjugate())) for one in drawn.flat}
    assert spectra.counted(across) == len(pairs)
